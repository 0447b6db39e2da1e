"""Reading documents back: by digest, checked against it, as JSON objects."""

from typing import Any

from sqlmodel import Session

from audit.canonical import digest, parse
from service.log_tables import Document

MAX_DOCUMENT_BYTES = 16_777_216


class AlteredDocumentError(ValueError):
    """A stored document is gone or is not what its digest says."""


def load(session: Session, name: str) -> bytes:
    """Return the document with this digest.

    Raises:
        AlteredDocumentError: it is missing, or its bytes have another digest.
    """
    row = session.get(Document, name)
    if row is None:
        raise AlteredDocumentError(f"document `{name}` is missing")
    if digest(row.body) != name:
        raise AlteredDocumentError(f"document `{name}` holds other bytes than its digest says")
    return row.body


def parse_object(body: bytes) -> dict[str, Any]:
    """Read a canonical JSON object.

    Raises:
        AlteredDocumentError: not a JSON object.
    """
    value = parse(body, max_bytes=MAX_DOCUMENT_BYTES)
    if not isinstance(value, dict):
        raise AlteredDocumentError("a stored document is no JSON object")
    return value
