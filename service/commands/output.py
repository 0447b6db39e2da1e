"""What commands print: lines for people, JSON for machines.

Text that came from somewhere else is made printable, so that no answer can steer a terminal.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def line(text: str = "") -> None:
    """Print one line."""
    sys.stdout.write(printable(text) + "\n")


def machine(value: Any) -> None:
    """Print one JSON document on one line, and let it out at once."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def fields(pairs: Mapping[str, Any], *, indent: str = "") -> None:
    """Print names and values below each other; a value that is None prints as `-`."""
    width = max(map(len, pairs), default=0)
    for name, value in pairs.items():
        line(f"{indent}{name:<{width}}  {shown(value)}")


def table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows in aligned columns under their names; no rows print as `none`."""
    cells = [[shown(row[column]) for column in columns] for row in rows]
    if not cells:
        line("none")
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for texts in ([column.upper() for column in columns], *cells):
        padded = [text.ljust(width) for text, width in zip(texts, widths, strict=True)]
        line("  ".join(padded).rstrip())


def shown(value: Any) -> str:
    """Write a value for reading."""
    if value is None or value == []:
        return "-"
    if isinstance(value, list):
        return ", ".join(map(shown, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def printable(text: str) -> str:
    """Escape what a terminal would obey rather than show; tabs stay."""
    return "".join(
        char if char.isprintable() or char == "\t" else ascii(char)[1:-1] for char in text
    )
