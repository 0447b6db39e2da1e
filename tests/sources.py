"""What the architecture and deployment tests look at: the tracked files of this repository."""

import ast
import functools
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("audit", "policies", "model_cards", "trainer", "service")


@functools.cache
def tracked() -> tuple[Path, ...]:
    """List the files that git knows or would add, as paths below the root."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return tuple(Path(name) for name in sorted(set(listed.split("\0"))) if (ROOT / name).is_file())


@functools.cache
def modules(*rooms: str) -> dict[Path, ast.Module]:
    """Parse the Python files of these rooms; of all rooms when none is named."""
    chosen = rooms or ROOMS
    return {
        path: ast.parse((ROOT / path).read_text(encoding="utf-8"))
        for path in tracked()
        if path.suffix == ".py" and path.parts[0] in chosen
    }


def check_generated(document: str, name: str, expected: str) -> None:
    """Compare the part of a document between its two markers with what it must say.

    The markers are ``<!-- name -->`` and ``<!-- /name -->``. With ``PLACET_GOLDEN=1`` the part is
    rewritten instead.
    """
    path = ROOT / document
    text = path.read_text(encoding="utf-8")
    part = re.compile(f"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->\n)", re.DOTALL)
    found = part.search(text)
    assert found is not None, f"{document} lacks the markers of `{name}`"
    if os.environ.get("PLACET_GOLDEN"):
        path.write_text(text[: found.start()] + expected + text[found.end() :], encoding="utf-8")
        return
    assert found[0] == expected, f"`{name}` in {document} is not up to date; run `make golden`"
