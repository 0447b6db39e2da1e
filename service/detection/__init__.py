"""Detection of data categories in the rows of a data set, before anything is trained on them."""
