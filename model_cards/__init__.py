"""What is this model? Evidence goes in, documents come out.

Every value in a document was measured by a run, declared by a person or read from dated reference
data; what nobody supplied is shown as missing, with who can supply it and which article asks.
"""
