"""One installation with people in it, and fakes at its edges: engine, MLflow, endpoint, merge.

The service is the real one: the real application, the real gate with the shipped rules, the real
database. Requests go through ASGI, without a socket.
"""

import asyncio
import functools
import json
import secrets
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from fakes import FakeEngine
from sqlalchemy import text
from sqlmodel import select

import service.installation
import service.own_packs
from audit.event import Event, from_bytes
from policies.load import PACKS, load_reference, read_packs
from service.app import create_app
from service.in_force import InForce
from service.installation import Installation, build
from service.log_tables import AuditEntry
from service.own_packs import Offer
from service.principals import Role, create_principal, issue_token
from service.schema import is_current, migrate
from service.serving import Endpoint, ServingObservation, ServingState
from service.settings import Settings
from service.tracking import TrackingError
from service.worker import Worker

HELPDESK = Path(service.__file__).parent / "demo" / "data" / "helpdesk.jsonl"
NAMES = {
    "ada": "Ada Quillfeather",
    "olaf": "Olaf Brandvold",
    "omar": "Omar Nightingale",
    "vera": "Vera Auditrix",
    "root": "Rita Rootkeeper",
    "eve": "Eve Elsewhere",
    "both": "Bo Bothroles",
}
_ROLES: dict[str, tuple[list[Role], list[str]]] = {
    "ada": ([Role.SUBMITTER], ["compliance"]),
    "olaf": ([Role.OFFICER], []),
    "omar": ([Role.OFFICER], []),
    "vera": ([Role.AUDITOR], []),
    "root": ([Role.ADMIN], []),
    "eve": ([Role.SUBMITTER], ["elsewhere"]),
    "both": ([Role.SUBMITTER, Role.OFFICER], ["compliance"]),
}
TABLES = (
    *("audit_entry", "principal", "token", "dataset_version", "base_model", "job", "decision"),
    *("approval", "waiver", "run", "model_version", "deployment", "export", "document"),
    *("policy_act", "reference_row"),
    *("idempotency_record", "sealed_value", "run_progress", "endpoint"),
)


class Clock:
    """A clock that stands still until a test advances it."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **duration: float) -> None:
        self.now += timedelta(**duration)


@dataclass
class FakeTracking:
    """MLflow as the service uses it, in memory."""

    is_away: bool = False
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    models: list[dict[str, Any]] = field(default_factory=list)

    def start_run(self, *, run_id: str, **what: Any) -> str:
        self._reach()
        self.runs.setdefault(f"ml-{run_id}", {"events": [], **what})
        return f"ml-{run_id}"

    def log_events(self, mlflow_run_id: str, events: list[Mapping[str, Any]]) -> int:
        self._reach()
        self.runs[mlflow_run_id]["events"] += events
        return len(events)

    def finish(self, mlflow_run_id: str, *, artefacts: Path, **what: Any) -> None:
        self._reach()
        names = sorted(str(path.relative_to(artefacts)) for path in artefacts.rglob("*.*"))
        self.runs[mlflow_run_id] |= {"artefacts": names, **what}

    def register_model(self, *, tags: Mapping[str, str], **what: Any) -> str:
        self._reach()
        for number, model in enumerate(self.models, 1):
            if model["tags"]["placet.model_version"] == tags["placet.model_version"]:
                return str(number)
        self.models.append({"tags": dict(tags), **what})
        return str(len(self.models))

    def _reach(self) -> None:
        if self.is_away:
            raise TrackingError("connection refused")


@dataclass
class FakeHost:
    """Endpoints in memory; `port` is where a test lets something answer."""

    port: int = 9
    state: ServingState = ServingState.READY
    started: list[tuple[str, Path, str]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)

    def start(self, deployment_id: str, model_dir: Path, name: str) -> Endpoint:
        self.started.append((deployment_id, model_dir, name))
        return Endpoint(f"fake:{deployment_id}", self.port, name)

    def observe(self, ref: str) -> ServingObservation:
        return ServingObservation(self.state)

    def stop(self, ref: str) -> None:
        self.stopped.append(ref)
        self.state = ServingState.STOPPED


@dataclass
class FakeMerge:
    """Writes an empty folder where merged weights would be."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    error: Exception | None = None

    def __call__(self, *, base: str, adapter: str, out: Path) -> None:
        self.calls.append({"base": base, "adapter": adapter, "out": out})
        if self.error is not None:
            raise self.error
        out.mkdir(parents=True)
        (out / "config.json").write_text("{}")


