"""The end of a run: read what it left, believe only what can be measured again, record it."""

from audit.canonical import canonical
from service import lifecycle
from service.engines.protocol import Observation, RunState
from service.lifecycle import JobMove, JobState
from service.objects.protocol import (
    ObjectMissingError,
    ObjectRefusedError,
)
from service.run_context import RunContext
from service.tables import Job, Run
from service.transaction import SYSTEM
from trainer.contract import ContractError, RunReport

ARTEFACTS_FORMAT = "placet.artefacts/1"


def finish(context: RunContext, run_id: str, observed: Observation) -> None:
    """Read what the run left, believe only what can be measured again, and record the end."""
    with context.transactions.read() as session:
        run = session.get_one(Run, run_id)
        job = session.get_one(Job, run.job_id)
    report_bytes, report, reason = _report(context, run, job)
    artefacts: bytes | None = None
    if report is not None and reason is None and observed.state is RunState.SUCCEEDED:
        artefacts, reason = _measured_artefacts(context, run, report)
    if observed.state is RunState.SUCCEEDED and reason is None:
        move, outcome = JobMove.SUCCEED, "succeeded"
    elif job.state == JobState.CANCELLING and observed.state in {
        RunState.CANCELLED,
        RunState.INTERRUPTED,
    }:
        move, outcome, reason = JobMove.STOP, "cancelled", None
    else:
        move, outcome = JobMove.FAIL, "failed"
        if observed.state is RunState.REFUSED:
            outcome = "refused"
        reason = _code(reason or observed.reason or observed.state.value)
    close(
        context,
        run_id,
        move,
        outcome,
        reason=reason,
        report=report_bytes,
        artefacts=artefacts if outcome == "succeeded" else None,
    )


def close(
    context: RunContext,
    run_id: str,
    move: JobMove,
    outcome: str,
    *,
    reason: str | None,
    report: bytes | None = None,
    artefacts: bytes | None = None,
) -> None:
    """Record the end of a run and of its job, once; a second call changes nothing."""
    with context.transactions.write() as tx:
        run = tx.session.get_one(Run, run_id)
        job = tx.session.get_one(Job, run.job_id, with_for_update=True)
        tx.session.refresh(run)  # it was read before the lock
        if run.outcome is not None:
            return
        state, kind = lifecycle.follow(lifecycle.JOB, JobState(job.state), move)
        job.state = state
        job.reason_code = reason
        run.state, run.outcome = outcome, outcome
        run.report_digest = None if report is None else tx.keep(report)
        run.artefacts_digest = None if artefacts is None else tx.keep(artefacts)
        tx.record(
            kind,
            job,
            also=[run],
            actor=SYSTEM,
            data={
                "run": run_id,
                "outcome": outcome,
                "report": run.report_digest,
                "artefacts": run.artefacts_digest,
            },
            outcome="ok" if outcome == "succeeded" else "error",
        )


def _report(
    context: RunContext, run: Run, job: Job
) -> tuple[bytes | None, RunReport | None, str | None]:
    """Fetch the run report and check that it speaks of this run; say why not in a code."""
    try:
        body = context.objects.get(f"{run.output_uri}/report.json")
    except ObjectMissingError:
        return None, None, "report_missing"
    try:
        report = RunReport.from_bytes(body)
    except ContractError:
        return None, None, "report_malformed"
    if (report.run_id, report.permit_id, report.spec_digest) != (
        run.id,
        run.permit_id,
        job.spec_digest,
    ):
        return None, None, "report_foreign"
    if report.status != "succeeded":
        return body, report, report.reason or f"report_{report.status}"
    return body, report, None


def _measured_artefacts(
    context: RunContext, run: Run, report: RunReport
) -> tuple[bytes | None, str | None]:
    """Hash every artefact again; the report's digests are claims until then."""
    files = {}
    for path, claimed in sorted(report.artefacts.items()):
        try:
            stored = context.objects.measure(f"{run.output_uri}/{path}")
        except ObjectMissingError:
            return None, "artefact_missing"
        except ObjectRefusedError:
            return None, "artefact_refused"
        if (stored.digest, stored.size_bytes) != (claimed.digest, claimed.size_bytes):
            return None, "artefact_differs"
        files[path] = {"digest": stored.digest, "size_bytes": stored.size_bytes}
    if not files:
        return None, "artefact_missing"
    return canonical({"format": ARTEFACTS_FORMAT, "run": run.id, "files": files}), None


def _code(text: str) -> str:
    """Reduce an engine's words to a short code: codes may enter documents, sentences may not."""
    return "".join(char if char.isalnum() else "_" for char in text.lower())[:60] or "unknown"
