"""The checkpoint that a verifier remembers between two runs, `placet.remembered/1`.

    {"format":"placet.remembered/1","origin":"example.com/log","root":"<base64>","size":15}

It is what makes a cut tail or a restored backup visible: the next export must be an extension of
this one. The first run trusts on first use. One file remembers one log.
"""

import os
import tempfile
from pathlib import Path

from audit.canonical import CanonicalError, canonical, parse_canonical
from audit.keys import NoteError, encode_base64
from audit.note import Checkpoint, parse_checkpoint

REMEMBERED_FORMAT = "placet.remembered/1"


class RememberedError(ValueError):
    """The state file is malformed."""


def load_remembered(path: Path) -> Checkpoint | None:
    """Read the state file; None when there is none yet.

    Raises:
        RememberedError: malformed. OSError: it cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        match parse_canonical(data):
            case {"origin": str(origin), "root": str(root), "size": int(size)}:
                checkpoint = parse_checkpoint(f"{origin}\n{size}\n{root}\n")
                if _format(checkpoint) == data:
                    return checkpoint
    except (CanonicalError, NoteError) as cause:
        raise RememberedError(f"state file {path}: {cause}") from cause
    raise RememberedError(f"state file {path} is malformed: expected {REMEMBERED_FORMAT}")


def store_remembered(path: Path, checkpoint: Checkpoint) -> None:
    """Replace the state file atomically: after a crash it is the old one or the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_format(checkpoint))
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _format(checkpoint: Checkpoint) -> bytes:
    return canonical(
        {
            "format": REMEMBERED_FORMAT,
            "origin": checkpoint.origin,
            "root": encode_base64(checkpoint.root),
            "size": checkpoint.size,
        }
    )
