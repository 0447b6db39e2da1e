"""Derived facts: what JSON Schema cannot say, computed by small pure functions.

Inputs are the raw facts (already checked by the contract), the reference data and the instant
of evaluation; no clock, no network, no environment. A fact that cannot be computed is absent,
never guessed, so that the rules which need it are unknown and the gate denies. Places are in
`policies.places`, classes of data in `policies.categories`, duties in `policies.duties`,
estimates in `policies.estimate`; `policies.deriving` puts all together.

`VERSION` names this derivation in every decision record; it changes when an output may change.
"""

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any

from policies.categories import by_severity, classes_of, closure, dataset_tags
from policies.places import Facts, Setting, hds, place, secnumcloud
from policies.reference import SITE_PROVIDER, Reference

VERSION = "placet.derive/2"

_PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._/:-]*@)?sha256:[0-9a-f]{64}\Z")


def job_end(facts: Mapping[str, Any], at: dt.datetime) -> dt.date | None:
    """Return the last day of the job if it starts now; of a deployment, the day itself."""
    if facts.get("stage") == "deploy":
        return at.date()
    minutes = (facts.get("job") or {}).get("max_minutes")
    return None if minutes is None else (at + dt.timedelta(minutes=minutes)).date()


def dataset(setting: Setting, item: Mapping[str, Any]) -> Facts:
    """Derive place, tag coverage, legal grounds and licence of one dataset."""
    reference = setting.reference
    found = place(setting, item)
    found |= licence(setting, item.get("licence"))
    declared, detected = item.get("categories_declared"), item.get("categories_detected")
    if declared is not None and detected is not None:
        covered, seen = closure(declared, reference), closure(detected, reference)
        if covered is not None and seen is not None:
            found |= by_severity(seen - covered, reference)
    tags = dataset_tags(item, reference)
    if tags is not None:
        classes = classes_of(tags, reference)
        for name, source, when in (
            ("legal_basis", "legal_basis", "personal"),
            ("art9_basis", "art9_basis", "special"),
            ("dpia", "dpia_reference", "special"),
        ):
            given = "missing" if item.get(source) is None else "stated"
            found[name] = given if when in classes else "not_needed"
    return found


