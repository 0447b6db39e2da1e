"""The verifier as one file: `placet_verify.py`, which every export carries.

    python3 -I placet_verify.py BUNDLE.zip --vkey KEY

It is made of this room's own modules, joined in order with their imports of each other removed, so
that an auditor can read everything that judges the evidence from top to bottom. It needs Python
3.11 and `cryptography` 48 or newer. Equal sources give equal bytes.
"""

import ast
from pathlib import Path

MODULES = (
    "canonical",
    "merkle",
    "keys",
    "sealed",
    "disclosure",
    "note",
    "policy",
    "kinds",
    "event",
    "tiles",
    "dsse",
    "container",
    "selection",
    "manifest",
    "bundle",
    "enclosed",
    "consent",
    "records",
    "tokens",
    "documents",
    "lineage",
    "waivable",
    "waivers",
    "signers",
    "tables",
    "basis",
    "invariants",
    "listing",
    "reading",
    "report",
    "verify",
    "remembered",
    "__main__",
)

_HEADER = '''\
#!/usr/bin/env python3
"""Check an exported Placet audit log offline, level by level.

    python3 -I placet_verify.py BUNDLE.zip --vkey KEY

Made by `audit.single` from the modules of Placet's `audit` package; licence Apache-2.0. Needs
Python 3.11 and the package `cryptography` 48 or newer, and imports nothing else.
"""

'''
_FOOTER = """

if __name__ == "__main__":
    raise SystemExit(main(["verify", *sys.argv[1:]]))
"""


def build() -> bytes:
    """Return the text of placet_verify.py in UTF-8."""
    imports: set[str] = set()
    parts = []
    for module in MODULES:
        source = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
        body = _without_glue(source, imports)
        parts.append(f"\n\n# ---- audit.{module} {'-' * (70 - len(module))}\n\n{body}")
    return (_HEADER + "\n".join(sorted(imports)) + "\n" + "".join(parts) + _FOOTER).encode()


def _without_glue(source: str, imports: set[str]) -> str:
    """Return a module's text without imports, `__all__` and its own start; gather its imports."""
    lines = source.split("\n")
    for node in ast.parse(source).body:
        match node:
            case ast.ImportFrom(module=str(module)) if module.startswith("audit"):
                pass
            case ast.ImportFrom(module=str(module), names=names):
                imports.update(f"from {module} import {name.name}" for name in names)
            case ast.Import(names=names):
                imports.update(f"import {name.name}" for name in names)
            case ast.Assign(targets=[ast.Name(id="__all__")]):
                pass
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                pass
            case _:
                continue
        for number in range(node.lineno - 1, node.end_lineno or node.lineno):
            lines[number] = ""
    text = "\n".join(lines).strip("\n")
    while "\n\n\n\n" in text:
        text = text.replace("\n\n\n\n", "\n\n\n")
    return text
