"""The gate: may this job run, may this model be deployed?

Facts go in, a decision with its record comes out; rules are YAML documents in `packs/`, dated
reference data is in `reference/`. Everything here is a pure function of its arguments except
`load`, which reads files. Only `audit.canonical` is used from the other rooms.
"""
