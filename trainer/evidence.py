"""Gather what a run did into its report."""

from decimal import Decimal

from trainer.environment import describe
from trainer.events import instant, utc_now
from trainer.meter import architecture_flop, cpu_seconds, executed_flop, peak_memory_bytes
from trainer.report import Energy, Flop, RunReport
from trainer.session import Session
from trainer.strict import decimal_text

JOULES_PER_KWH = 3_600_000


def build_report(session: Session, *, status: str, reason: str | None) -> RunReport:
    """Return the report of a run that ends now with `status`."""
    progress, claims = session.progress, session.claims
    seconds = Decimal(session.elapsed_ms()) / 1000
    metrics = session.metrics | {
        "seconds": Decimal(decimal_text(seconds, 3)),
        "cpu_seconds_segment": Decimal(decimal_text(cpu_seconds(), 3)),
        "peak_memory_bytes_segment": Decimal(peak_memory_bytes()),
    }
    return RunReport(
        status=status,
        reason=reason,
        run_id=claims.sub,
        permit_id=claims.jti,
        job_id=claims.job,
        spec_digest=session.spec_digest,
        started_at=progress.started_at,
        finished_at=instant(utc_now()),
        num_segments=progress.num_segments,
        seed=session.spec.seed,
        ledger=session.ledger
        | {
            "steps_done": progress.step,
            "tokens_trained": progress.tokens,
            "targets_trained": progress.targets,
            "tokens_evaluated": progress.tokens_evaluated,
        },
        metrics=metrics,
        loss_curve=tuple(progress.loss_curve),
        flop=_flop(session),
        energy=_energy(session),
        environment=describe(device=session.device, threads=session.threads),
        dataset=_dataset(session),
        base_model=session.base_model | {"digest": session.spec.base_model_digest},
        artefacts=session.artefacts,
        selftests=session.selftests,
    )


def _flop(session: Session) -> Flop:
    progress, size = session.progress, session.size
    if size is None:
        return Flop(architecture=Decimal(0), executed=Decimal(0), hardware=None)
    tokens_eval = session.ledger.get("tokens_eval", 0)
    evaluations = progress.tokens_evaluated // tokens_eval if tokens_eval else 0
    executed = executed_flop(
        size,
        tokens=progress.tokens,
        targets=progress.targets,
        tokens_evaluated=progress.tokens_evaluated,
        targets_evaluated=evaluations * session.ledger.get("targets_eval", 0),
    )
    return Flop(
        architecture=Decimal(architecture_flop(size, tokens=progress.tokens)),
        executed=Decimal(executed),
        hardware=None,
    )


def _energy(session: Session) -> Energy:
    joules = session.joules()
    kwh = None if joules is None else Decimal(decimal_text(joules / JOULES_PER_KWH, 9))
    if kwh is None or kwh == 0:
        known = session.device != "cuda" and session.energy.zones
        why = (
            "unknown: the counters moved too little, or could not be read in an earlier segment"
            if known
            else "unknown: no energy counter of a GPU is read"
            if session.device == "cuda"
            else session.energy.method
        )
        return Energy(kwh=None, method=why)
    return Energy(kwh=kwh, method=session.energy.method)


def _dataset(session: Session) -> dict[str, str]:
    words: dict[str, str] = {"digest": session.spec.dataset_digest}
    if session.manifest is not None:
        words |= {
            "name": session.manifest.name,
            "licence": session.manifest.licence,
            "num_objects": str(len(session.manifest.objects)),
        }
    return words
