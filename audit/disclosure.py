"""A disclosure: one sealed value of one entry, given to one auditor, checkable without trust.

    {"entry":"evt_…","field":"reason","format":"placet.disclosure/1","key":"<base64 of 32 bytes>",
     "value":"the contract names Roubaix"}

The entry's commitment fixes the value (`audit.sealed`). Whoever holds the disclosure and the entry
can check it; who holds the entry alone learns nothing. It is personal data: keep it apart.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from audit.canonical import CanonicalError, canonical, parse
from audit.keys import NoteError, encode_base64, strict_base64
from audit.sealed import SealedError, check_commitment

FORMAT = "placet.disclosure/1"
MAX_DISCLOSURE_BYTES = 1_048_576


class DisclosureError(ValueError):
    """A disclosure is malformed, or is not what the entry committed to."""


@dataclass(frozen=True)
class Disclosure:
    """A sealed value with the key of its commitment."""

    entry: str
    field: str
    key: bytes
    value: str

    def to_bytes(self) -> bytes:
        """Return the canonical JSON that is handed over."""
        return canonical(
            {
                "entry": self.entry,
                "field": self.field,
                "format": FORMAT,
                "key": encode_base64(self.key),
                "value": self.value,
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a disclosure, in any spelling of its JSON.

        Raises:
            DisclosureError: malformed.
        """
        try:
            document = parse(data, max_bytes=MAX_DISCLOSURE_BYTES)
        except CanonicalError as cause:
            raise DisclosureError(f"disclosure: {cause}") from cause
        match document:
            case {
                "entry": str(entry),
                "field": str(field),
                "format": "placet.disclosure/1",
                "key": str(key),
                "value": str(value),
                **more,
            } if not more:
                try:
                    return cls(entry, field, strict_base64(key), value)
                except NoteError as cause:
                    raise DisclosureError(f"disclosure: key: {cause}") from cause
        raise DisclosureError(f"disclosure: expected the members of `{FORMAT}`")

    def check(self, entry: str, sealed: Mapping[str, str]) -> None:
        """Check the value against an entry's id and its sealed fields.

        Raises:
            DisclosureError: it is about another entry or field, or is not what was committed to.
        """
        if entry != self.entry or self.field not in sealed:
            raise DisclosureError(f"no sealed field {self.field!a} in the entry {self.entry!a}")
        try:
            check_commitment(
                sealed[self.field], self.key, self.entry, self.field, self.value.encode()
            )
        except SealedError as cause:
            raise DisclosureError(str(cause)) from cause


class Disclosures:
    """Looks for the entries of what was disclosed, while the entries pass."""

    def __init__(self, given: Sequence[Disclosure]) -> None:
        self.num_given = len(given)
        self.faults: list[str] = []
        self._open: defaultdict[str, list[Disclosure]] = defaultdict(list)
        for one in given:
            self._open[one.entry].append(one)

    @property
    def absent(self) -> list[str]:
        """Entries that were not met, by id."""
        return sorted(self._open)

    def read(self, entry: str, sealed: Mapping[str, str]) -> None:
        """Take in an entry: its id and its sealed fields."""
        for one in self._open.pop(entry, ()):
            try:
                one.check(entry, sealed)
            except DisclosureError as cause:
                self.faults.append(str(cause))
