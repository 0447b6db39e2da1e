"""The life of a job and of a deployment, as tables: ``{(state, move): (next state, entry kind)}``.

A move that is not in the table is illegal; there is no other way to change a state. The database
repeats the list of states as a CHECK constraint. Every move names the entry that records it, so a
state without its entry cannot be written.

Only a new decision of the gate leads out of `denied`, and one is made there when a waiver of a
violated rule becomes active; what awaits approval is decided again when a waiver begins or ends.
"""

from enum import StrEnum
from typing import TypeVar

from audit.event import EventKind


class JobState(StrEnum):
    """Where a job stands. `cancelling` waits for the engine to confirm."""

    SUBMITTED = "submitted"
    DENIED = "denied"
    AWAITING_APPROVAL = "awaiting_approval"
    APPROVED = "approved"
    REFUSED = "refused"
    EXPIRED = "expired"
    DISPATCHING = "dispatching"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class JobMove(StrEnum):
    """What can happen to a job."""

    DENY = "deny"
    ASK = "ask"
    ALLOW = "allow"
    APPROVE = "approve"
    REFUSE = "refuse"
    EXPIRE = "expire"
    DISPATCH = "dispatch"
    START = "start"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"
    STOP = "stop"


class DeploymentState(StrEnum):
    """Where a deployment stands."""

    REQUESTED = "requested"
    DENIED = "denied"
    AWAITING_APPROVAL = "awaiting_approval"
    APPROVED = "approved"
    REFUSED = "refused"
    EXPIRED = "expired"
    ACTIVE = "active"
    FAILED = "failed"
    RETIRED = "retired"


class DeploymentMove(StrEnum):
    """What can happen to a deployment."""

    DENY = "deny"
    ASK = "ask"
    ALLOW = "allow"
    APPROVE = "approve"
    REFUSE = "refuse"
    EXPIRE = "expire"
    ACTIVATE = "activate"
    FAIL = "fail"
    RETIRE = "retire"


class IllegalMoveError(ValueError):
    """The move does not exist in this state."""


_J, _JM, _K = JobState, JobMove, EventKind
JOB: dict[tuple[JobState, JobMove], tuple[JobState, EventKind]] = {
    (_J.SUBMITTED, _JM.DENY): (_J.DENIED, _K.GATE_DECIDED),
    (_J.SUBMITTED, _JM.ASK): (_J.AWAITING_APPROVAL, _K.GATE_DECIDED),
    (_J.SUBMITTED, _JM.ALLOW): (_J.APPROVED, _K.GATE_DECIDED),
    (_J.DENIED, _JM.DENY): (_J.DENIED, _K.GATE_DECIDED),
    (_J.DENIED, _JM.ASK): (_J.AWAITING_APPROVAL, _K.GATE_DECIDED),
    (_J.DENIED, _JM.ALLOW): (_J.APPROVED, _K.GATE_DECIDED),
    (_J.AWAITING_APPROVAL, _JM.DENY): (_J.DENIED, _K.GATE_DECIDED),
    (_J.AWAITING_APPROVAL, _JM.ASK): (_J.AWAITING_APPROVAL, _K.GATE_DECIDED),
    (_J.AWAITING_APPROVAL, _JM.ALLOW): (_J.APPROVED, _K.GATE_DECIDED),
    (_J.AWAITING_APPROVAL, _JM.APPROVE): (_J.APPROVED, _K.APPROVAL_GIVEN),
    (_J.AWAITING_APPROVAL, _JM.REFUSE): (_J.REFUSED, _K.APPROVAL_REFUSED),
    (_J.AWAITING_APPROVAL, _JM.EXPIRE): (_J.EXPIRED, _K.APPROVAL_EXPIRED),
    (_J.AWAITING_APPROVAL, _JM.CANCEL): (_J.CANCELLED, _K.JOB_CANCELLED),
    (_J.APPROVED, _JM.DENY): (_J.DENIED, _K.GATE_DECIDED),
    (_J.APPROVED, _JM.ASK): (_J.AWAITING_APPROVAL, _K.GATE_DECIDED),
    (_J.APPROVED, _JM.ALLOW): (_J.APPROVED, _K.GATE_DECIDED),
    (_J.APPROVED, _JM.EXPIRE): (_J.EXPIRED, _K.APPROVAL_EXPIRED),
    (_J.APPROVED, _JM.DISPATCH): (_J.DISPATCHING, _K.RUN_DISPATCHING),
    (_J.APPROVED, _JM.CANCEL): (_J.CANCELLED, _K.JOB_CANCELLED),
    (_J.DISPATCHING, _JM.START): (_J.RUNNING, _K.RUN_STARTED),
    (_J.DISPATCHING, _JM.FAIL): (_J.FAILED, _K.RUN_FINISHED),
    (_J.DISPATCHING, _JM.CANCEL): (_J.CANCELLING, _K.JOB_CANCELLED),
    (_J.RUNNING, _JM.SUCCEED): (_J.SUCCEEDED, _K.RUN_FINISHED),
    (_J.RUNNING, _JM.FAIL): (_J.FAILED, _K.RUN_FINISHED),
    (_J.RUNNING, _JM.CANCEL): (_J.CANCELLING, _K.JOB_CANCELLED),
    (_J.CANCELLING, _JM.STOP): (_J.CANCELLED, _K.RUN_FINISHED),
    (_J.CANCELLING, _JM.SUCCEED): (_J.SUCCEEDED, _K.RUN_FINISHED),
    (_J.CANCELLING, _JM.FAIL): (_J.FAILED, _K.RUN_FINISHED),
}

