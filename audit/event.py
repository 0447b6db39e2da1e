"""One entry of the audit log: who did what to which thing, without personal data.

The bytes are canonical JSON (`audit.canonical`) of one object with exactly these members, at most
16 KiB; they are stored as written and never built again to be verified.

    v         1
    id        "evt_" + UUIDv7 in Crockford base32; made by the application, the idempotency key
    log       the origin of the log, so that an entry copied into another log is seen
    at        "YYYY-MM-DDThh:mm:ss.mmmZ", a claim: order is the index, never the time
    actor     {"kind": human|service|model, "ref": a pseudonym, "auth": how it was authenticated}
    action    one of the kinds of `audit.kinds`
    resource  "kind:id" or "kind:id@version", e.g. "job:job_…@3"
    outcome   ok | denied | error
    data      the members that the kind asks for, no more and no fewer (`audit.kinds.KINDS`)
    sealed    {field: base64 of a 32-byte commitment} (`audit.sealed`); {} when nothing is sealed
    cause     id of the entry that led to this one, or null
    state     digest of the state that the act applied to, or null
    policy    digest of the policy that was in force, or null

    {"action":"approval.given","actor":{"auth":"oidc","kind":"human","ref":"prn_01…"},…,
     "data":{"record":"sha256:…","role":"officer"},…,"resource":"job:job_01…","v":1}

The vocabulary is closed. A value in `data` is a digest, an id, an integer from 0 to 2^53 - 1, an
instant, or a short code: at most 200 characters out of letters, digits and `._:/@+-`. There is no
blank in that alphabet, so no sentence fits in: what people write goes through `sealed`.

The meaning of v = 1 never changes; a change is v = 2.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from audit.canonical import CanonicalError, JsonValue, is_digest, parse
from audit.kinds import (
    KINDS,
    MAX_APPROVERS,
    MAX_ITEMS,
    MILLISECONDS,
    RESOURCE,
    RESOURCE_PREFIX,
    EventKind,
    Kind,
    identifier,
    is_code,
    is_instant,
    one_of,
)

__all__ = ["Actor", "Event", "EventError", "EventKind", "from_bytes", "resource_parts", "to_bytes"]

MAX_EVENT_BYTES = 16_384


class EventError(ValueError):
    """An entry is malformed; the message names the member and what was expected."""


@dataclass(frozen=True)
class Actor:
    """Who acted: a kind, a pseudonym (never a name), and how it was authenticated."""

    kind: str
    ref: str
    auth: str


@dataclass(frozen=True)
class Event:
    """One entry, as the application makes it and a verifier reads it."""

    id: str
    log: str
    at: str
    actor: Actor
    action: EventKind
    resource: str
    outcome: str
    data: Mapping[str, JsonValue]
    sealed: Mapping[str, str] = field(default_factory=dict)
    cause: str | None = None
    state: str | None = None
    policy: str | None = None
    v: int = 1


_EVENT_ID = identifier("evt")
_MEMBERS = frozenset(Event.__dataclass_fields__)
_ACTIONS = {kind.value: kind for kind in EventKind}
_PREFIXED = {kind: identifier(prefix) for kind, prefix in RESOURCE_PREFIX.items()}
_ACTOR_KIND = one_of("human", "service", "model")
_OUTCOME = one_of("ok", "denied", "error")
# Every key of a checked entry is ASCII, where code point order is UTF-16 order: this is RFC 8785.
_ENCODE = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def to_bytes(event: Event) -> bytes:
    """Write the entry's canonical bytes, after the same checks that `from_bytes` makes.

    Raises:
        EventError: a member is missing, unknown or malformed, or above 16 KiB in all.
    """
    fields = {**vars(event), "actor": {**vars(event.actor)}, "action": str(event.action)}
    fields["data"], fields["sealed"] = dict(event.data), dict(event.sealed)
    _check(fields)
    data = _ENCODE(fields).encode()
    if len(data) > MAX_EVENT_BYTES:
        raise EventError(f"entry of {len(data)} bytes: refer to long values by their digest")
    return data


def from_bytes(data: bytes) -> Event:
    """Read an entry strictly: `to_bytes(from_bytes(data)) == data` for all that is accepted.

    Raises:
        EventError: not canonical, above 16 KiB, or a member is missing, unknown or malformed.
    """
    try:
        value = parse(data, max_bytes=MAX_EVENT_BYTES)
    except CanonicalError as cause:
        raise EventError(f"entry: {cause}") from cause
    if not isinstance(value, dict):
        raise EventError("entry: expected a JSON object")
    _check(value)
    if _ENCODE(value).encode() != data:
        raise EventError("entry: not in canonical form")
    fields = cast("dict[str, object]", {**value, "action": _ACTIONS[cast("str", value["action"])]})
    fields["actor"] = Actor(**cast("dict[str, str]", value["actor"]))
    return Event(**fields)  # type: ignore[arg-type]  # every member was checked


def resource_parts(resource: str) -> tuple[str, str]:
    """Return (kind, id) of a checked resource, without its version."""
    kind, _, rest = resource.partition(":")
    return kind, rest.partition("@")[0]


def _check(fields: Mapping[str, object]) -> None:
    if fields.keys() != _MEMBERS:
        odd = sorted(_MEMBERS.symmetric_difference(fields))
        raise EventError(f"entry: missing or unknown members {', '.join(map(ascii, odd))}")
    action = fields["action"]
    if not isinstance(action, str) or action not in _ACTIONS:
        raise EventError("entry: `action` is not a known kind")
    kind = KINDS[_ACTIONS[action]]
    _expect(type(fields["v"]) is int and fields["v"] == 1, "v", "1")
    _expect(_EVENT_ID(fields["id"]), "id", "evt_ and a base32 UUID")
    _expect(is_code(fields["log"]), "log", "an origin of at most 200 characters")
    _expect(is_instant(fields["at"], MILLISECONDS), "at", "YYYY-MM-DDThh:mm:ss.mmmZ")
    _expect(_OUTCOME(fields["outcome"]), "outcome", "ok, denied or error")
    _expect(fields["cause"] is None or _EVENT_ID(fields["cause"]), "cause", "an entry id or null")
    _expect(fields["state"] is None or is_digest(fields["state"]), "state", "a digest or null")
    _expect(fields["policy"] is None or is_digest(fields["policy"]), "policy", "a digest or null")
    _check_actor(fields["actor"])
    _check_resource(fields["resource"], action, kind)
    _check_data(fields["data"], action, kind)
    _check_sealed(fields["sealed"])
    if action == EventKind.GATE_DECIDED:
        _check_gate(cast("Mapping[str, object]", fields["data"]), str(fields["resource"]))


def _check_actor(actor: object) -> None:
    _expect(
        isinstance(actor, dict) and actor.keys() == {"kind", "ref", "auth"}, "actor", "3 members"
    )
    actor = cast("Mapping[str, object]", actor)
    _expect(_ACTOR_KIND(actor["kind"]), "actor.kind", "human, service or model")
    _expect(is_code(actor["ref"]), "actor.ref", "a pseudonym without blanks")
    _expect(is_code(actor["auth"]), "actor.auth", "a short code")


def _check_resource(resource: object, action: str, kind: Kind) -> None:
    match = RESOURCE.fullmatch(resource) if isinstance(resource, str) else None
    if match is None or match[1] not in kind.resources:
        allowed = ", ".join(sorted(kind.resources))
        raise EventError(f"entry: `resource` of `{action}` is not kind:id with a kind of {allowed}")
    is_id = _PREFIXED.get(match[1])
    _expect(is_id is None or is_id(match[2]), "resource", "an id with the prefix of its kind")


def _check_data(data: object, action: str, kind: Kind) -> None:
    if not isinstance(data, dict):
        raise EventError("entry: `data` is not an object")
    for name, check in kind.required.items():
        if name not in data:
            raise EventError(f"entry: `{action}` lacks the member `data.{name}`")
        if not check(data[name]):
            raise EventError(f"entry: `data.{name}` of `{action}` has a wrong type or form")
    if len(data) == len(kind.required):
        return
    for name in data.keys() - kind.required.keys():
        check_optional = kind.optional.get(name)
        if check_optional is None:
            raise EventError(f"entry: `{action}` has the unknown member {name!a} in `data`")
        if not check_optional(data[name]):
            raise EventError(f"entry: `data.{name}` of `{action}` has a wrong type or form")


def _check_gate(data: Mapping[str, object], resource: str) -> None:
    kind, identifier = resource_parts(resource)
    expected = "job" if data["stage"] == "train" else "deployment"
    _expect(kind == expected, "resource", f"a {expected} at this stage")
    named = {name: data[name] for name in ("job", "deployment") if name in data}
    _expect(named in ({}, {kind: identifier}), f"data.{kind}", "the resource's id")
    quorum = cast("list[dict[str, int]]", data["approvals"])
    asks = data["verdict"] != "require_approval" or quorum != []
    _expect(asks, "data.approvals", "at least one role when approval is required")
    people = sum(item["count"] for item in quorum)
    _expect(people <= MAX_APPROVERS, "data.approvals", f"at most {MAX_APPROVERS} people in all")


def _check_sealed(sealed: object) -> None:
    _expect(isinstance(sealed, dict) and len(sealed) <= MAX_ITEMS, "sealed", "an object")
    for name, commitment in cast("Mapping[object, object]", sealed).items():
        _expect(is_code(name) and _is_commitment(commitment), "sealed", "base64 of 32 bytes each")


def _is_commitment(value: object) -> bool:
    if not isinstance(value, str) or len(value) != 44:
        return False
    try:
        raw = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    return len(raw) == 32 and base64.b64encode(raw).decode() == value


def _expect(ok: object, member: str, expected: str) -> None:
    if not ok:
        raise EventError(f"entry: `{member}` is malformed: expected {expected}")
