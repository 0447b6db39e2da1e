"""Rows of law that turn soon, and the work whose decisions rest on them.

A decision is made by the law of its day, and some rows say on which day that changes:

    adequacy       the Commission's decision on a country ends (GDPR Art. 45): places there, and
                   providers that are owned or established there
    country_sets   a country leaves a set such as `eea`: places there
    uses           a declared use becomes prohibited, or high-risk with duties (AI Act Art. 113)

One that a later row continues does not end for anybody. What ended is listed as long as something
decided before still rests on it; a use is listed only then, since most are nobody's.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from policies.reference import Reference, Row
from service.resting import Resting, Work

_SCOPES = ("none", "conditional", "general")
_DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Turning:
    """A row that ends or starts, and what rests on it.

    Attributes:
        table: of the row.
        key: country, set or code.
        change: `ends`, with `on` its last day, or `starts`, with `on` its first.
        on: that day, `YYYY-MM-DD`.
        days_left: until then; negative once it is past.
        resting: live work that was decided before and is concerned.
    """

    table: str
    key: str
    change: str
    on: str
    days_left: int
    resting: tuple[Resting, ...]

    def to_json(self) -> dict[str, Any]:
        """Render it."""
        return {
            "table": self.table,
            "key": self.key,
            "change": self.change,
            "on": self.on,
            "days_left": self.days_left,
            "resting": [one.to_json() for one in self.resting],
        }


def turning(
    work: Sequence[Work], reference: Reference, *, today: dt.date, within: int | None
) -> list[Turning]:
    """List rows that turn within some days, soonest first.

    Args:
        work: all that is live.
        reference: in force now.
        today: the day to count from.
        within: days from today, that day included; None is without end.
    """
    found = [
        *_adequacy(work, reference, today),
        *_country_sets(work, reference, today),
        *_uses(work, reference, today),
    ]
    kept = [one for one in found if within is None or one.days_left <= within]
    return sorted(kept, key=lambda one: (one.on, one.table, one.key))


def _adequacy(work: Sequence[Work], reference: Reference, today: dt.date) -> Iterator[Turning]:
    for row in reference.rows("adequacy"):
        country, last = str(row["country"]), _last_day(row)
        if last is None or _is_continued(reference, country, str(row["scope"]), last):
            continue
        concerned = [one for one in work if _reaches(one, reference, country)]
        yield from _ended("adequacy", country, last, today, concerned)


def _is_continued(reference: Reference, country: str, scope: str, last: dt.date) -> bool:
    """Say whether another row covers the country the day after, and no less widely."""
    then = reference.adequacy(country, last + _DAY)
    return _SCOPES.index(then) >= _SCOPES.index(scope)


def _reaches(work: Work, reference: Reference, country: str) -> bool:
    """Say whether a place lies in a country, or its law reaches the provider from there."""
    for at, known in work.places():
        if known.get("country") == country:
            return True
        owner = reference.providers.get(str(at.get("provider")))
        if owner is None or known.get("law_reach") in (None, "none"):
            continue
        if country in (owner["seat"], owner["parent"], *(owner["establishments"] or ())):
            return True
    return False


def _country_sets(work: Sequence[Work], reference: Reference, today: dt.date) -> Iterator[Turning]:
    for row in reference.rows("country_sets"):
        name, last = str(row["set"]), _last_day(row)
        if last is None:
            continue
        leaving = frozenset(row["members"]) - reference.members(name, last + _DAY)
        concerned = [
            one for one in work if any(known.get("country") in leaving for _, known in one.places())
        ]
        if leaving:
            yield from _ended("country_sets", name, last, today, concerned)


def _uses(work: Sequence[Work], reference: Reference, today: dt.date) -> Iterator[Turning]:
    for row in reference.rows("uses"):
        code, first = str(row["code"]), dt.date.fromisoformat(str(row["from"]))
        resting = _before([one for one in work if code in _declared(one)], first - _DAY)
        if resting:
            days = (first - today).days
            yield Turning("uses", code, "starts", first.isoformat(), days, resting)


def _declared(work: Work) -> frozenset[str]:
    """Return the codes of table `uses` that were declared."""
    given = (work.facts.get("purpose") if isinstance(work.facts, dict) else None) or {}
    members = ("prohibited_practices", "high_risk_areas")
    return frozenset(code for name in members for code in given.get(name) or ())


def _last_day(row: Row) -> dt.date | None:
    return None if row["until"] is None else dt.date.fromisoformat(str(row["until"]))


def _ended(
    table: str, key: str, last: dt.date, today: dt.date, concerned: Sequence[Work]
) -> Iterator[Turning]:
    days, resting = (last - today).days, _before(concerned, last)
    if days >= 0 or resting:
        yield Turning(table, key, "ends", last.isoformat(), days, resting)


def _before(work: Sequence[Work], last: dt.date) -> tuple[Resting, ...]:
    """Return what was decided up to a day; what is decided later knows the new state."""
    day = last.isoformat()
    found = {one.resting for one in work if one.decided_on <= day}
    return tuple(sorted(found, key=lambda one: one.subject))