_D, _DM = DeploymentState, DeploymentMove
DEPLOYMENT: dict[tuple[DeploymentState, DeploymentMove], tuple[DeploymentState, EventKind]] = {
    (_D.REQUESTED, _DM.DENY): (_D.DENIED, _K.GATE_DECIDED),
    (_D.REQUESTED, _DM.ASK): (_D.AWAITING_APPROVAL, _K.GATE_DECIDED),
    (_D.REQUESTED, _DM.ALLOW): (_D.APPROVED, _K.GATE_DECIDED),
    (_D.DENIED, _DM.DENY): (_D.DENIED, _K.GATE_DECIDED),
    (_D.DENIED, _DM.ASK): (_D.AWAITING_APPROVAL, _K.GATE_DECIDED),
    (_D.DENIED, _DM.ALLOW): (_D.APPROVED, _K.GATE_DECIDED),
    (_D.AWAITING_APPROVAL, _DM.DENY): (_D.DENIED, _K.GATE_DECIDED),
    (_D.AWAITING_APPROVAL, _DM.ASK): (_D.AWAITING_APPROVAL, _K.GATE_DECIDED),
    (_D.AWAITING_APPROVAL, _DM.ALLOW): (_D.APPROVED, _K.GATE_DECIDED),
    (_D.AWAITING_APPROVAL, _DM.APPROVE): (_D.APPROVED, _K.APPROVAL_GIVEN),
    (_D.AWAITING_APPROVAL, _DM.REFUSE): (_D.REFUSED, _K.APPROVAL_REFUSED),
    (_D.AWAITING_APPROVAL, _DM.EXPIRE): (_D.EXPIRED, _K.APPROVAL_EXPIRED),
    (_D.AWAITING_APPROVAL, _DM.RETIRE): (_D.RETIRED, _K.DEPLOYMENT_RETIRED),
    (_D.APPROVED, _DM.DENY): (_D.DENIED, _K.GATE_DECIDED),
    (_D.APPROVED, _DM.ASK): (_D.AWAITING_APPROVAL, _K.GATE_DECIDED),
    (_D.APPROVED, _DM.ALLOW): (_D.APPROVED, _K.GATE_DECIDED),
    (_D.APPROVED, _DM.EXPIRE): (_D.EXPIRED, _K.APPROVAL_EXPIRED),
    (_D.APPROVED, _DM.ACTIVATE): (_D.ACTIVE, _K.DEPLOYMENT_ACTIVATED),
    (_D.APPROVED, _DM.FAIL): (_D.FAILED, _K.DEPLOYMENT_FAILED),
    (_D.APPROVED, _DM.RETIRE): (_D.RETIRED, _K.DEPLOYMENT_RETIRED),
    (_D.ACTIVE, _DM.FAIL): (_D.FAILED, _K.DEPLOYMENT_FAILED),
    (_D.ACTIVE, _DM.RETIRE): (_D.RETIRED, _K.DEPLOYMENT_RETIRED),
}

_State = TypeVar("_State", bound=StrEnum)
_Move = TypeVar("_Move", bound=StrEnum)


def follow(
    table: dict[tuple[_State, _Move], tuple[_State, EventKind]], state: _State, move: _Move
) -> tuple[_State, EventKind]:
    """Look the move up in its table.

    Raises:
        IllegalMoveError: the table has no such move from this state; lists the legal ones.
    """
    try:
        return table[state, move]
    except KeyError:
        legal = sorted(m.value for s, m in table if s == state)
        raise IllegalMoveError(
            f"cannot `{move}` in state `{state}`; legal here: {', '.join(legal) or 'nothing'}"
        ) from None
