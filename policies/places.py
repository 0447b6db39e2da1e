"""Where something is, and whose law reaches it: derived facts of one place.

A place is a triple (provider, service, region). Every function leaves out what it cannot
compute: an unlisted region has no country, so every rule about that country is unknown.
Look-ups are by exact id, never by prefix: `EU-WEST-LZ-ZRH` starts with "EU" and is Swiss.
"""

import datetime as dt
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from policies.reference import SITE_PROVIDER, Reference, Row

Facts = dict[str, Any]

# Best first: where several certificates name a service, the best one speaks for it.
_CERTIFICATE_ORDER = ("valid", "not_yet_valid", "expired", "outdated_framework", "unconfirmed")
# Weakest last.
_REACH = ("eea", "general", "conditional", "unstated", "none")


@dataclass(frozen=True, slots=True)
class Setting:
    """What the derivation of every place of one decision shares."""

    reference: Reference
    on: dt.date
    job_end: dt.date | None
    """None when the job's length is unknown."""
    is_strict: bool
    """Unverified rows count as unknown: restricted data, or data whose class is unknown."""
    needs_hds: bool
    needs_secnumcloud: bool
    eu: frozenset[str]
    eea: frozenset[str]

    def usable(self, row: Row | None) -> Row | None:
        """Return the row when it may be relied on, else None."""
        if row is None or (self.is_strict and row["confidence"] == "unverified"):
            return None
        return row


def place(setting: Setting, at: Mapping[str, Any]) -> Facts:
    """Derive the facts of the place that `at` names with provider, service and region."""
    found = _place(setting, at.get("provider"), at.get("service"), at.get("region"))
    return {name: dict(v) if isinstance(v, dict) else v for name, v in found.items()}


@functools.lru_cache(maxsize=2048)
def _place(
    setting: Setting, provider: str | None, service: str | None, region: str | None
) -> Facts:
    """Derive a place once: it depends on nothing but these, and jobs share places."""
    at = {"provider": provider, "service": service, "region": region}
    found = location(setting, at)
    exposure = us_exposure(setting, at)
    if exposure is not None:
        found["us_exposure"] = exposure
    found |= ownership(setting, at)
    if setting.needs_hds:
        found["hds"] = hds(setting, at)
    if setting.needs_secnumcloud:
        found["secnumcloud"] = secnumcloud(setting, at)
    return found


def location(setting: Setting, at: Mapping[str, Any]) -> Facts:
    """Derive country, EU and EEA membership and adequacy on the day; {} for an unlisted region."""
    key = (str(at.get("provider")), str(at.get("region")))
    row = setting.usable(setting.reference.regions.get(key))
    if row is None:
        return {}
    country = str(row["country"])
    if (
        not setting.eu or not setting.eea
    ):  # no list is in force on that day: membership is not known
        return {"country": country}
    in_eea = country in setting.eea
    adequacy = "eea" if in_eea else setting.reference.adequacy(country, setting.on)
    return {
        "country": country,
        "in_eu": country in setting.eu,
        "in_eea": in_eea,
        "adequacy": adequacy,
    }


def us_exposure(setting: Setting, at: Mapping[str, Any]) -> str | None:
    """Say how far US law reaches the provider, or None when its ownership is not known.

    `exposed`: seat or ultimate parent is there. `possible`: an establishment is there, or the
    establishments are not known, and nobody attests that it has no control over the data.
    `none_identified`: attested with evidence. Where the data lies does not matter.

    Source: 18 U.S.C. § 2713 (2018-03-23); Ontario Court of Justice, order confirmed 2025-09-25.
    """
    row = setting.usable(setting.reference.providers.get(str(at.get("provider"))))
    watched = setting.reference.thresholds.get("exposure_country")
    if row is None or watched is None or row["parent"] is None:
        return None
    country = watched["text"]
    if country in (row["seat"], row["parent"]):
        return "exposed"
    establishments = row["establishments"]
    is_clear = establishments is not None and country not in establishments
    return "none_identified" if is_clear and row["attested"] else "possible"


