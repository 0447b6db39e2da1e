"""The `train` command: permit first, then bytes, then work, then a report, whatever happens.

Nothing of the dataset or the base model is opened, and no heavy library is imported, before the
permit has been verified and marked as used.
"""

import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from trainer import permit
from trainer.contract import JobSpec, PermitClaims, digest
from trainer.events import EventLog, instant, utc_now
from trainer.evidence import build_report
from trainer.intake import open_base_model, read_dataset
from trainer.meter import EnergyReading
from trainer.progress import Progress
from trainer.refusal import Exit, Reason, RefusedError
from trainer.session import Session
from trainer.signals import DeadlineError, Stop, StopRequestedError
from trainer.store import store_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Arguments of `train`: local paths, the run's id, the output URI, and CPU threads."""

    spec: Path
    permit: Path
    issuer_key: Path
    run_id: str
    output: str
    scratch: Path
    threads: int


def train(request: Request) -> Exit:
    """Do one permitted run, or go on with it; return the exit code."""
    stop = Stop()
    stop.install()
    events = EventLog(request.scratch / "events.jsonl")
    try:
        session = _admit(request, events, stop)
    except RefusedError as refusal:
        return _refused(events, refusal)
    except OSError as cause:
        events.write("error", reason="store", message=str(cause))
        return _say(Exit.FAILED, f"failed: store: {cause}; nothing was read, start it again")
    return _work(session)


def _admit(request: Request, events: EventLog, stop: Stop) -> Session:
    try:
        token = request.permit.read_text(encoding="ascii")
        key_pem = request.issuer_key.read_bytes()
        spec_bytes = request.spec.read_bytes()
    except (OSError, UnicodeDecodeError) as cause:
        raise RefusedError(
            Reason.PERMIT_MISSING, f"cannot read permit, key or specification: {cause}; pass them"
        ) from cause
    claims: PermitClaims = permit.verify(
        token,
        key_pem,
        spec_bytes=spec_bytes,
        run_id=request.run_id,
        output=request.output,
        now_s=int(time.time()),
    )
    resumed = permit.claim(claims)
    spec = JobSpec.from_bytes(spec_bytes)
    stop.limit(spec.max_minutes * 60)
    return Session(
        claims=claims,
        spec=spec,
        spec_digest=digest(spec_bytes),
        scratch=request.scratch,
        threads=request.threads,
        events=events,
        stop=stop,
        progress=Progress(started_at=instant(utc_now())),
        started_s=time.monotonic(),
        energy=EnergyReading.take(),
        resumed=resumed,
    )


def _work(session: Session) -> Exit:
    spec, poll = session.spec, session.stop.poll
    try:
        session.manifest, rows = read_dataset(spec.dataset_manifest_uri, spec.dataset_digest, poll)
        base_dir = open_base_model(
            spec.base_model_uri, spec.base_model_digest, session.scratch, poll
        )
        from trainer.recipe import fine_tune  # noqa: PLC0415 — torch loads after the permit only

        fine_tune(session, rows, base_dir)
        return _finish(session, "succeeded", None, Exit.DONE)
    except StopRequestedError:
        try:
            _finish(session, "interrupted", "stop_requested", Exit.INTERRUPTED)
        except OSError as cause:
            return _say(Exit.INTERRUPTED, f"interrupted, and the log could not be stored: {cause}")
        return _say(Exit.INTERRUPTED, "interrupted: start it again with the same permit to go on")
    except RefusedError as refusal:
        _refused(session.events, refusal)
        return _finish(session, "refused", refusal.reason.value, Exit.REFUSED)
    except DeadlineError as cause:
        return _failed(session, "deadline", cause)
    except (RuntimeError, ValueError, ArithmeticError, OSError, MemoryError) as cause:
        return _failed(session, type(cause).__name__, cause)


def _finish(session: Session, status: str, reason: str | None, code: Exit) -> Exit:
    """Write the report; one under the output ends the permit, so an interrupted run has none."""
    body = build_report(session, status=status, reason=reason).to_bytes()
    (session.scratch / "report.json").write_bytes(body)
    after = session.metrics.get("eval_loss_after")
    session.events.write(
        "finish",
        status=status,
        step=session.progress.step,
        tokens=session.progress.tokens,
        loss=None if after is None else float(after),
        seconds=session.elapsed_ms() / 1000,
    )
    log = f"{session.output}/log/events.jsonl"
    store_for(log).put(log, session.events.read())
    if code is not Exit.INTERRUPTED:
        uri = f"{session.output}/report.json"
        store_for(uri).put_if_absent(uri, body)
    return code


def _failed(session: Session, reason: str, cause: BaseException) -> Exit:
    """Tell a failure in one line; the whole trace stays in the scratch directory."""
    (session.scratch / "traceback.txt").write_text(
        "".join(traceback.format_exception(cause)), encoding="utf-8"
    )
    message = " ".join(str(cause).split())[:300]
    session.events.write("error", reason=reason, message=message)
    try:
        _finish(session, "failed", reason, Exit.FAILED)
    except OSError as lost:
        message += f" (and the report could not be stored: {lost})"
    return _say(Exit.FAILED, f"failed: {reason}: {message}")


def _refused(events: EventLog, refusal: RefusedError) -> Exit:
    message = " ".join(str(refusal).split())
    events.write("refused", reason=refusal.reason.value, message=message)
    return _say(Exit.REFUSED, f"refused: {refusal.reason.value}: {message}")


def _say(code: Exit, line: str) -> Exit:
    sys.stderr.write(f"{line}\n")
    return code