@dataclass
class Answer:
    """An answer, read."""

    status: int
    headers: httpx.Headers
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def problem(self) -> dict[str, Any]:
        """The problem object; asserts that it is one."""
        assert self.headers["content-type"] == "application/problem+json", self.content
        body = self.json
        assert body.keys() >= {"type", "title", "status", "detail", "instance"}
        assert body["status"] == self.status
        return body

    @property
    def slug(self) -> str:
        """The last part of the problem's type."""
        return str(self.problem["type"]).rpartition("/")[2]


@dataclass
class World:
    """An installation, its people and its fakes."""

    wired: Installation
    clock: Clock
    engine: FakeEngine
    tracking: FakeTracking
    host: FakeHost
    merge: FakeMerge
    folder: Path
    ids: dict[str, str]
    tokens: dict[str, str]
    token_ids: dict[str, str]

    def __post_init__(self) -> None:
        self.app = create_app(self.wired)
        self.worker = Worker(self.wired)

    # Requests

    def ask(
        self,
        method: str,
        path: str,
        who: str | None = "ada",
        body: Any = None,
        *,
        raw: bytes | None = None,
        key: str | None = "",
        seen: int | None = None,
        headers: Mapping[str, str] | None = None,
        app: Any = None,
    ) -> Answer:
        """Send one request; `key` "" makes a fresh Idempotency-Key, None sends none."""
        sent = {}
        if who is not None:
            sent["Authorization"] = f"Bearer {self.tokens[who]}"
        if key is not None:
            sent["Idempotency-Key"] = key or secrets.token_hex(8)
        if seen is not None:
            sent["If-Match"] = f'"{seen}"'
        content = raw if body is None else json.dumps(body).encode()
        if content is not None:
            sent["Content-Type"] = "application/json"
        return asyncio.run(
            _send(app or self.app, method, path, content, {**sent, **(headers or {})})
        )

    def get(self, path: str, who: str | None = "ada", **options: Any) -> Any:
        """GET a path that answers 200; return the JSON."""
        answer = self.ask("GET", path, who, **options)
        assert answer.status == 200, answer.content
        return answer.json

    def post(self, path: str, who: str = "ada", body: Any = None, **options: Any) -> Any:
        """POST what succeeds; return the JSON."""
        answer = self.ask("POST", path, who, body, **options)
        assert answer.status in {200, 201}, answer.content
        return answer.json

    # The main flow

    def register_dataset(self, who: str = "ada", **changes: Any) -> dict[str, Any]:
        return self.post("/v1/datasets", who, self.dataset_body(**changes))

    def dataset_body(self, **changes: Any) -> dict[str, Any]:
        return {
            "name": "helpdesk",
            "team": "compliance",
            "uri": (self.folder / "data" / "helpdesk.jsonl").as_uri(),
            "licence": "Apache-2.0",
            "categories": ["synthetic"],
            "data_subject_countries": [],
        } | changes

    def register_base_model(self, **changes: Any) -> dict[str, Any]:
        return self.post(
            "/v1/base-models",
            "ada",
            {
                "name": "tiny",
                "uri": (self.folder / "base").as_uri(),
                "licence": "Apache-2.0",
                "licence_allows_fine_tuning": True,
                "training_flop_1e15": 1_000_000,
            }
            | changes,
        )

    @functools.cached_property
    def dataset(self) -> dict[str, Any]:
        return self.register_dataset()

    @functools.cached_property
    def base_model(self) -> dict[str, Any]:
        return self.register_base_model()

    def job_body(self, **changes: Any) -> dict[str, Any]:
        body: dict[str, Any] = {
            "name": "helpdesk-lora",
            "team": "compliance",
            "dataset": self.dataset["id"],
            "base_model": self.base_model["id"],
            "purpose": {
                "use_codes": ["helpdesk.internal"],
                "prohibited_practices": [],
                "high_risk_areas": [],
            },
            "compute": {
                "provider": "own-site",
                "service": "local",
                "region": "site",
                "flavor": "cpu",
                "gpus": 0,
            },
            "training": {
                "method": "lora",
                "seed": 17,
                "epochs": 1,
                "max_tokens": 256,
                "tokens_per_step": 512,
                "overlong": "drop",
                "eval_permille": 100,
                "rank": 8,
                "alpha": 16,
                "learning_rate": "0.0005",
                "precision": "fp32",
                "checkpoint_every_steps": 10,
            },
            "budget_cents": 1000,
            "max_minutes": 60,
        }
        for name, value in changes.items():
            section, _, member = name.partition("__")
            if member:
                body[section] = {**body[section], member: value}
            else:
                body[section] = value
        return body

    def submit(self, who: str = "ada", **changes: Any) -> dict[str, Any]:
        return self.post("/v1/jobs", who, self.job_body(**changes))

    def approve(self, job: Mapping[str, Any], who: str = "olaf") -> dict[str, Any]:
        path = f"/v1/jobs/{job['id']}/approvals"
        return self.post(path, who, {"outcome": "given"}, seen=job["version"])

    def request_waiver(self, job: Mapping[str, Any], who: str = "ada", **changes: Any) -> Any:
        """Ask for a waiver of the rule that a budget of 0 violates."""
        body = {
            "rule": "budget.limit",
            "reason": "the grant arrives on Monday",
            "ticket": "GRC-1042",
            "expires_at": "2026-12-07T00:00:00Z",
        }
        return self.post(f"/v1/jobs/{job['id']}/waivers", who, body | changes)

    def approved_job(self, **changes: Any) -> dict[str, Any]:
        job = self.submit(**changes)
        for officer in ("olaf", "omar"):
            if job["state"] == "awaiting_approval":
                job = self.approve(job, officer)
        assert job["state"] == "approved", job
        return job

    def job(self, job_id: str, who: str = "ada") -> dict[str, Any]:
        return self.get(f"/v1/jobs/{job_id}", who)

    def running_job(self, **changes: Any) -> tuple[dict[str, Any], str]:
        """Return a job that runs, and the reference of its run in the fake engine."""
        job = self.approved_job(**changes)
        self.worker.work()
        job = self.job(job["id"])
        assert job["state"] == "running", job
        return job, f"fake:{job['runs'][0]['id']}"

    def write_report(self, job: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
        """Write what a trainer leaves behind: an adapter and the run report."""
        run = job["runs"][0]
        output = f"{self.wired.runs.outputs}/{run['id']}"
        artefacts = {}
        for name, body in (("adapter/weights.bin", b"w" * 100), ("adapter/config.json", b"{}")):
            stored = self.wired.objects.put(f"{output}/{name}", body)
            artefacts[name] = {"digest": stored.digest, "size_bytes": stored.size_bytes}
        report = {
            "format": "placet.run-report/1",
            "status": "succeeded",
            "reason": None,
            "run_id": run["id"],
            "permit_id": run["permit"],
            "job_id": job["id"],
            "spec_digest": job["spec_digest"],
            "started_at": "2026-11-30T12:00:01Z",
            "finished_at": "2026-11-30T12:00:09Z",
            "num_segments": 1,
            "seed": 17,
            "ledger": {"rows_eval": 36, "tokens_eval": 900, "tokens_trained": 9000},
            "metrics": {
                "eval_loss_before": "2.5",
                "eval_loss_after": "1.25",
                "perplexity_before": "12.18",
                "perplexity_after": "3.49",
            },
            "loss_curve": [[0, "2.5"], [1, "1.5"]],
            "flop": {"architecture": "1000", "executed": "900", "hardware": None},
            "energy": {"kwh": None, "method": "no meter"},
            "environment": {"python": "3.11", "torch": "2.13", "device": "cpu"},
            "dataset": {"digest": self.dataset["manifest_digest"]},
            "base_model": {"digest": self.base_model["files_digest"]},
            "artefacts": artefacts,
            "selftests": {"finite": "pass"},
        } | changes
        self.wired.objects.put(f"{output}/report.json", _canonical(report))
        return report

    def finished_job(self, **changes: Any) -> dict[str, Any]:
        """Return a job that succeeded and has a model version."""
        job, ref = self.running_job(**changes)
        event = {"seq": 1, "at": "2026-11-30T12:00:02.000Z", "kind": "step", "step": 1, "loss": 2.0}
        self.engine.write(ref, log=b"hello\n", events=json.dumps(event).encode() + b"\n")
        self.write_report(job)
        self.engine.end(ref, 0)
        self.worker.work()
        job = self.job(job["id"])
        assert job["state"] == "succeeded", job
        return job

    def deployment_body(self, model_version: str, **changes: Any) -> dict[str, Any]:
        notice = "You are talking to an AI system."
        return {
            "name": "helpdesk-live",
            "model_version": model_version,
            "compute": {
                "provider": "own-site",
                "service": "local",
                "region": "site",
                "flavor": "cpu",
                "gpus": 0,
            },
            "intended_use": "Answers staff questions about our own compliance handbook.",
            "limitations": "It does not know what happened after its training.",
            "serves_public": False,
            "provider": {"name": "Ward Ltd", "contact": "office@ward.example"},
            "deployer": {"name": "Ward Ltd", "contact": "office@ward.example"},
            "oversight": "An officer reads a sample of answers every week.",
            "oversight_contact": "office@ward.example",
            "notices": {"en": notice},
            "log_retention_months": 6,
            "languages": ["en"],
        } | changes

    def request_deployment(self, job: Mapping[str, Any] | None = None, **changes: Any) -> Any:
        job = job or self.finished_job()
        body = self.deployment_body(job["runs"][0]["model_version"], **changes)
        return self.post("/v1/deployments", "ada", body)

    def approve_deployment(self, deployment: Mapping[str, Any], who: str = "olaf") -> Any:
        path = f"/v1/deployments/{deployment['id']}/approvals"
        return self.post(path, who, {"outcome": "given"}, seen=deployment["version"])

    def active_deployment(self, **changes: Any) -> dict[str, Any]:
        deployment = self.request_deployment(**changes)
        for officer in ("olaf", "omar"):
            if deployment["state"] == "awaiting_approval":
                deployment = self.approve_deployment(deployment, officer)
        assert deployment["state"] == "approved", deployment
        self.worker.work()
        self.worker.work()
        deployment = self.get(f"/v1/deployments/{deployment['id']}")
        assert deployment["state"] == "active", deployment
        return deployment

    # Looking inside

    @property
    def in_force(self) -> InForce:
        """What decides now."""
        with self.wired.transactions.read() as session:
            return self.wired.gate.current(session)

    def restart(self, **shipped: Any) -> None:
        """Start again with another `policy` or `reference` that ships."""
        if "policy" in shipped:
            shipped["offer"] = Offer(shipped.pop("policy"))
        changed = replace(self.wired, shipped=replace(self.wired.shipped, **shipped))
        changed.start()

    def entries(self) -> list[Event]:
        """All entries in the order they were written."""
        with self.wired.transactions.read() as session:
            return [
                from_bytes(body)
                for body in session.exec(select(AuditEntry.body).order_by(AuditEntry.seq))
            ]

    def kinds(self) -> list[str]:
        return [str(entry.action) for entry in self.entries()]

    def counts(self) -> dict[str, int]:
        """Rows by table."""
        with self.wired.database.connect() as connection:
            return {
                table: connection.execute(text(f'SELECT count(*) FROM "{table}"')).scalar_one()
                for table in TABLES
            }

    def change(self, statement: str, **values: Any) -> None:
        """Change the database behind the service's back, in a transaction of its own."""
        with self.wired.database.begin() as connection:
            connection.execute(text(statement), values)

    def tamper(self, table: str, statement: str, **values: Any) -> None:
        """Change a guarded table as somebody with full rights on the database could."""
        with self.wired.database.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SET LOCAL session_replication_role = replica"))
                connection.execute(text(statement), values)
                return
            found = connection.execute(
                text("SELECT name, sql FROM sqlite_master WHERE type='trigger' AND tbl_name=:t"),
                {"t": table},
            ).all()
            for name, _ in found:
                connection.execute(text(f"DROP TRIGGER {name}"))
            connection.execute(text(statement), values)
            for _, source in found:
                connection.exec_driver_sql(source)


def open_world(
    folder: Path, database_url: str, *, clock: Clock | None = None, **settings: Any
) -> World:
    """Build a migrated installation in `folder`, and create its people."""
    clock = clock or Clock()
    _cache_packs()
    for name in ("data", "base"):
        (folder / name).mkdir()
    # Ten topics in six languages are enough here, and are read ten times as quickly.
    rows = HELPDESK.read_bytes().splitlines(keepends=True)[:60]
    (folder / "data" / "helpdesk.jsonl").write_bytes(b"".join(rows))
    write_base_model(folder / "base")
    wired = build(
        Settings(
            **{
                "data_dir": folder / "home",
                "database_url": database_url,
                "object_roots": (str(folder / "data"), str(folder / "base")),
                "site_country": "FR",
                "site_declared_on": "2026-11-30",
                "site_parent_country": "FR",
                "site_establishments": ("FR",),
                "site_price_cents_per_hour": 10,
            }
            | settings
        ),
        clock=clock,
    )
    _migrate(wired)
    engine, tracking, host, merge = FakeEngine(), FakeTracking(), FakeHost(), FakeMerge()
    wired = replace(
        wired,
        runs=replace(wired.runs, engines={"own-site": engine}, tracking=tracking),
        deployments=replace(wired.deployments, host=host, merge=merge),
    )
    wired.start()
    ids, tokens, token_ids = {}, {}, {}
    with wired.transactions.write() as tx:
        for who, (roles, teams) in _ROLES.items():
            row = create_principal(tx, name=NAMES[who], kind="human", roles=roles, teams=teams)
            ids[who] = row.id
            token, tokens[who] = issue_token(tx, principal_id=row.id, clock=clock, days=300)
            token_ids[who] = token.id
    return World(
        wired=wired,
        clock=clock,
        engine=engine,
        tracking=tracking,
        host=host,
        merge=merge,
        folder=folder,
        ids=ids,
        tokens=tokens,
        token_ids=token_ids,
    )


def write_base_model(folder: Path, *, header: bytes | None = None) -> None:
    """Write a base model whose safetensors file holds a header and no weights."""
    header = header or json.dumps({"w": {"shape": [10, 100], "dtype": "F32"}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    (folder / "config.json").write_text('{"model_type": "llama"}')


@functools.cache
def _cache_packs() -> None:
    """Read the rule packs once: they are frozen values, and reading them takes a second."""
    sites: dict[str, Any] = {}

    def reference(*, site: Any = None) -> Any:
        if repr(site) not in sites:
            sites[repr(site)] = load_reference(site=site)
        return sites[repr(site)]

    @functools.cache
    def shipped() -> Any:
        return read_packs((PACKS,))

    def packs(dirs: Any) -> Any:
        return shipped() if tuple(dirs) == (PACKS,) else read_packs(dirs)

    service.own_packs.read_packs = packs
    service.installation.load_reference = reference


_MIGRATED: list[bytes] = []


def _migrate(wired: Installation) -> None:
    """Migrate; SQLite gets a copy of a database that was migrated before, which is quicker."""
    path = wired.database.url.database
    if wired.database.dialect.name != "sqlite" or path is None:
        if not is_current(wired.database):
            migrate(wired.database)
        return
    if not _MIGRATED:
        migrate(wired.database)
        wired.database.dispose()  # the last connection's end empties the write-ahead log
        _MIGRATED.append(Path(path).read_bytes())
    elif not Path(path).exists():
        Path(path).write_bytes(_MIGRATED[0])


async def _send(
    app: Any, method: str, path: str, content: Any, headers: Mapping[str, str]
) -> Answer:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://placet.test") as client:
        sent = content() if callable(content) else content
        answer = await client.request(method, path, content=sent, headers=dict(headers))
        return Answer(answer.status_code, answer.headers, answer.content)


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


Maker = Callable[..., World]
