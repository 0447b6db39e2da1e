"""The run report, `placet.run-report/1`: what a run did, measured where it was done.

    {"format":"placet.run-report/1","status":"succeeded","reason":null,"run_id":"run_…",
     "permit_id":"prm_…","job_id":"job_…","spec_digest":"sha256:…",
     "started_at":"2026-11-30T10:00:00Z","finished_at":"2026-11-30T10:01:10Z","num_segments":1,
     "seed":17,"ledger":{"rows":360,"rows_train":324,"tokens_trained":36120,…},
     "metrics":{"eval_loss_before":"2.912000","eval_loss_after":"1.204000",…},
     "loss_curve":[[1,"3.010000"],[2,"2.870000"]],
     "flop":{"architecture":"29000000000000","executed":"17000000000000","hardware":null},
     "energy":{"kwh":null,"method":"unknown: this machine has no energy counter we can read"},
     "environment":{"python":"3.11.7","device":"cpu",…},
     "dataset":{"digest":"sha256:…","name":"help desk","licence":"Apache-2.0"},
     "base_model":{"digest":"sha256:…","architecture":"LlamaForCausalLM",…},
     "artefacts":{"adapter/adapter_model.safetensors":{"digest":"sha256:…","size_bytes":19555264}},
     "selftests":{"packing_leak":"pass","loss_mask":"pass"}}

Unknown is null or an absent metric, never zero. FLOP are decimal strings because they pass 2^53.
There are three FLOP figures, never one: `architecture` is 6 x parameters x trained tokens, the
convention of the Commission's guidelines on general-purpose models; `executed` is what the forward
and backward passes of a frozen base with adapters compute (`trainer.meter`); `hardware` is device
seconds x peak rate x utilisation, null where no utilisation can be read.
"""

from dataclasses import asdict, dataclass
from decimal import Decimal

from trainer.strict import ContractError, Digest, JsonValue, Reader, as_json, canonical, parse

REPORT_FORMAT = "placet.run-report/1"
STATUSES = ("succeeded", "interrupted", "failed", "refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Artefact:
    """One file under the output URI: the digest and size (bytes) of its bytes."""

    digest: Digest
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flop:
    """Floating-point operations, whole numbers, unit 1 FLOP; null where unknown."""

    architecture: Decimal
    executed: Decimal
    hardware: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Electrical energy over all segments in kWh, null where unknown, and how it was found."""

    kwh: Decimal | None
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What one run did, `placet.run-report/1`.

    Attributes:
        status: `succeeded`, `interrupted` (resumable), `failed` or `refused`.
        reason: A short code when it did not succeed, else null.
        run_id: The permit's `sub`.
        permit_id: The permit's `jti`.
        job_id: The permit's `job`.
        spec_digest: Digest of the specification's bytes.
        started_at: When the first segment started.
        finished_at: When this segment ended.
        num_segments: Times the process was started for this run, at least 1.
        seed: The specification's seed.
        ledger: Counts of rows, tokens, steps and checkpoints (`trainer.pack`).
        metrics: Decimal strings: losses in nats per supervised token, perplexities, seconds.
        loss_curve: (step, training loss in nats per supervised token before that update).
        flop: Three figures.
        energy: Energy, or why it is unknown.
        environment: Software and hardware, as text.
        dataset: Digest and description of the data.
        base_model: Digest and description of the base model.
        artefacts: Files under the output URI by relative path.
        selftests: `pass`, `fail` or `skipped: why`, by name.
    """

    status: str
    reason: str | None
    run_id: str
    permit_id: str
    job_id: str
    spec_digest: Digest
    started_at: str
    finished_at: str
    num_segments: int
    seed: int
    ledger: dict[str, int]
    metrics: dict[str, Decimal]
    loss_curve: tuple[tuple[int, Decimal], ...]
    flop: Flop
    energy: Energy
    environment: dict[str, str]
    dataset: dict[str, str]
    base_model: dict[str, str]
    artefacts: dict[str, Artefact]
    selftests: dict[str, str]

    @staticmethod
    def from_bytes(data: bytes) -> "RunReport":
        """Read a report.

        Raises:
            ContractError: when a member is missing, unknown or out of range.
        """
        r = Reader(parse(data, max_bytes=16_777_216), "report")
        r.constant("format", REPORT_FORMAT)
        report = RunReport(
            status=r.choice("status", STATUSES),
            reason=None if r.nothing("reason") else r.text("reason"),
            run_id=r.text("run_id", longest=100),
            permit_id=r.text("permit_id", longest=100),
            job_id=r.text("job_id", longest=100),
            spec_digest=r.digest("spec_digest"),
            started_at=r.instant("started_at"),
            finished_at=r.instant("finished_at"),
            num_segments=r.integer("num_segments", 1),
            seed=r.integer("seed", 0, 2**31 - 1),
            ledger=r.mapping("ledger", lambda m, key: m.integer(key, 0)),
            metrics=r.mapping("metrics", _metric),
            loss_curve=tuple(_point(item) for item in r.items("loss_curve", most=1_000_000)),
            flop=_read_flop(r.inner("flop")),
            energy=_read_energy(r.inner("energy")),
            environment=r.mapping("environment", _words),
            dataset=r.mapping("dataset", _words),
            base_model=r.mapping("base_model", _words),
            artefacts=r.mapping("artefacts", _read_artefact),
            selftests=r.mapping("selftests", _words),
        )
        r.close()
        return report

    def to_bytes(self) -> bytes:
        """Write the canonical bytes; `from_bytes` reads them back to an equal value."""
        members = asdict(self)
        members["format"] = REPORT_FORMAT
        members["metrics"] = {name: f"{value:f}" for name, value in self.metrics.items()}
        members["loss_curve"] = [[step, f"{loss:f}"] for step, loss in self.loss_curve]
        members["flop"] = {name: _decimal(value) for name, value in asdict(self.flop).items()}
        members["energy"] = {"kwh": _decimal(self.energy.kwh), "method": self.energy.method}
        return canonical(as_json(members))


def _decimal(value: Decimal | None) -> str | None:
    return None if value is None else f"{value:f}"


def _metric(r: Reader, name: str) -> Decimal:
    return r.decimal(name, "-1e29", "1e29")


def _words(r: Reader, name: str) -> str:
    return r.text(name, longest=500, shortest=0)


def _point(item: JsonValue) -> tuple[int, Decimal]:
    if not isinstance(item, list) or len(item) != 2:
        raise ContractError("expected points of `report.loss_curve` as [step, loss], got otherwise")
    r = Reader({"step": item[0], "loss": item[1]}, "report.loss_curve")
    return r.integer("step", 0), r.decimal("loss", "-1e29", "1e29")


def _read_flop(r: Reader) -> Flop:
    flop = Flop(
        architecture=r.decimal("architecture", "0", "1e30"),
        executed=r.decimal("executed", "0", "1e30"),
        hardware=None if r.nothing("hardware") else r.decimal("hardware", "0", "1e30"),
    )
    r.close()
    return flop


def _read_energy(r: Reader) -> Energy:
    energy = Energy(
        kwh=None if r.nothing("kwh") else r.decimal("kwh", "0.000000000001", "1e12"),
        method=r.text("method", longest=500),
    )
    r.close()
    return energy


def _read_artefact(r: Reader, name: str) -> Artefact:
    inner = r.inner(name)
    artefact = Artefact(digest=inner.digest("digest"), size_bytes=inner.integer("size_bytes", 0))
    inner.close()
    return artefact
