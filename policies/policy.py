"""A policy `placet.policy/1`: the packs and rules that decide, as one digested document.

    {"format": "placet.policy/1",
     "packs": [{"id": "eu-baseline", "version": "1.0.0", "validity_minutes": 10080,
                "obligations": [{"family": "residency", "stages": ["train"], "data": "any"}]}],
     "rules": [ …rule documents without their tests, by id… ]}

An obligation names a family of rules of which at least one must have been asked, for these
stages and for data of this class (`any` or a class such as `special`). It is what makes an
empty policy, or one that lacks the pack for health data, deny instead of pass.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from audit.canonical import CanonicalError, Digest, canonical, digest, parse
from policies.lint import check_pack, check_rule
from policies.rule import Rule, RuleError

FORMAT = "placet.policy/1"
MAX_POLICY_BYTES = 8_388_608


@dataclass(frozen=True, slots=True)
class Obligation:
    """A family that must have been asked."""

    family: str
    stages: tuple[str, ...]
    data: str

    def holds(self, stage: str, data: Mapping[str, Any]) -> bool:
        """Say whether it binds: unknown data counts as data of every class."""
        return stage in self.stages and (self.data == "any" or data.get(self.data) is not False)


@dataclass(frozen=True, eq=False)
class Policy:
    """What decides; `digest` is of `to_bytes()`. Equal bytes are the same policy."""

    packs: tuple[Mapping[str, Any], ...]
    rules: tuple[Rule, ...]
    obligations: tuple[Obligation, ...] = field(init=False)
    validity_minutes: int = field(init=False)
    edges: tuple[str, ...] = field(init=False)
    """Instants at which a rule starts or stops being in force."""
    digest: Digest = field(init=False)
    _bytes: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        ids = [rule.id for rule in self.rules]
        if len(set(ids)) != len(ids):
            twice = next(i for i in sorted(ids) if ids.count(i) > 1)
            raise RuleError(f"rule `{twice}` is there twice: expected one file for each id")
        document = {
            "format": FORMAT,
            "packs": list(self.packs),
            "rules": [dict(rule.document) for rule in self.rules],
        }
        obligations = {
            Obligation(o["family"], tuple(o["stages"]), o["data"])
            for pack in self.packs
            for o in pack["obligations"]
        }
        encoded = canonical(document)
        for name, value in {
            "obligations": tuple(sorted(obligations, key=lambda o: (o.family, o.data, o.stages))),
            "validity_minutes": min((p["validity_minutes"] for p in self.packs), default=0),
            "edges": tuple(sorted({e for r in self.rules for e in (r.starts_at, r.ends_at) if e})),
            "digest": digest(encoded),
            "_bytes": encoded,
        }.items():
            object.__setattr__(self, name, value)

    def to_bytes(self) -> bytes:
        """Return the canonical JSON that `from_bytes` reads back."""
        return self._bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> "Policy":
        """Read a stored policy; the last few are kept, being immutable.

        Shape and keywords are checked again; paths are not, for the facts may have grown since.

        Raises:
            RuleError: not strict JSON, not `placet.policy/1`, or a rule does not lint.
        """
        return _read(data)

    def rule(self, rule_id: str) -> Rule | None:
        """Return a rule by id."""
        return next((rule for rule in self.rules if rule.id == rule_id), None)


@functools.lru_cache(maxsize=8)
def _read(data: bytes) -> Policy:
    try:
        document: Any = parse(data, max_bytes=MAX_POLICY_BYTES)
    except CanonicalError as cause:
        raise RuleError(f"policy: {cause}") from cause
    if not isinstance(document, dict) or set(document) != {"format", "packs", "rules"}:
        raise RuleError("policy: expected the members `format`, `packs`, `rules`")
    if document["format"] != FORMAT:
        raise RuleError(f"policy: expected format `{FORMAT}`")
    if not isinstance(document["packs"], list) or not isinstance(document["rules"], list):
        raise RuleError("policy: expected lists of packs and rules")
    for pack in document["packs"]:
        check_pack(pack, "policy")
    for rule in document["rules"]:
        check_rule({**rule, "tests": []} if isinstance(rule, dict) else rule, "policy")
    return Policy(tuple(document["packs"]), tuple(Rule(rule) for rule in document["rules"]))
