"""What two policies have in common and what not, rule by rule. Pure.

A rule's *logic* is all that decides: its schemas, effect, stages, dates, approvals, family and
whether it can be waived. Logic that changed under the same version is a mistake: waivers name a
rule with its version, and people cite it. Words may change without a new version.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from policies.overlay import rows_of
from policies.policy import Policy
from policies.reference import Reference
from policies.rule import Rule

LOGIC = (
    "applies_when",
    "approvals",
    "effect",
    "effective",
    "family",
    "requires",
    "stages",
    "waivable",
)


@dataclass(frozen=True, slots=True)
class Change:
    """One difference.

    Attributes:
        what: `rule`, `pack`, `obligation` or a table of the reference data.
        name: the rule's id, the pack's id, the obligation in words, or the row's key.
        how: `added`, `removed` or `changed`.
        members: members that differ, sorted; empty unless changed.
        versions: the version before and after, where there is one.
        is_unversioned: logic changed, and the version did not.
    """

    what: str
    name: str
    how: str
    members: tuple[str, ...] = ()
    versions: tuple[str | None, str | None] = (None, None)
    is_unversioned: bool = False

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "what": self.what,
            "name": self.name,
            "how": self.how,
            "members": list(self.members),
            "before": self.versions[0],
            "after": self.versions[1],
            "unversioned": self.is_unversioned,
        }


def compare_policies(before: Policy, after: Policy) -> tuple[Change, ...]:
    """List what differs between two policies: packs, obligations, rules, each by name."""
    return (*_packs(before, after), *_obligations(before, after), *_rules(before, after))


def _packs(before: Policy, after: Policy) -> Iterator[Change]:
    old, new = ({str(p["id"]): p for p in policy.packs} for policy in (before, after))
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            how = "added" if name in new else "removed"
            pack = new.get(name) or old[name]
            version = str(pack["version"])
            versions = (None, version) if how == "added" else (version, None)
            yield Change("pack", name, how, (), versions)
        elif members := _members(old[name], new[name]):
            one, other = str(old[name]["version"]), str(new[name]["version"])
            is_unversioned = one == other and bool(set(members) - {"title"})
            yield Change("pack", name, "changed", members, (one, other), is_unversioned)


def _obligations(before: Policy, after: Policy) -> Iterator[Change]:
    old, new = (
        {f"{o.family} at {'+'.join(o.stages)} for {o.data} data" for o in policy.obligations}
        for policy in (before, after)
    )
    yield from (Change("obligation", name, "removed") for name in sorted(old - new))
    yield from (Change("obligation", name, "added") for name in sorted(new - old))


def _rules(before: Policy, after: Policy) -> Iterator[Change]:
    old, new = ({rule.id: rule for rule in policy.rules} for policy in (before, after))
    for name in sorted(old.keys() | new.keys()):
        one, other = old.get(name), new.get(name)
        versions = (one.version if one else None, other.version if other else None)
        if one is None or other is None:
            yield Change("rule", name, "added" if one is None else "removed", (), versions)
        elif members := _members(one.document, other.document):
            yield Change("rule", name, "changed", members, versions, _unversioned(one, other))


def _unversioned(one: Rule, other: Rule) -> bool:
    differs = any(one.document[name] != other.document[name] for name in LOGIC)
    return differs and one.version == other.version


def _members(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, ...]:
    names = one.keys() | other.keys()
    return tuple(sorted(name for name in names if one.get(name) != other.get(name)))


def compare_references(before: Reference, after: Reference) -> tuple[Change, ...]:
    """List rows of the reference data that differ, by table and key."""
    return tuple(_tables(before, after))


def _tables(before: Reference, after: Reference) -> Iterator[Change]:
    olds, news = (_by_table(reference) for reference in (before, after))
    for table in sorted(olds.keys() | news.keys()):
        old, new = olds.get(table, {}), news.get(table, {})
        for name in sorted(old.keys() | new.keys()):
            if name not in old or name not in new:
                yield Change(table, name, "added" if name in new else "removed")
            elif members := _members(old[name], new[name]):
                yield Change(table, name, "changed", members)


def _by_table(reference: Reference) -> dict[str, dict[str, Mapping[str, Any]]]:
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for table, key, row in rows_of(reference):
        found.setdefault(table, {})[key] = row
    return found
