"""Objects by URI: one protocol over a directory (`file://`) and over S3 (`s3://`).

`protocol` says what a store promises, `files` and `s3` keep the promise, `routed` picks by scheme.
"""
