"""A rule `placet.rule/1`: two small JSON Schemas over the facts, with law, texts and tests.

    format: placet.rule/1
    id: scope.gpus
    version: "1.0.0"                   # any change of logic is a new version
    family: scope                      # what obligations ask for
    stages: [train]                    # train, deploy
    effective: {from: "2026-11-01T00:00:00Z", until: null}
    severity: high                     # critical, high, medium, low
    effect: deny                       # deny, require_approval, warn
    approvals: []                      # for require_approval: [{role: officer, count: 1}]
    waivable: false
    legal_basis: [{ref: "house policy", from: "2026-11-01", note: "…"}]
    title: {en: …, fr: …, de: …, es: …, pt: …, pl: …}
    applies_when: null                 # or a schema; null: whenever the stage and the date fit
    requires: {required: [compute], properties: {compute: {…}}}
    messages: {"": {en: "{/compute/gpus} GPUs …", …}}   # by failing pointer pattern, "" for any
    remediation: {en: …, …}
    tests: [{name: four, given: public, expect: pass}, …]

Tests belong to the source file and are left out of the stored policy. A schema uses only the
keywords in `lint.KEYWORDS`, so two engines and a reader agree on what it means.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from policies.pointers import Path

FORMAT = "placet.rule/1"
LANGUAGES = ("en", "fr", "de", "es", "pt", "pl")


class RuleError(ValueError):
    """A rule, pack or policy is refused; the message names the file or rule and the place."""


@dataclass(frozen=True, slots=True)
class Approval:
    """How many different people in a role must approve."""

    role: str
    count: int


@dataclass(frozen=True, eq=False)
class Rule:
    """One rule, parsed; `document` is its canonical content without tests."""

    document: Mapping[str, Any]
    id: str = field(init=False)
    version: str = field(init=False)
    family: str = field(init=False)
    effect: str = field(init=False)
    waivable: bool = field(init=False)
    stages: tuple[str, ...] = field(init=False)
    starts_at: str = field(init=False)
    ends_at: str | None = field(init=False)
    approvals: tuple[Approval, ...] = field(init=False)
    applies_when: Mapping[str, Any] | None = field(init=False)
    requires: Mapping[str, Any] = field(init=False)
    applies_needs: tuple[Path, ...] = field(init=False)
    requires_needs: tuple[Path, ...] = field(init=False)

    def __post_init__(self) -> None:
        document = self.document
        values = {
            name: document[name]
            for name in ("id", "version", "family", "effect", "waivable", "requires")
        }
        values["applies_when"] = document["applies_when"]
        values["stages"] = tuple(document["stages"])
        values["starts_at"] = document["effective"]["from"]
        values["ends_at"] = document["effective"]["until"]
        values["approvals"] = tuple(Approval(a["role"], a["count"]) for a in document["approvals"])
        values["applies_needs"] = needs(document["applies_when"] or {})
        values["requires_needs"] = needs(document["requires"])
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def is_in_force(self, stage: str, evaluated_at: str) -> bool:
        """Say whether the rule is asked at all: its stage fits and its half-open dates hold."""
        if stage not in self.stages or evaluated_at < self.starts_at:
            return False
        return self.ends_at is None or evaluated_at < self.ends_at


def needs(schema: Mapping[str, Any]) -> tuple[Path, ...]:
    """List every fact that a schema names, as paths with `*` for the elements of a list.

    All of them must be present and not null before the schema is asked, those in the branches
    of `anyOf` too; the list is sorted and holds no path that another one implies.
    """
    found: set[Path] = set()
    _collect(schema, (), found)
    longer = {path[:depth] for path in found for depth in range(len(path))}
    return tuple(sorted(found - longer))


def _collect(schema: Mapping[str, Any], path: Path, found: set[Path]) -> None:
    if path:
        found.add(path)
    for name in schema.get("required", ()):
        found.add((*path, name))
    for name, inner in schema.get("properties", {}).items():
        _collect(inner, (*path, name), found)
    for keyword in ("items", "contains"):
        if keyword in schema:
            _collect(schema[keyword], (*path, "*"), found)
    for keyword in ("allOf", "anyOf"):
        for inner in schema.get(keyword, ()):
            _collect(inner, path, found)
