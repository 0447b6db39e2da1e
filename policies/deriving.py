"""All derived facts of one job or deployment, each part remembered by the cells it looks at.

    derive(facts, reference, at) -> {"data": {"personal": false, …}, "compute": {"country": "FR",
      "in_eea": true, …}, "datasets": [{…}], "storage": [{…}], "budget": {…}, "gpai": {…}}

Each part is a function of some cells of the facts, of the day, and of what follows from the data's
classes. It is handed these cells and no others, so that nothing else can matter to its answer.
Budget, estimate and share of compute differ from job to job and are computed every time.
"""

import datetime as dt
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from audit.canonical import MAX_INT, CanonicalError, canonical
from policies.categories import data_classes
from policies.cells import Cells, part
from policies.derive import (
    budget,
    certificates,
    chain,
    compute,
    dataset,
    dora,
    gpai,
    job_end,
    licence,
    room,
)
from policies.duties import duties, purpose
from policies.estimate import estimate
from policies.facts import Checked, taken
from policies.memory import Memory, Written, quick
from policies.places import Facts, Setting, place
from policies.pointers import Path
from policies.reference import Reference

Part = tuple[Any, bytes]
"""A part of the derived facts, and its canonical bytes."""

_AT = ("provider", "service", "region")


def derive(facts: Mapping[str, Any], reference: Reference, at: dt.datetime) -> Facts:
    """Compute every derived fact that can be computed.

    `at` is the instant of evaluation in UTC; the result is a fresh JSON object.
    """
    found: Facts = json.loads(derived(taken(facts, ()), reference, at).encoded)
    return found


def derived(checked: Checked, reference: Reference, at: dt.datetime) -> Written:
    """Compute every derived fact, and write it: for reading only, since much of it is shared."""
    facts, on, keys = checked.facts, at.date(), _CELLS.keys(checked)
    data = _classes(reference, on).of(facts, keys)
    steps = _steps(reference, on, job_end(facts, at), _needs(data[0]))
    estimated = estimate(facts, reference)
    found = {
        "data": data,
        **steps.of(facts, keys, data),
        "budget": _written(budget(facts.get("cost") or {}) | room(facts, estimated)),
        "gpai": _written(gpai(facts, reference)),
        "estimate": _written(estimated),
    }
    known = [(name, *found[name]) for name in _IN_ORDER if found[name][0]]
    return Written(
        b"{%b}" % b",".join([_IN_ORDER[name] + body for name, _, body in known]),
        {name: value for name, value, _ in known},
        {name: body for name, _, body in known},
    )


def _written(value: Any) -> Part:
    """Write a part. A number that a record cannot hold was not computed: it is left out."""
    try:
        return value, quick(value) or canonical(value)
    except CanonicalError:
        small = _without_giants(value)
        return small, canonical(small)


