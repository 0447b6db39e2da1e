"""Duties that follow from what a team declares: intended use, high risk, processors.

Which use is prohibited or high-risk, and since when, is in the table `uses`: the same request is
judged by the law of its day. A reference that was not given is `missing`, never assumed; a duty
that cannot be decided, because data or an answer is unknown, is absent, so its rule is unknown.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from policies.places import Facts
from policies.reference import Reference, Row

_PROFILING = "pd.profiling"


def purpose(
    facts: Mapping[str, Any], reference: Reference, on: dt.date, data: Mapping[str, Any]
) -> Facts:
    """Derive what the law of the day says of the declared use.

    `prohibited` counts declared practices whose prohibition is in force, `prohibited_later` those
    whose prohibition starts on a later day. `high_risk` is `none`, `announced` (duties start
    later), `excepted` (Art. 6(3), Annex III only, never with profiling) or `in_force`.

    Source: AI Act Art. 5, 6, 27, 49, 113 as amended by Regulation (EU) 2026/1744.
    """
    declared = facts.get("purpose") or {}
    practices = _rows(declared.get("prohibited_practices"), reference)
    found: Facts = {}
    if practices is not None:
        found["prohibited"] = sum(_since(row, on) for row in practices)
        found["prohibited_later"] = len(practices) - found["prohibited"]
    areas = _rows(declared.get("high_risk_areas"), reference)
    if areas is None:
        return found
    binding = [row for row in areas if _since(row, on)]
    status = _status(areas, binding, facts, data)
    if status is None:
        return found
    references = facts.get("governance") or {}
    found["high_risk"] = status
    found["fria"] = _fria(status, binding, references)
    is_registered = any(row["is_registered"] for row in binding)
    is_due = status in ("excepted", "in_force") and is_registered
    found["registration"] = stated(references.get("eu_database_reference"), is_due=is_due)
    return found


def _rows(codes: Sequence[str] | None, reference: Reference) -> list[Row] | None:
    """Return the rows of declared codes; None when nothing is declared or one is not listed."""
    if codes is None or not all(code in reference.uses for code in codes):
        return None
    return [reference.uses[code] for code in codes]


def _since(row: Row, on: dt.date) -> bool:
    return str(row["from"]) <= on.isoformat()


def _status(
    areas: Sequence[Row],
    binding: Sequence[Row],
    facts: Mapping[str, Any],
    data: Mapping[str, Any],
) -> str | None:
    if not binding:
        return "announced" if areas else "none"
    is_annex_3 = all(row["kind"] == "annex3" for row in binding)
    claimed = (facts.get("governance") or {}).get("art6_3_exception_reference")
    if claimed is None or not is_annex_3:
        return "in_force"
    tags = data.get("categories")
    if tags is None:
        return None
    return "in_force" if _PROFILING in tags else "excepted"


def _fria(status: str, binding: Sequence[Row], references: Mapping[str, Any]) -> str:
    """Say whether an assessment under Art. 27 is there, or who must have one."""
    needed = {row["fria"] for row in binding} if status == "in_force" else set()
    if references.get("fria_reference") is not None and needed & {"always", "public_bodies"}:
        return "stated"
    if "always" in needed:
        return "missing"
    return "missing_if_public" if "public_bodies" in needed else "not_needed"


def stated(reference: str | None, *, is_due: bool) -> str:
    """Say of a reference whether it is `stated`, `missing` or `not_needed`."""
    if not is_due:
        return "not_needed"
    return "missing" if reference is None else "stated"


def duties(facts: Mapping[str, Any], data: Mapping[str, Any], *, third_party: bool | None) -> Facts:
    """Derive which papers of data protection must be referred to, and whether they are.

    Source: GDPR Art. 28(3), 30.
    """
    given = facts.get("governance") or {}
    found: Facts = {}
    personal = data.get("personal")
    if personal is not None:
        found["record_of_processing"] = stated(
            given.get("record_of_processing_reference"), is_due=personal
        )
    if personal is not None and third_party is not None:
        found["processor_contract"] = stated(
            given.get("processor_contract_reference"), is_due=personal and third_party
        )
    return found
