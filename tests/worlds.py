"""Facts documents by the thousand, from a seed: valid worlds, and documents gone wrong.

A world is a base document of the shipped packs in which some facts are others that the contract
allows, unknown, or at a boundary. A wild document is a world with a few facts that nobody should
send: other types, look-alikes, huge and fractional numbers, deep nesting, strange objects.
"""

import contextlib
import copy
import random
from collections.abc import Iterator
from typing import Any

from policies.facts import schema
from policies.load import PACKS, read_packs
from policies.pointers import drop, put, split

INSTANTS = (
    "2026-11-30T12:00:00Z",
    "2026-12-01T23:59:59Z",
    "2027-08-02T00:00:00Z",
    "2029-02-28T08:30:00Z",
)
INTEGERS = (0, 1, 2, 4, 5, 17, 29, 30, 31, 333, 334, 600, 1000, 1001, 10**6, 10**9, 2**53 - 1)
STRINGS = (
    *("own-site", "ovhcloud", "aws", "hetzner", "new-cloud", "site", "GRA", "BHS", "UK1", "par"),
    *("EU-WEST-LZ-ZRH", "nowhere", "ai-training", "object-storage", "MIT", "gemma", "odd"),
    *("CC-BY-SA-4.0", "CC-BY-ND-4.0", "sha256:" + "a" * 64, "FR", "DE", "US", "CH", "x1"),
    *("public", "none", "personal", "health", "health.fr.hds", "art9.political", "secret.bank"),
)
# What has a canonical form, and what has none.
STRANGE: tuple[Any, ...] = (
    *(True, False, 0, 1, -1, 3, 2**53 - 1, 1 - 2**53, "", " ", "1", "true", "null", "fine_tune "),
    *("Fine_tune", "ovhcl\u043eud", "\uff27\uff32\uff21", "GRA\u200b", "GR\u0041\u0301", "none"),
    *("\U0001f600", "x" * 300, [], {}, [[]], [{}], {"a": None}, [None], {"\u00e9": 1}, (1, 2)),
    *([True], {"derived": {}}, ["public", "public"], ["PUBLIC"], [0], {"0": "public"}, ()),
)
UNREADABLE: tuple[Any, ...] = (
    *(2**53, -(2**53), 2**63, 2**64 + 1, 10**30, 1.0, 0.5, 1e308, float("nan"), float("inf")),
    *("\ud800", {1: 2}, {True: 1}, {None: 1}, b"x", [1.0], {1}, 1j, "GRA\n", 'a"b', "a\\b"),
)

BASES: tuple[dict[str, Any], ...] = tuple(
    {name: value for name, value in facts.items() if name != "derived"}
    for pack in read_packs([PACKS])
    for _, facts in sorted(pack.bases.items())
)


def pointers(node: Any, at: str = "") -> Iterator[str]:
    """List every place inside a document."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield f"{at}/{key}"
        if isinstance(value, dict | list):
            yield from pointers(value, f"{at}/{key}")


def forgettable(facts: dict[str, Any]) -> list[str]:
    """List the facts; an element of a list is none, for another list is another answer."""
    return [p for p in pointers(facts) if not split(p)[-1].isdigit()]


def _allowed(rng: random.Random, known: dict[str, Any]) -> Any:
    """Invent a value that a place in the contract may hold."""
    if "const" in known or "enum" in known:
        return rng.choice(known.get("enum") or [known["const"]])
    types = known.get("type", "string")
    kind = rng.choice(types) if isinstance(types, list) else types
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "integer":
        low, high = known.get("minimum", 0), known.get("maximum", 2**53 - 1)
        return rng.choice([low, high, *(i for i in INTEGERS if low <= i <= high)])
    if kind == "array":
        items = [_allowed(rng, known["items"]) for _ in range(rng.choice((0, 1, 1, 2)))]
        return [item for n, item in enumerate(items) if item not in items[:n]]
    if kind == "object":
        members = known.get("properties", {})
        return {n: _allowed(rng, s) for n, s in members.items() if rng.random() < 0.8}
    return None if kind == "null" else rng.choice(STRINGS)


def _at(pointer: str) -> dict[str, Any]:
    node: dict[str, Any] = schema("facts")
    for part in split(pointer):
        node = node["items"] if part.isdigit() else node["properties"][part]
    return node


def world(rng: random.Random) -> dict[str, Any]:
    """Make one world; nearly all of them keep the contract."""
    facts = copy.deepcopy(rng.choice(BASES))
    for _ in range(rng.choice((0, 1, 1, 2, 3, 5))):
        if rng.random() < 0.2:  # a member that the base does not have
            name = rng.choice(sorted(schema("facts")["properties"]))
            facts[name] = _allowed(rng, _at(f"/{name}"))
            continue
        pointer = rng.choice(list(pointers(facts)))
        if rng.random() < 0.15 and not split(pointer)[-1].isdigit():
            drop(facts, pointer)
        else:
            put(facts, pointer, _allowed(rng, _at(pointer)))
    return facts


def wild(rng: random.Random) -> Any:
    """Make one document gone wrong."""
    facts: Any = world(rng)
    if rng.random() < 0.03:
        return copy.deepcopy(rng.choice(STRANGE))
    places = ["/derived", "/x", *pointers(facts)]
    for pointer in rng.sample(places, min(len(places), rng.choice((1, 1, 2, 4)))):
        strange = copy.deepcopy(rng.choice(STRANGE if rng.random() < 0.9 else UNREADABLE))
        if rng.random() < 0.02:
            for _ in range(rng.choice((1, 70, 400))):
                strange = [strange]
        with contextlib.suppress(ValueError):  # what held the place may be gone by now
            put(facts, pointer, strange)
    return facts
