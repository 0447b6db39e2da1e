"""Why a run did not start or was stopped: a closed list of reasons, one error, the exit codes."""

from enum import IntEnum, StrEnum


class Exit(IntEnum):
    """Exit codes of every command; 75 is EX_TEMPFAIL of sysexits.h: start it again to go on."""

    DONE = 0
    FAILED = 1
    REFUSED = 2
    INTERRUPTED = 75


class Reason(StrEnum):
    """What was refused. `permit_…` reasons are found before any data is opened."""

    PERMIT_MISSING = "permit_missing"
    PERMIT_MALFORMED = "permit_malformed"
    PERMIT_ALGORITHM = "permit_algorithm"
    PERMIT_TYPE = "permit_type"
    PERMIT_KEY = "permit_key"
    PERMIT_SIGNATURE = "permit_signature"
    PERMIT_CLAIMS = "permit_claims"
    PERMIT_AUDIENCE = "permit_audience"
    PERMIT_EXPIRED = "permit_expired"
    PERMIT_NOT_YET_VALID = "permit_not_yet_valid"
    PERMIT_RUN = "permit_run"
    PERMIT_SPEC = "permit_spec"
    PERMIT_DATASET = "permit_dataset"
    PERMIT_BASE_MODEL = "permit_base_model"
    PERMIT_OUTPUT = "permit_output"
    PERMIT_MINUTES = "permit_minutes"
    PERMIT_REUSED = "permit_reused"
    PERMIT_USED_UP = "permit_used_up"
    SPEC_MALFORMED = "spec_malformed"
    SPEC_CHANGED = "spec_changed"
    DATASET_UNREADABLE = "dataset_unreadable"
    DATASET_CHANGED = "dataset_changed"
    DATASET_ROW = "dataset_row"
    DATASET_OVERLONG = "dataset_overlong"
    DATASET_SPLIT = "dataset_split"
    DATASET_CONTAMINATED = "dataset_contaminated"
    BASE_MODEL_UNREADABLE = "base_model_unreadable"
    BASE_MODEL_CHANGED = "base_model_changed"
    TEMPLATE = "template"
    SELFTEST = "selftest"
    MERGE = "merge"


class RefusedError(ValueError):
    """Something must not happen; the message says expected, got, and what to do next."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
