"""The closed vocabulary of the audit log: each kind of entry and what its `data` holds.

Values are checked by form: a digest, an id, a count, an instant, a short code. A short code has at
most 200 characters out of letters, digits and `._:/@+-`, so that free text cannot hide in one.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from audit.canonical import MAX_INT, is_digest

MAX_ITEMS = 64
MAX_APPROVERS = 100


class EventKind(StrEnum):
    """Everything that the log records; `KINDS` says what each one holds."""

    LOG_STARTED = "log.started"
    PRINCIPAL_CREATED = "principal.created"
    PRINCIPAL_CHANGED = "principal.changed"
    PRINCIPAL_DISABLED = "principal.disabled"
    TOKEN_ISSUED = "token.issued"  # noqa: S105 — the name of an event
    TOKEN_REVOKED = "token.revoked"  # noqa: S105 — the name of an event
    DATASET_REGISTERED = "dataset.registered"
    BASE_MODEL_REGISTERED = "base_model.registered"
    JOB_SUBMITTED = "job.submitted"
    GATE_DECIDED = "gate.decided"
    APPROVAL_GIVEN = "approval.given"
    APPROVAL_REFUSED = "approval.refused"
    APPROVAL_EXPIRED = "approval.expired"
    JOB_CANCELLED = "job.cancelled"
    WAIVER_REQUESTED = "waiver.requested"
    WAIVER_APPROVED = "waiver.approved"
    WAIVER_REFUSED = "waiver.refused"
    WAIVER_REVOKED = "waiver.revoked"
    RUN_DISPATCHING = "run.dispatching"
    RUN_STARTED = "run.started"
    RUN_OBSERVED = "run.observed"
    RUN_FINISHED = "run.finished"
    MODEL_VERSION_REGISTERED = "model_version.registered"
    DEPLOYMENT_REQUESTED = "deployment.requested"
    DEPLOYMENT_ACTIVATED = "deployment.activated"
    DEPLOYMENT_RETIRED = "deployment.retired"
    DEPLOYMENT_FAILED = "deployment.failed"
    CARD_ISSUED = "card.issued"
    TRANSPARENCY_ISSUED = "transparency.issued"
    EVIDENCE_EXPORTED = "evidence.exported"
    REFERENCE_RECORDED = "reference.recorded"
    POLICY_ACTIVATED = "policy.activated"
    POLICY_REJECTED = "policy.rejected"
    REQUEST_REFUSED = "request.refused"
    LOG_RECOVERED = "log.recovered"
    VALUE_DISCLOSED = "value.disclosed"
    ERASURE_EXECUTED = "erasure.executed"


Check = Callable[[object], bool]

_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}", re.ASCII)
_ROUTE = re.compile(r"(?:(?:DELETE|GET|PATCH|POST|PUT) )?/[A-Za-z0-9._~/{}:-]{0,199}", re.ASCII)
_VKEY = re.compile(r"[A-Za-z0-9._:/@-]{1,200}\+[0-9a-f]{8}\+[A-Za-z0-9+/]{4,1760}={0,2}", re.ASCII)
SECONDS = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", re.ASCII)
MILLISECONDS = re.compile(r"[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z", re.ASCII)
_ID = r"_[0-7][0-9a-hjkmnp-tv-z]{25}"
RESOURCE = re.compile(r"([a-z_]+):([A-Za-z0-9][A-Za-z0-9._:/+-]{0,199})(?:@[0-9]{1,15})?", re.ASCII)
RESOURCE_PREFIX = {
    "base_model": "bm",
    "dataset": "ds",
    "deployment": "dep",
    "export": "exp",
    "job": "job",
    "model_version": "mv",
    "policy": "pol",
    "principal": "prn",
    "reference": "ref",
    "run": "run",
    "token": "tok",
}


def _matches(pattern: re.Pattern[str]) -> Check:
    full = pattern.fullmatch
    return lambda value: isinstance(value, str) and full(value) is not None


def identifier(prefix: str) -> Check:
    """Return the check for an id with this prefix: `prefix_` and 26 base32 characters."""
    return _matches(re.compile(prefix + _ID, re.ASCII))


def one_of(*words: str) -> Check:
    """Return the check for a closed set of words."""
    allowed = frozenset(words)
    return lambda value: isinstance(value, str) and value in allowed


def _either(*checks: Check) -> Check:
    return lambda value: any(check(value) for check in checks)


def _list(item: Check) -> Check:
    return lambda value: (
        isinstance(value, list) and len(value) <= MAX_ITEMS and all(item(each) for each in value)
    )


def _null(value: object) -> bool:
    return value is None


def _count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_INT


def is_instant(value: object, pattern: re.Pattern[str]) -> bool:
    """Say whether `value` has the form of `pattern` and names a real date and time."""
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _instant(value: object) -> bool:
    return is_instant(value, SECONDS)


def _quorum(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"role", "count"}
        and is_code(value["role"])
        and _count(value["count"])
        and 1 <= value["count"] <= MAX_APPROVERS
    )


def _shadow(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"policy", "record", "verdict"}
        and _digest(value["policy"])
        and _digest(value["record"])
        and _verdict(value["verdict"])
    )


is_code = _matches(_CODE)
_verdict = one_of("allow", "allow_with_warnings", "require_approval", "deny")
_digest: Check = is_digest
_codes = _list(is_code)
_dataset = _either(_digest, identifier("ds"))
_base_model = _either(_digest, identifier("bm"))


@dataclass(frozen=True)
class Kind:
    """What one kind of entry holds: the resources it is about, and the members of `data`."""

    resources: frozenset[str]
    required: Mapping[str, Check]
    optional: Mapping[str, Check] = field(default_factory=dict)


def _kind(resources: str, optional: Mapping[str, Check] | None = None, **required: Check) -> Kind:
    return Kind(frozenset(resources.split()), required, optional or {})


KINDS: Mapping[EventKind, Kind] = {
    EventKind.LOG_STARTED: _kind("log", vkey=_matches(_VKEY)),
    EventKind.PRINCIPAL_CREATED: _kind("principal", roles=_codes, teams=_codes),
    EventKind.PRINCIPAL_CHANGED: _kind("principal", roles=_codes, teams=_codes),
    EventKind.PRINCIPAL_DISABLED: _kind("principal"),
    EventKind.TOKEN_ISSUED: _kind("token principal", token=identifier("tok"), expires_at=_instant),
    EventKind.TOKEN_REVOKED: _kind("token principal", token=identifier("tok")),
    EventKind.DATASET_REGISTERED: _kind(
        "dataset",
        manifest=_digest,
        categories_declared=_codes,
        categories_detected=_codes,
        country=_either(_null, _matches(re.compile(r"[A-Z]{2}", re.ASCII))),
        num_objects=_count,
        size_bytes=_count,
    ),
    EventKind.BASE_MODEL_REGISTERED: _kind("base_model", files=_digest, licence=is_code),
    EventKind.JOB_SUBMITTED: _kind(
        "job",
        document=_digest,
        spec=_digest,
        dataset=_dataset,
        base_model=_base_model,
        team=is_code,
    ),
    EventKind.GATE_DECIDED: _kind(
        "job deployment",
        optional={"job": identifier("job"), "deployment": identifier("dep"), "shadow": _shadow},
        stage=one_of("train", "deploy"),
        record=_digest,
        facts=_digest,
        policy=_digest,
        reference=_digest,
        verdict=_verdict,
        approvals=_list(_quorum),
    ),
    EventKind.APPROVAL_GIVEN: _kind("job deployment", record=_digest, role=is_code),
    EventKind.APPROVAL_REFUSED: _kind("job deployment", record=_digest, role=is_code),
    EventKind.APPROVAL_EXPIRED: _kind("job deployment", record=_digest),
    EventKind.JOB_CANCELLED: _kind("job"),
    EventKind.WAIVER_REQUESTED: _kind(
        "job deployment",
        waiver=identifier("wvr"),
        digest=_digest,
        rule=is_code,
        rule_version=is_code,
        category=one_of("waiver", "mitigated"),
        not_before=_instant,
        expires_at=_instant,
    ),
    EventKind.WAIVER_APPROVED: _kind("job deployment", waiver=identifier("wvr"), role=is_code),
    EventKind.WAIVER_REFUSED: _kind("job deployment", waiver=identifier("wvr"), role=is_code),
    EventKind.WAIVER_REVOKED: _kind("job deployment", waiver=identifier("wvr")),
    EventKind.RUN_DISPATCHING: _kind(
        "job",
        run=identifier("run"),
        permit=identifier("prm"),
        permit_digest=_digest,
        document=_digest,
        spec=_digest,
        dataset=_dataset,
        base_model=_base_model,
        record=_digest,
        engine=is_code,
    ),
    EventKind.RUN_STARTED: _kind("job run", run=identifier("run")),
    EventKind.RUN_OBSERVED: _kind("job run", run=identifier("run"), state=is_code),
    EventKind.RUN_FINISHED: _kind(
        "job run",
        run=identifier("run"),
        outcome=one_of("succeeded", "failed", "cancelled", "refused"),
        report=_either(_null, _digest),
        artefacts=_either(_null, _digest),
    ),
    EventKind.MODEL_VERSION_REGISTERED: _kind(
        "model_version",
        job=identifier("job"),
        run=identifier("run"),
        artefacts=_digest,
        mlflow_run=_either(_null, is_code),
        mlflow_version=_either(_null, _count, is_code),
    ),
    EventKind.DEPLOYMENT_REQUESTED: _kind(
        "deployment", model_version=identifier("mv"), document=_digest
    ),
    EventKind.DEPLOYMENT_ACTIVATED: _kind(
        "deployment",
        model_version=identifier("mv"),
        artefacts=_digest,
        record=_digest,
        card=_digest,
        transparency=_digest,
    ),
    EventKind.DEPLOYMENT_RETIRED: _kind("deployment"),
    EventKind.DEPLOYMENT_FAILED: _kind("deployment", reason_code=is_code),
    EventKind.CARD_ISSUED: _kind(
        "deployment card",
        card=_digest,
        deployment=identifier("dep"),
        measured=_count,
        declared=_count,
        missing=_count,
    ),
    EventKind.TRANSPARENCY_ISSUED: _kind(
        "deployment transparency",
        transparency=_digest,
        deployment=identifier("dep"),
        measured=_count,
        declared=_count,
        missing=_count,
    ),
    EventKind.EVIDENCE_EXPORTED: _kind(
        "export log",
        optional={"shown": _count, "selection": _digest},
        first=_count,
        last=_count,
        checkpoint_size=_count,
        recipient_kind=is_code,
    ),
    EventKind.REFERENCE_RECORDED: _kind(
        "reference",
        table=is_code,
        key=is_code,
        row=_either(_null, _digest),
        document=_either(_null, _digest),
        reference=_digest,
    ),
    EventKind.POLICY_ACTIVATED: _kind(
        "policy",
        optional={"rollback_of": _count},
        policy=_digest,
        bundle=_either(_null, _digest),
        number=_count,
        mode=one_of("enforce", "shadow"),
        signers=_codes,
    ),
    EventKind.POLICY_REJECTED: _kind("policy", bundle=_digest, reason_code=is_code, still=_digest),
    EventKind.REQUEST_REFUSED: _kind(
        " ".join((*RESOURCE_PREFIX, "log", "request", "route")),
        problem=is_code,
        route=_matches(_ROUTE),
    ),
    EventKind.LOG_RECOVERED: _kind("log", first=_count, last=_count),
    EventKind.VALUE_DISCLOSED: _kind(
        "principal", entry=identifier("evt"), field=is_code, recipient=is_code
    ),
    EventKind.ERASURE_EXECUTED: _kind("principal", ground=is_code, keys=_count, values=_count),
}
