"""Where a value stands in a document that a person wrote: JSON pointer → line and column.

    compute:
      region: BHS          "/compute/region" stands at Position(line=2, column=3)

The text is the strict YAML of `policies.strict`, or JSON, which is read as the YAML that it is. A
member stands where its name does, an element where it starts, the document at its beginning. Text
that cannot be read that way has no positions; this never says whether it may be used.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a text; both numbers start at 1, columns count characters."""

    line: int
    column: int


def positions_of(data: bytes) -> dict[str, Position]:
    """Find every member and element of a document; {} for what is no such document."""
    found: dict[str, Position] = {}
    try:
        events = iter(YAML(typ="safe", pure=True).parse(io.StringIO(data.decode("utf-8"))))
        for event in events:
            if isinstance(event, DocumentStartEvent):
                _walk(next(events), events, "", found, 0)
                return found
    except (YAMLError, UnicodeDecodeError, StopIteration, RecursionError):
        return {}
    return {}


def _walk(
    event: Event, events: Iterator[Event], pointer: str, found: dict[str, Position], depth: int
) -> None:
    if depth > _MAX_DEPTH:
        raise RecursionError
    found.setdefault(pointer, _at(event))
    if isinstance(event, MappingStartEvent):
        while not isinstance(key := next(events), MappingEndEvent):
            if not isinstance(key, ScalarEvent):
                raise RecursionError
            name = f"{pointer}/{str(key.value).replace('~', '~0').replace('/', '~1')}"
            found.setdefault(name, _at(key))
            _walk(next(events), events, name, found, depth + 1)
    elif isinstance(event, SequenceStartEvent):
        index = 0
        while not isinstance(item := next(events), SequenceEndEvent):
            _walk(item, events, f"{pointer}/{index}", found, depth + 1)
            index += 1


def _at(event: Event) -> Position:
    mark = event.start_mark
    return Position(mark.line + 1, mark.column + 1)


def locate(
    pointer: str,
    positions: Mapping[str, Position],
    places: Sequence[tuple[str, str]] = (),
) -> tuple[str, Position] | None:
    """Find the member of a document that a fact came from, as near as can be told.

    Args:
        pointer: of the fact, derived or not.
        positions: of the document's members.
        places: (start of a fact's pointer, start of the document's pointer), the first that fits
            counts; a fact that fits none is sought at its own pointer.

    Returns:
        The member's pointer and position, or None when it is not in the document.
    """
    sought = _sought(pointer, places)
    while sought:
        if sought in positions:
            return sought, positions[sought]
        sought = sought.rpartition("/")[0]
    return None


def _sought(pointer: str, places: Sequence[tuple[str, str]]) -> str:
    for fact, member in places:
        if pointer == fact or pointer.startswith(fact + "/"):
            return member + pointer.removeprefix(fact)
    return pointer
