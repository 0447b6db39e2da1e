"""Reaching the service: address and token from flags or `PLACET_URL` and `PLACET_TOKEN`."""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.client import DEFAULT_URL, Client, ClientError
from service.commands.errors import CommandError, Status


@contextmanager
def connected(arguments: argparse.Namespace) -> Iterator[Client]:
    """Open a client for one command.

    Raises:
        CommandError: no token, or the service answered with a problem.
    """
    url = arguments.url or os.environ.get("PLACET_URL") or DEFAULT_URL
    if not url.startswith(("http://", "https://")):
        raise CommandError(f"`{url}` is no http(s) address; correct PLACET_URL", Status.USAGE)
    token = _token(arguments.token_file)
    try:
        with Client(url, token) as client:
            yield client
    except ClientError as error:
        status = Status.USAGE if error.is_bad_input else Status.REFUSED
        raise CommandError(_told(error), status) from error


def _token(file: Path | None) -> str:
    if file is not None:
        try:
            return file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"cannot read the token in `{file}`", Status.USAGE) from error
    token = os.environ.get("PLACET_TOKEN", "").strip()
    if not token:
        raise CommandError(
            "no token: set PLACET_TOKEN or give --token-file; an operator issues one with"
            " `placet token issue`",
            Status.USAGE,
        )
    return token


def _told(error: ClientError) -> str:
    """Say a problem in one line, with every field that is wrong."""
    wrong = error.problem.get("errors") or []
    if len(wrong) > 1:
        each = "; ".join(f"`{item.get('pointer')}` {item.get('detail')}" for item in wrong[:8])
        return f"{error.problem.get('title')}: {each}"
    if error.slug == "stale":
        return f"{error}"
    title = error.problem.get("title")
    return f"{title}: {error}" if title else str(error)
