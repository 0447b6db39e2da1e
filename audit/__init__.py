"""Bytes that anyone can check: the audit log's formats, proofs, exports and their verifier.

This room imports the standard library and `cryptography` only, so that an auditor can run it
without trusting, installing or reading the rest of Placet.
"""
