"""Certificates that end soon, and what rests on them: work that would be without one.

A job or a deployment rests on a certificate when the record of its latest decision holds facts of
that scheme for a place (compute, endpoint, data, storage) that the certificate names. One that a
later certificate covers as well does not end for anybody.
"""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from sqlmodel import Session

from policies.reference import Reference, Row
from service.dated_rows import turning
from service.resting import Resting, Work, live

log = structlog.get_logger(__name__)
THRESHOLD = "certificate_warning_days"
_Place = tuple[str, str, str, str]


@dataclass(frozen=True)
class Expiring:
    """A certificate that ends, and what rests on it; `days_left` is negative once it ended."""

    scheme: str
    provider: str
    service: str
    regions: tuple[str, ...]
    valid_until: str
    days_left: int
    resting: tuple[Resting, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Render it."""
        return {
            "scheme": self.scheme,
            "provider": self.provider,
            "service": self.service,
            "regions": list(self.regions),
            "valid_until": self.valid_until,
            "days_left": self.days_left,
            "resting": [one.to_json() for one in self.resting],
        }


def warning_days(reference: Reference) -> int | None:
    """Return how many days before its end a certificate is warned of; None when no row says."""
    row = reference.thresholds.get(THRESHOLD)
    return None if row is None or not isinstance(row.get("value"), int) else int(row["value"])


def expiring(
    work: Sequence[Work], reference: Reference, *, today: dt.date, within: int | None
) -> list[Expiring]:
    """List the certificates that end within some days, soonest first.

    Ended ones are listed as long as something rests on them.

    Args:
        work: all that is live.
        reference: in force now.
        today: the day to count from.
        within: days from today, that day included; None is without end.
    """
    ending = [row for row in reference.rows("certificates") if _ends(row, today, within)]
    needed = _needed(work) if ending else {}
    found = []
    for row in ending:
        regions = tuple(r for r in row["regions"] if not _is_renewed(reference, row, r))
        places = [(row["scheme"], row["provider"], row["service"], region) for region in regions]
        resting = sorted(
            {one for place in places for one in needed.get(place, ())}, key=lambda o: o.subject
        )
        days = (dt.date.fromisoformat(row["valid_until"]) - today).days
        if regions and (days >= 0 or resting):
            found.append(
                Expiring(
                    scheme=row["scheme"],
                    provider=row["provider"],
                    service=row["service"],
                    regions=regions,
                    valid_until=row["valid_until"],
                    days_left=days,
                    resting=tuple(resting),
                )
            )
    return sorted(found, key=lambda one: (one.valid_until, one.provider, one.service))


def _ends(row: Row, today: dt.date, within: int | None) -> bool:
    if row["valid_until"] is None or row["status"] != "attested":
        return False
    last = dt.date.fromisoformat(row["valid_until"])
    return within is None or (last - today).days <= within


def _is_renewed(reference: Reference, row: Row, region: str) -> bool:
    """Say whether another attested certificate of the same scheme covers the place for longer."""
    names = ("scheme", "provider", "service")
    return any(
        other["status"] == "attested"
        and other["valid_until"] is not None
        and other["valid_until"] > row["valid_until"]
        and region in other["regions"]
        and all(other[name] == row[name] for name in names)
        for other in reference.rows("certificates")
    )


def _needed(work: Sequence[Work]) -> dict[_Place, list[Resting]]:
    """Say for each place which live work needs a certificate of which scheme there."""
    found: dict[_Place, list[Resting]] = {}
    for one in work:
        for place in set(_places(one)):
            found.setdefault(place, []).append(one.resting)
    return found


def _places(work: Work) -> Iterator[_Place]:
    """Yield (scheme, provider, service, region) of each place with facts of a certificate."""
    for at, known in work.places():
        provider, service, region = (at.get(n) for n in ("provider", "service", "region"))
        for scheme, state in known.items():
            needs_one = isinstance(state, Mapping) and state.get("status") != "exempt"
            if needs_one and provider and service and region:
                yield scheme, provider, service, region


class DailyWarning:
    """Warns in the operator's log once a day; the first time when it is first asked."""

    def __init__(self) -> None:
        self._last: dt.date | None = None

    def say(self, session: Session, reference: Reference, *, today: dt.date) -> None:
        """Log each certificate and each row of law that turns soon, unless that was done today."""
        if self._last == today:
            return
        work, within = tuple(live(session)), warning_days(reference)
        for row in turning(work, reference, today=today, within=within):
            if row.resting:
                log.warning(
                    "reference.turning",
                    table=row.table,
                    key=row.key,
                    change=row.change,
                    on=row.on,
                    days_left=row.days_left,
                    resting=[each.subject for each in row.resting],
                )
        for one in expiring(work, reference, today=today, within=within):
            log.warning(
                "certificate.expiring",
                scheme=one.scheme,
                provider=one.provider,
                service=one.service,
                valid_until=one.valid_until,
                days_left=one.days_left,
                resting=[each.subject for each in one.resting],
            )
        self._last = today