def _without_giants(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_giants(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    return {
        name: _without_giants(value)
        for name, value in node.items()
        if not (isinstance(value, int) and abs(value) > MAX_INT)
    }


def _needs(data: Facts) -> tuple[bool, bool, bool]:
    """Say whether only verified rows count, whether HDS matters, whether SecNumCloud does."""
    return (
        data.get("restricted") is not False,
        data.get("french_health") is True,
        data.get("gov_sensitive") is True,
    )


def _of(member: str, *names: str, each: bool = False) -> Iterator[Path]:
    for name in names:
        yield (member, "*", name) if each else (member, name)


_TAGS = tuple(
    _of(
        "datasets",
        "categories_declared",
        "categories_detected",
        "data_subject_countries",
        each=True,
    )
)
_PLACES: tuple[Path, ...] = (
    ("stage",),
    *_of("compute", *_AT),
    *_of("deploy", *_AT),
    *_of("datasets", *_AT, each=True),
    *_of("storage", *_AT, each=True),
)
# The cells that each part looks at, those of the data's classes aside.
_LOOKED_AT: Mapping[str, tuple[Path, ...]] = {
    "data": _TAGS,
    "datasets": (
        *_TAGS,
        *_of("datasets", *_AT, "licence", "legal_basis", each=True),
        *_of("datasets", "art9_basis", "dpia_reference", each=True),
    ),
    "storage": tuple(_of("storage", *_AT, each=True)),
    "compute": tuple(_of("compute", *_AT, "image")),
    "serving": tuple(_of("deploy", *_AT)),
    "base_model": (("base_model", "licence"),),
    "chain": (*_PLACES, ("storage", "*", "role"), ("job", "uses")),
    "certificates": _PLACES,
    "dora": tuple(
        _of(
            "governance",
            "dora_critical_function",
            "dora_register_reference",
            "dora_exit_plan_reference",
            "dora_audit_rights_reference",
        )
    ),
    "purpose": (
        *_of("purpose", "prohibited_practices", "high_risk_areas"),
        *_of("governance", "eu_database_reference", "fria_reference"),
        ("governance", "art6_3_exception_reference"),
    ),
    "duties": (
        *_PLACES,
        *_of("governance", "record_of_processing_reference", "processor_contract_reference"),
    ),
}
_CELLS = Cells(cell for cells in _LOOKED_AT.values() for cell in cells)
_IN_ORDER = {
    name: canonical(name) + b":" for name in sorted({*_LOOKED_AT, "budget", "gpai", "estimate"})
}


class _Remembered:
    """A function of some cells of the facts, and of the data's classes, with what it answered."""

    def __init__(self, name: str, make: Callable[[Facts, Facts], Any]) -> None:
        self._cells = _LOOKED_AT[name]
        self._pick = _CELLS.picker(self._cells)
        self._make = make
        self._known = Memory[Part]()

    def of(self, facts: Facts, keys: Sequence[bytes], data: Part = ({}, b"")) -> Part:
        """Return what the function answers, written."""
        key = (data[1], *self._pick(keys))
        answer = self._known.get(key)
        if answer is None:
            answer = _written(self._make(part(facts, self._cells), data[0]))
            self._known.keep(key, answer)
        return answer


@functools.lru_cache(maxsize=64)
def _classes(reference: Reference, on: dt.date) -> _Remembered:
    return _Remembered("data", lambda facts, _: data_classes(facts, reference, on))


class _Steps:
    """The parts that hang on the day, the kind of data, and cells that many jobs share."""

    def __init__(self, setting: Setting) -> None:
        reference, on = setting.reference, setting.on

        def each(name: str, make: Callable[[Setting, Facts], Facts]) -> Any:
            return lambda facts, _: [make(setting, item) for item in facts.get(name) or ()]

        made = {
            "datasets": each("datasets", dataset),
            "storage": each("storage", place),
            "compute": lambda f, _: compute(setting, f.get("compute") or {}),
            "serving": lambda f, _: place(setting, f.get("deploy") or {}),
            "base_model": lambda f, _: licence(setting, (f.get("base_model") or {}).get("licence")),
            "chain": lambda f, _: chain(f),
            "dora": lambda f, data: dora(f.get("governance") or {}) if data.get("dora") else {},
            "purpose": lambda f, data: purpose(f, reference, on, data),
            "duties": lambda f, data: duties(f, data, third_party=chain(f).get("third_party")),
            "certificates": lambda f, data: (
                certificates(setting, f) if "french_health" in data else {}
            ),
        }
        self._all = [(name, _Remembered(name, make)) for name, make in made.items()]
        self._together = Memory[dict[str, Part]]()

    def of(self, facts: Facts, keys: Sequence[bytes], data: Part) -> Mapping[str, Part]:
        """Return every part; all together where all cells are known, else one by one."""
        key = (data[1], *keys)
        found = self._together.get(key)
        if found is None:
            found = {name: step.of(facts, keys, data) for name, step in self._all}
            self._together.keep(key, found)
        return found


@functools.lru_cache(maxsize=64)
def _steps(
    reference: Reference, on: dt.date, end: dt.date | None, needs: tuple[bool, bool, bool]
) -> _Steps:
    is_strict, needs_hds, needs_secnumcloud = needs
    return _Steps(
        Setting(
            reference=reference,
            on=on,
            job_end=end,
            is_strict=is_strict,
            needs_hds=needs_hds,
            needs_secnumcloud=needs_secnumcloud,
            eu=reference.members("eu", on),
            eea=reference.members("eea", on),
        )
    )
