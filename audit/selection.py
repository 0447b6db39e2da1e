"""Which entries an excerpt shows, as the exporter states it and a verifier holds it to.

    {"actors":["prn_…"],"end":900,"first":100,"kinds":["gate.decided"],
     "resources":["job:job_…"],"since":"2026-11-01T00:00:00.000Z","until":"2026-12-01T00:00:00.000Z"}

Every member is optional; an entry is shown when all that are there hold. `first` and `since` are
inclusive, `end` and `until` are not. `since` and `until` are compared with what entries claim of
their time. Nobody can tell from an excerpt whether it shows all that match: what it leaves out is
fixed by its hash, and unseen.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from audit.canonical import MAX_INT, JsonValue
from audit.event import Event, EventKind
from audit.kinds import MILLISECONDS, RESOURCE, is_code, is_instant

MAX_NAMES = 1000


class SelectionError(ValueError):
    """A selection is malformed, or asks for nothing; the message names the member."""


@dataclass(frozen=True)
class Selection:
    """Conditions on entries; an empty one holds for every entry."""

    first: int = 0
    end: int | None = None
    since: str | None = None
    until: str | None = None
    kinds: frozenset[str] = field(default_factory=frozenset)
    resources: frozenset[str] = field(default_factory=frozenset)
    """`kind:id`, without a version."""
    actors: frozenset[str] = field(default_factory=frozenset)

    @property
    def is_everything(self) -> bool:
        """Say whether it leaves nothing out."""
        return self == Selection()

    def matches(self, index: int, event: Event) -> bool:
        """Say whether an entry is to be shown."""
        return (
            self.first <= index
            and (self.end is None or index < self.end)
            and (self.since is None or self.since <= event.at)
            and (self.until is None or event.at < self.until)
            and (not self.kinds or event.action in self.kinds)
            and (not self.resources or event.resource.partition("@")[0] in self.resources)
            and (not self.actors or event.actor.ref in self.actors)
        )

    def to_document(self) -> dict[str, JsonValue]:
        """Return the JSON form: what is not asked for is left out."""
        found: dict[str, JsonValue] = {}
        if self.first:
            found["first"] = self.first
        for name in ("end", "since", "until"):
            value = cast("JsonValue", getattr(self, name))
            if value is not None:
                found[name] = value
        for name in ("kinds", "resources", "actors"):
            if names := sorted(cast("frozenset[str]", getattr(self, name))):
                found[name] = list(names)
        return found

    @classmethod
    def from_document(cls, document: object) -> "Selection":
        """Read the JSON form.

        Raises:
            SelectionError: an unknown member, or a malformed value.
        """
        if not isinstance(document, dict):
            raise SelectionError("selection: expected an object")
        given = cast("Mapping[str, object]", document)
        if unknown := sorted(set(given) - set(cls.__dataclass_fields__)):
            raise SelectionError(f"selection: no member {unknown[0]!a} is known")
        return cls(
            first=_index(given, "first") or 0,
            end=_index(given, "end"),
            since=_moment(given, "since"),
            until=_moment(given, "until"),
            kinds=_names(given, "kinds", lambda name: name in set(EventKind)),
            resources=_names(given, "resources", _is_resource),
            actors=_names(given, "actors", is_code),
        )


def _index(given: Mapping[str, object], name: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= MAX_INT:
        raise SelectionError(f"selection: `{name}` is no index of an entry")
    return value


def _moment(given: Mapping[str, object], name: str) -> str | None:
    value = given.get(name)
    if value is None:
        return None
    if not is_instant(value, MILLISECONDS):
        raise SelectionError(f"selection: `{name}` is not YYYY-MM-DDThh:mm:ss.mmmZ")
    return cast("str", value)


def _names(given: Mapping[str, object], name: str, is_one: Callable[[str], bool]) -> frozenset[str]:
    value = given.get(name, [])
    if not isinstance(value, list) or len(value) > MAX_NAMES:
        raise SelectionError(f"selection: `{name}` is no list of at most {MAX_NAMES}")
    for item in value:
        if not isinstance(item, str) or not is_one(item):
            raise SelectionError(f"selection: `{name}` holds {str(item)[:80]!a}")
    return frozenset(cast("list[str]", value))


def _is_resource(name: str) -> bool:
    return RESOURCE.fullmatch(name) is not None and "@" not in name