def _places(facts: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
    """List every place that the facts name; None while a part of the chain is not stated."""
    single = facts.get("deploy" if facts.get("stage") == "deploy" else "compute")
    datasets, storage = facts.get("datasets"), facts.get("storage")
    if single is None or datasets is None or storage is None:
        return None
    return [single, *datasets, *storage]


def chain(facts: Mapping[str, Any]) -> Facts:
    """Derive whether every endpoint that the job uses has a place, and whether others run one.

    `missing_places` counts used roles without a row in `storage`; absent while the job does not
    say what it uses. `third_party` is true when any place is not the operator's own site, and
    `providers` counts the others; both absent while a place has no known provider.
    """
    found: Facts = {}
    uses, storage = (facts.get("job") or {}).get("uses"), facts.get("storage")
    if uses is not None and storage is not None:
        found["missing_places"] = len(set(uses) - {item.get("role") for item in storage})
    places = _places(facts)
    if places is None or any(place.get("provider") is None for place in places):
        return found
    others = {place["provider"] for place in places} - {SITE_PROVIDER}
    return found | {"providers": len(others), "third_party": bool(others)}


def certificates(setting: Setting, facts: Mapping[str, Any]) -> Facts:
    """Count the certificates that the decision rests on, and those that end soon.

    `relied` counts valid certificates over all places; `expiring` those with fewer days left than
    the threshold `certificate_warning_days`; `expiring_days` is what the first to end has left.
    Absent while a place, or what kind of data goes there, is not known.
    """
    threshold = setting.reference.thresholds.get("certificate_warning_days")
    places = _places(facts)
    if threshold is None or places is None:
        return {}
    asked = [
        scheme(setting, place)
        for scheme, is_needed in (
            (hds, setting.needs_hds),
            (secnumcloud, setting.needs_secnumcloud),
        )
        if is_needed
        for place in places
    ]
    if not all(asked):
        return {}
    valid = [found["days_left"] for found in asked if found["status"] == "valid"]
    soon = sum(days < threshold["value"] for days in valid)
    counted: Facts = {"relied": len(valid), "expiring": soon}
    return counted | {"expiring_days": min(valid)} if valid else counted


def dora(governance: Mapping[str, Any]) -> Facts:
    """Derive which of the papers that DORA asks of a financial entity are named.

    What only a critical or important function needs is absent while nobody said whether it is one.

    Source: Regulation (EU) 2022/2554 Art. 28(2), (3), (8), Art. 30(3).
    """
    critical = governance.get("dora_critical_function")
    found: Facts = {
        "register": _paper(governance, "dora_register_reference"),
        "critical_answered": critical is not None,
    }
    if critical is not None:
        found["critical"] = critical
        for name in ("exit_plan", "audit_rights"):
            paper = _paper(governance, f"dora_{name}_reference")
            found[name] = paper if critical else "not_needed"
    return found


def _paper(governance: Mapping[str, Any], reference: str) -> str:
    return "missing" if governance.get(reference) is None else "stated"


def compute(setting: Setting, item: Mapping[str, Any]) -> Facts:
    """Derive the place of the compute, whether it is rented, whether a digest names its image."""
    found = place(setting, item)
    if item.get("provider") is not None:
        found["rented"] = item["provider"] != SITE_PROVIDER
    image = item.get("image")
    if image is not None:
        found["image_pinned"] = _PINNED.match(image) is not None
    return found


def licence(setting: Setting, name: str | None) -> Facts:
    """Derive whether a licence allows, conditions or forbids fine-tuning; {} if unlisted."""
    row = None if name is None else setting.usable(setting.reference.licences.get(name))
    return {} if row is None else {"licence": row["fine_tuning"]}


def budget(cost: Mapping[str, Any]) -> Facts:
    """Derive what is left of the budget, in cents, and the share used, rounded up."""
    estimate, limit = cost.get("estimate_cents"), cost.get("budget_cents")
    if estimate is None or limit is None:
        return {}
    found: Facts = {"headroom_cents": limit - estimate}
    if limit > 0 or estimate == 0:
        found["used_permille"] = -(-estimate * 1000 // max(1, limit))
    return found


def room(facts: Mapping[str, Any], estimated: Mapping[str, Any]) -> Facts:
    """Derive what the gate's own estimate leaves of the budget and of the job's minutes."""
    found: Facts = {}
    limit = (facts.get("cost") or {}).get("budget_cents")
    minutes = (facts.get("job") or {}).get("max_minutes")
    if limit is not None and "cost_cents" in estimated:
        found["estimated_headroom_cents"] = limit - estimated["cost_cents"]
    if minutes is not None and "minutes" in estimated:
        found["estimated_headroom_minutes"] = minutes - estimated["minutes"]
    return found


def gpai(facts: Mapping[str, Any], reference: Reference) -> Facts:
    """Derive the training compute of this job as a share of the base model's, in permille.

    The estimate is raised by its accepted error margin and the share is rounded up, so 334 and
    more means "above one third, or possibly so". When the base model's compute is not known the
    indicative GPAI threshold stands in for it (`basis`: fallback).

    Source: Commission guidelines on GPAI obligations, C(2025) 7719, sections 2.1 and 3.2.
    """
    flop = (facts.get("training") or {}).get("flop_1e15")
    base = (facts.get("base_model") or {}).get("training_flop_1e15")
    margin = reference.thresholds.get("flop_error_margin_permille")
    fallback = reference.thresholds.get("gpai_indicative_flop_1e15")
    if flop is None or margin is None or fallback is None:
        return {}
    whole = fallback["value"] if base is None else max(1, base)  # 0 means "below 1e15"
    upper = flop * (1000 + margin["value"])
    return {
        "share_permille": -(-upper // whole),
        "basis": "fallback" if base is None else "declared",
    }
