"""The HTTP API, version 1: parse, call a use case, render. No rules, no SQL, no commit."""
