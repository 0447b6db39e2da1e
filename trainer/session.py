"""One segment of one permitted run: what was allowed, what has been measured so far."""

import time
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from trainer.contract import DatasetManifest, Digest, JobSpec, PermitClaims
from trainer.events import EventLog
from trainer.meter import EnergyReading, Size
from trainer.progress import Progress
from trainer.report import Artefact
from trainer.signals import Stop


@dataclass(slots=True, kw_only=True)
class Session:
    """The state of a segment; `progress` is what outlives it.

    Attributes:
        claims: The verified permit.
        spec: The permitted specification.
        spec_digest: Digest of its bytes.
        scratch: Local directory for this run only.
        threads: CPU threads.
        events: Where progress is told.
        stop: Flag and deadline that every loop polls.
        progress: Counters of all segments.
        started_s: Monotonic clock at the start of this segment.
        energy: Energy counters at the start of this segment.
        resumed: Whether the permit was used before.
        manifest: The dataset, once it was verified.
        size: The model's parameters, once it was loaded.
        device: `cpu` or `cuda`, once it was chosen.
        ledger: Counts, once the data is prepared.
        metrics: Numbers by name.
        base_model: Words about the base model.
        selftests: Outcomes by name.
        artefacts: What was written under the output.
    """

    claims: PermitClaims
    spec: JobSpec
    spec_digest: Digest
    scratch: Path
    threads: int
    events: EventLog
    stop: Stop
    progress: Progress
    started_s: float
    energy: EnergyReading
    resumed: bool
    manifest: DatasetManifest | None = None
    size: Size | None = None
    device: str = "unknown"
    ledger: dict[str, int] = field(default_factory=dict)
    metrics: dict[str, Decimal] = field(default_factory=dict)
    base_model: dict[str, str] = field(default_factory=dict)
    selftests: dict[str, str] = field(default_factory=dict)
    artefacts: dict[str, Artefact] = field(default_factory=dict)

    @property
    def output(self) -> str:
        """The URI under which the run may write."""
        return self.claims.output

    def elapsed_ms(self) -> int:
        """Return the run's time over all segments, in milliseconds."""
        return self.progress.elapsed_ms + round((time.monotonic() - self.started_s) * 1000)

    def joules(self) -> Decimal | None:
        """Return the run's energy over all segments, None when a part of it is unknown."""
        before = self.progress.joules
        now = self.energy.joules_until(EnergyReading.take())
        return None if before is None or now is None or self.device == "cuda" else before + now

    def snapshot(self) -> Progress:
        """Return the counters as a checkpoint stores them."""
        p = self.progress
        return Progress(
            started_at=p.started_at,
            num_segments=p.num_segments,
            step=p.step,
            cursor=p.cursor,
            tokens=p.tokens,
            targets=p.targets,
            tokens_evaluated=p.tokens_evaluated,
            elapsed_ms=self.elapsed_ms(),
            joules=self.joules(),
            eval_loss_before=p.eval_loss_before,
            loss_curve=list(p.loss_curve),
        )

    def resume(self, progress: Progress) -> None:
        """Take over the counters of a checkpoint; this is one more segment."""
        self.progress = progress
        self.progress.num_segments += 1
        self.stop.limit(self.spec.max_minutes * 60 - progress.elapsed_ms / 1000)