def ownership(setting: Setting, at: Mapping[str, Any]) -> Facts:
    """Derive whether seat and ultimate parent are in the EU, and how far other law reaches.

    `law_reach` is the weakest of all countries where the provider has its seat, its parent or an
    establishment: `eea`, `general` (adequate), `conditional`, `unstated` (establishments are not
    known) or `none` (no adequacy). A conditional decision is never a pass by itself.

    Source: SecNumCloud 3.2, 19.6; HDS requirements v2, 29 and 30; GDPR Art. 45.
    """
    row = setting.usable(setting.reference.providers.get(str(at.get("provider"))))
    if row is None or row["parent"] is None or not setting.eu or not setting.eea:
        return {}
    owners = {str(row["seat"]), str(row["parent"])}
    abroad = row["establishments"]
    reached = [_reach(setting, country) for country in owners | set(abroad or ())]
    if abroad is None:
        reached.append("unstated")
    return {"owner_in_eu": owners <= setting.eu, "law_reach": max(reached, key=_REACH.index)}


def _reach(setting: Setting, country: str) -> str:
    return "eea" if country in setting.eea else setting.reference.adequacy(country, setting.on)


def hds(setting: Setting, at: Mapping[str, Any]) -> Facts:
    """Derive the state of the HDS certificate for exactly this service and region.

    `days_short` is how many days before the job's end the certificate stops (0: it covers it),
    `days_left` how many it has left today, `missing_activities` how many of the service's
    required activities it does not cover.

    Source: CSP art. L.1111-8, R.1111-9; HDS requirements v2 (order of 2024-04-26).
    """
    if _is_own(setting, at, "hds_self_hosted"):
        return {"status": "exempt", "missing_activities": 0, "days_short": 0}
    status, row = certificate(setting, at, "hds")
    found: Facts = {} if status is None else {"status": status}
    if row is None:
        return found
    service = setting.usable(setting.reference.services.get((at["provider"], at["service"])))
    if service is not None:
        required = set(service["hds_activities"])
        found["missing_activities"] = len(required - set(row["activities"]))
    return found | _days(setting, row)


def secnumcloud(setting: Setting, at: Mapping[str, Any]) -> Facts:
    """Derive the state of the SecNumCloud qualification for exactly this service and region.

    Infrastructure that the State runs for itself is not a private provider's: `exempt`.

    Source: law 2024-449 (SREN) art. 31; SecNumCloud 3.2 (2022-03-08).
    """
    if _is_own(setting, at, "state_operated"):
        return {"status": "exempt", "days_short": 0}
    status, row = certificate(setting, at, "secnumcloud")
    found: Facts = {} if status is None else {"status": status}
    return found if row is None else found | _days(setting, row)


def _is_own(setting: Setting, at: Mapping[str, Any], declared: str) -> bool:
    """Say whether the place is the operator's own site, and declared to be what `declared` says."""
    site = setting.reference.site
    return at.get("provider") == SITE_PROVIDER and site is not None and bool(site.get(declared))


def certificate(
    setting: Setting, at: Mapping[str, Any], scheme: str
) -> tuple[str | None, Row | None]:
    """Find the certificate of a scheme that speaks for a place: (status, row).

    Status None: the place is not known; "none" without a row: no certificate names it.
    """
    if any(at.get(name) is None for name in ("provider", "service", "region")):
        return None, None
    graded = [
        (_certificate_status(setting, row), row)
        for row in setting.reference.rows("certificates")
        if row["scheme"] == scheme
        and (row["provider"], row["service"]) == (at["provider"], at["service"])
        and at["region"] in row["regions"]
    ]
    if not graded:
        return "none", None
    return min(graded, key=lambda pair: (_CERTIFICATE_ORDER.index(pair[0]), _later_first(pair[1])))


def _certificate_status(setting: Setting, row: Row) -> str:
    minimum = setting.reference.thresholds.get(f"{row['scheme']}_min_framework")
    is_dated = row["valid_from"] is not None and row["valid_until"] is not None
    if row["status"] != "attested" or setting.usable(row) is None or not is_dated:
        return "unconfirmed"
    if minimum is None or row["framework_version"] < minimum["value"]:
        return "outdated_framework"
    day = setting.on.isoformat()
    if day < row["valid_from"]:
        return "not_yet_valid"
    return "expired" if day > row["valid_until"] else "valid"


def _later_first(row: Row) -> int:
    until = row["valid_until"]
    return 0 if until is None else -dt.date.fromisoformat(until).toordinal()


def _days(setting: Setting, row: Row) -> Facts:
    if row["valid_until"] is None:
        return {}
    until = dt.date.fromisoformat(row["valid_until"])
    found: Facts = {"days_left": (until - setting.on).days}
    if setting.job_end is not None:
        days = (until - setting.job_end).days
        found["days_past_job_end"] = days
        found["days_short"] = max(0, -days)
    return found
