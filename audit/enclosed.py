"""The documents beside the entries, as level L6 reads them: by their digest, and never assumed.

A rule that needs a document which is not enclosed was not asked. That document is remembered under
`missing`, and the level is then "not checked", whatever else holds.
"""

from collections.abc import Callable, Mapping

from audit.canonical import CanonicalError, JsonValue, canonical, parse

MAX_ENCLOSED_BYTES = 8_388_608

Load = Callable[[str], bytes | None]
Members = Mapping[str, JsonValue]


class UnreadableError(ValueError):
    """A document is enclosed and is no JSON object in our spelling, or not of its format."""


class Enclosed:
    """Reads documents by digest.

    Args:
        load: returns the bytes with a digest, or None when they are not at hand.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self.missing: set[str] = set()

    def body(self, reference: str) -> bytes | None:
        """Return the bytes of a document, or None, which is remembered as missing."""
        body = self._load(reference)
        if body is None:
            self.missing.add(reference)
        return body

    def read(self, reference: str, form: str | None = None) -> Members | None:
        """Return the members of a document of a format, or None, which is remembered as missing.

        Raises:
            UnreadableError: it is no JSON object, or of another format.
        """
        body = self.body(reference)
        if body is None:
            return None
        try:
            document = parse(body, max_bytes=MAX_ENCLOSED_BYTES)
        except CanonicalError as cause:
            raise UnreadableError(str(cause)) from cause
        if not isinstance(document, dict):
            raise UnreadableError("expected a JSON object")
        if form is not None and document.get("format") != form:
            raise UnreadableError(f"expected the format {form}")
        return document


def differing(expected: Members, found: object) -> list[str]:
    """Name the members of an object that are not there or have another value or type."""
    members = found if isinstance(found, dict) else {}
    return [
        name
        for name, value in expected.items()
        if name not in members or canonical(members[name]) != canonical(value)
    ]
