"""Engines: where runs happen.

`protocol` says what an engine promises, `local` keeps the promise with processes of this machine,
which `process` and `supervisor` start and watch.
"""
