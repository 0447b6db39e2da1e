"""Reading the documents that people write: YAML or JSON, strictly."""

import sys
from pathlib import Path
from typing import Any

from policies.strict import StrictError, parse_json, parse_yaml
from service.commands.errors import CommandError, Status

MAX_BYTES = 1_048_576


def read_document(path: Path) -> dict[str, Any]:
    """Read a mapping from a `.json` or YAML file, or YAML from standard input when it is `-`.

    Raises:
        CommandError: unreadable, not strict, or no mapping; names the file and the line.
    """
    try:
        data = sys.stdin.buffer.read(MAX_BYTES + 1) if str(path) == "-" else path.read_bytes()
        value = parse_json(data) if path.suffix == ".json" else parse_yaml(data)
    except OSError as error:
        raise CommandError(f"cannot read `{path}`: {error.strerror}", Status.USAGE) from error
    except StrictError as error:
        raise CommandError(f"`{path}`: {error}", Status.USAGE) from error
    if not isinstance(value, dict):
        raise CommandError(f"`{path}`: expected a mapping of names to values", Status.USAGE)
    return value


def uri_of(text: str) -> str:
    """Return a URI as it is, and a path on this machine as its `file://` URI."""
    return text if "://" in text else Path(text).expanduser().resolve().as_uri()
