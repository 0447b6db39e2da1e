"""`placet dataset inspect`: look for personal data in files on this machine, before registering."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from service.commands.errors import CommandError, Status
from service.commands.output import fields, line, machine, table
from service.detection.reading import Format, FormatError, inspect_file
from service.detection.result import Detection


def inspect(arguments: argparse.Namespace) -> int:
    """Look through files, print what was found and the tags that it suggests."""
    if not 1 <= arguments.sample_permille <= 1000:
        raise CommandError("--sample-permille: expected 1 to 1000", Status.USAGE)
    files = _files(arguments.files)
    stated = None if arguments.format is None else Format(arguments.format)
    parts = [_seen(path, stated, arguments) for path in files]
    whole = Detection.merged(parts)
    document = whole.to_document()
    if arguments.json:
        machine({"files": [str(path) for path in files], **document})
    else:
        _print(files, whole, document)
    return Status.OK


def _files(given: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in given:
        inside = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else []
        if path.is_dir() and not inside:
            raise CommandError(f"`{path}` holds no file; name one that does", Status.USAGE)
        found += inside or [path]
    return found


def _seen(path: Path, stated: Format | None, arguments: argparse.Namespace) -> Detection:
    try:
        return inspect_file(
            path, as_format=stated, permille=arguments.sample_permille, seed=arguments.seed
        )
    except FormatError as error:
        raise CommandError(f"`{path}` {error}", Status.USAGE) from error
    except OSError as error:
        raise CommandError(f"cannot read `{path}`: {error.strerror}", Status.USAGE) from error


def _print(files: Sequence[Path], whole: Detection, document: dict[str, Any]) -> None:
    fields(
        {
            "files": len(files),
            "rows": f"{whole.rows_examined} of {whole.rows} looked at ({whole.mode})",
            "bytes": whole.bytes_examined,
            "detectors": document["detectors"],
            "not UTF-8": whole.rows_not_utf8,
        }
    )
    line()
    table(
        ("detector", "hits"),
        [{"detector": name, "hits": count} for name, count in document["counts"].items()],
    )
    if not whole.counts:
        line("Nothing was found. That is no proof that there is nothing.")
        return
    line()
    table(
        ("file", "row", "detector", "shape"),
        [{**each, "file": files[each["object"]].name} for each in document["evidence"]],
    )
    line()
    flags = " ".join(f"--category {tag}" for tag in whole.categories)
    line(f"declare at least: {flags}")
