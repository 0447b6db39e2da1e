"""One installation, wired once from its settings: the composition that app and worker share."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote, urlsplit

import structlog
from sqlalchemy import Engine as Database

import trainer
from audit.keys import Ed25519Signer, MlDsa44Signer, Signer
from policies.load import load_overlay, load_reference
from policies.overlay import lay_over
from policies.reference import Reference
from policies.rule import RuleError
from service import in_force, keys, own_packs, policy_bundles, reference_rows
from service.clock import Clock, system_clock
from service.database import open_engine
from service.deployments import DeploymentContext, MergeError
from service.engines.local import LocalEngine
from service.gating import Gate
from service.jobs import JobContext
from service.ledger import Guard, Ledger
from service.machine import serving_dtype
from service.objects.files import FileObjects
from service.objects.protocol import Objects
from service.objects.routed import RoutedObjects
from service.objects.s3 import Abilities, S3Account, S3Objects, probe
from service.own_packs import Offer, Refusal
from service.permits import Issuer
from service.places import SITE, Addresses, Places
from service.run_context import RunContext
from service.serving import LocalServing
from service.settings import Settings
from service.tracking import Tracking
from service.transaction import Transactions
from service.witnesses import load_witnesses

log = structlog.get_logger(__name__)
_MERGE_SECONDS = 1800


@dataclass(frozen=True)
class Shipped:
    """What this release and its settings bring; in force until officers put other things there."""

    offer: Offer
    reference: Reference


@dataclass(frozen=True)
class Installation:
    """Everything one process needs. Nothing in here is global."""

    settings: Settings
    clock: Clock
    database: Database
    transactions: Transactions
    objects: Objects
    sources: Objects
    shipped: Shipped
    gate: Gate
    ledger: Ledger
    jobs: JobContext
    runs: RunContext
    deployments: DeploymentContext

    @property
    def max_body_bytes(self) -> int:
        """Largest request body."""
        return self.settings.max_body_bytes

    def start(self) -> None:
        """Write the log's first entries, and record what this release brings when it is new.

        Raises:
            RolledBackError: the database is older than what was signed.
            ReferenceDataError: the installation's own rows do not fit this release's tables.
            RuleError: the packs cannot be used, and no policy is in force that could stay.
        """
        refused = self._refused_packs_or_nothing()
        self.ledger.start(self.transactions)
        with self.transactions.write() as tx:
            if refused is None and self.shipped.offer.policy is not None:
                policy_bundles.ship(tx, self.shipped.offer.policy, now=self.clock())
            reference_rows.ship(tx, self.shipped.reference, self.clock)

    def refused_packs(self) -> Refusal | None:
        """Say why what is in force is not what the folders of packs hold; None when it may be."""
        with self.transactions.read() as session:
            enforced = in_force.newest_act(session, "enforce")
        return self.shipped.offer.refusal(enforced)

    def _refused_packs_or_nothing(self) -> Refusal | None:
        """Log why the packs are not used; without any policy from before, refuse to start."""
        with self.transactions.read() as session:
            enforced = in_force.newest_act(session, "enforce")
        refused = self.shipped.offer.refusal(enforced)
        if refused is None:
            return None
        if enforced is None:
            raise RuleError(f"{refused}; no policy is in force that could stay, so nothing starts")
        log.error(
            "policy.packs_refused",
            folder=refused.folder,
            reason_code=refused.code,
            reason=refused.detail,
            still=enforced.policy_digest,
        )
        return refused

    def places(self) -> Places:
        """Make the look-up of places by the reference data in force."""
        with self.transactions.read() as session:
            return self.jobs.addresses.places(self.gate.current(session).reference)

    @property
    def exports_folder(self) -> Path:
        """Where bundles lie."""
        return self.settings.home / "exports"


def build(settings: Settings, *, clock: Clock = system_clock) -> Installation:
    """Wire an installation. Makes missing keys and folders; touches no table.

    Raises:
        KeyFileError, RuleError, ReferenceDataError, WitnessPolicyError: what is configured cannot
            be used.
    """
    home = settings.home
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    database = open_engine(settings.database)
    transactions = Transactions(
        engine=database,
        origin=settings.origin,
        clock=clock,
        seal_key=keys.wrapping_key(settings.key_file("seal")),
        max_pending=settings.max_pending_entries,
    )
    objects = _objects(settings)
    sources = _sources(settings)
    gate = Gate(approval_hours=settings.approval_hours)
    ledger = _ledger(settings, database, objects, clock)
    engine, issuer = _local_engine(settings)
    jobs = JobContext(
        gate=gate,
        clock=clock,
        addresses=_addresses(settings),
        engines=frozenset({SITE[0]}),
        code_digest=training_code_digest(),
        manifests=f"{settings.objects}/manifests",
        site_price=settings.site_price_cents_per_hour,
    )
    runs = _runs(settings, transactions, objects, jobs, engine=engine, issuer=issuer)
    deployments = _deployments(settings, runs, sources=sources, clock=clock)
    return Installation(
        settings=settings,
        clock=clock,
        database=database,
        transactions=transactions,
        objects=objects,
        sources=sources,
        shipped=Shipped(
            offer=own_packs.read(settings.policy_dirs),
            reference=_shipped_reference(settings),
        ),
        gate=gate,
        ledger=ledger,
        jobs=jobs,
        runs=runs,
        deployments=deployments,
    )


def _ledger(settings: Settings, database: Database, objects: Objects, clock: Clock) -> Ledger:
    signers = log_signers(settings)
    policy = settings.witness_policy
    return Ledger(
        engine=database,
        objects=objects,
        prefix=f"{settings.objects}/log",
        origin=settings.origin,
        signers=signers,
        guard=Guard(settings.guard),
        clock=clock,
        witnesses=None
        if policy is None
        else load_witnesses(policy, settings.origin, [signer.vkey for signer in signers]),
    )


def _runs(
    settings: Settings,
    transactions: Transactions,
    objects: Objects,
    jobs: JobContext,
    *,
    engine: LocalEngine,
    issuer: Issuer,
) -> RunContext:
    return RunContext(
        transactions=transactions,
        jobs=jobs,
        engines={SITE[0]: engine},
        issuer=issuer,
        issuer_name=settings.origin,
        objects=objects,
        outputs=f"{settings.objects}/runs",
        permit_minutes=settings.permit_minutes,
        environment=_storage_environment(settings),
        tracking=Tracking(
            settings.tracking,
            artifact_root=None if settings.tracking_uri else (settings.home / "mlflow").as_uri(),
        ),
    )


def _deployments(
    settings: Settings, runs: RunContext, *, sources: Objects, clock: Clock
) -> DeploymentContext:
    return DeploymentContext(
        transactions=runs.transactions,
        gate=runs.jobs.gate,
        clock=clock,
        objects=runs.objects,
        sources=sources,
        addresses=runs.jobs.addresses,
        host=LocalServing(settings.home / "serving", threads=settings.trainer_threads),
        merge=_merge,
        folder=settings.home / "merged",
        origin=settings.origin,
    )


def training_code_digest() -> str:
    """Digest our own training code: what runs on the own site in place of a container image."""
    root = Path(trainer.__file__).parent
    hasher = sha256()
    for path in sorted(root.rglob("*.py")):
        hasher.update(f"{path.relative_to(root).as_posix()}\n{path.stat().st_size}\n".encode())
        hasher.update(path.read_bytes())
    return f"sha256:{hasher.hexdigest()}"


def _merge(*, base: Path, adapter: Path, out: Path) -> None:
    """Run the trainer's `export` as a process of its own: torch never enters the service.

    Raises:
        MergeError: it refused or failed.
    """
    staged = out.with_suffix(".part")
    shutil.rmtree(staged, ignore_errors=True)
    command = [sys.executable, "-P", "-m", "trainer", "export"]
    command += ["--base", str(base), "--adapter", str(adapter), "--out", str(staged)]
    command += ["--dtype", serving_dtype()]
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": str(Path(trainer.__file__).parent.parent),
        "HF_HUB_OFFLINE": "1",
    }
    try:
        done = subprocess.run(  # noqa: S603 — a constant program; the paths are our own
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_MERGE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MergeError(f"`trainer export` took over {_MERGE_SECONDS} s") from error
    if done.returncode:
        raise MergeError(f"`trainer export` ended with {done.returncode}: {done.stderr[-500:]}")
    staged.replace(out)


def log_signers(settings: Settings) -> tuple[Signer, ...]:
    """Return who signs checkpoints, Ed25519 first; makes a missing key.

    Raises:
        KeyFileError: the key file cannot be used.
    """
    seed = keys.ed25519_seed(settings.key_file("log"))
    return (
        Ed25519Signer.from_seed(settings.origin, seed),
        # A second key from the same secret by a one-way step: one file to guard, two algorithms.
        MlDsa44Signer.from_seed(settings.origin, sha256(b"placet/ml-dsa-44/v1\n" + seed).digest()),
    )


def _site(settings: Settings) -> dict[str, object] | None:
    if settings.site_country is None:
        return None
    declared = {
        "country": settings.site_country,
        "declared_by": settings.site_declared_by,
        "checked_on": settings.site_declared_on,
        "parent_country": settings.site_parent_country,
        "establishments": None
        if settings.site_establishments is None
        else list(settings.site_establishments),
        "hds_self_hosted": settings.site_hds_self_hosted or None,
    }
    return {name: value for name, value in declared.items() if value is not None}


def _objects(settings: Settings) -> Objects:
    """Open what we write to: outputs, manifests, the published log."""
    if settings.objects.startswith("s3://"):
        bucket = settings.objects.removeprefix("s3://").partition("/")[0]
        return RoutedObjects({"s3": _s3(settings, frozenset({bucket}))})
    root = Path(unquote(urlsplit(settings.objects).path))
    root.mkdir(parents=True, exist_ok=True)
    return RoutedObjects({"file": FileObjects([root])})


def _sources(settings: Settings) -> Objects:
    """Open what callers may name: declared folders and the bucket endpoint, never our own data."""
    stores: dict[str, Objects] = {}
    if settings.object_roots:
        stores["file"] = FileObjects([Path(root) for root in settings.object_roots])
    if settings.s3_endpoint:
        stores["s3"] = _s3(settings, frozenset(settings.source_buckets))
    return RoutedObjects(stores)


def _s3(settings: Settings, buckets: frozenset[str]) -> S3Objects:
    account = S3Account(
        endpoint=settings.s3_endpoint,
        region=settings.s3_region,
        access_key=settings.s3_access_key,
        secret_key=settings.s3_secret_key.get_secret_value(),
        buckets=buckets,
    )
    abilities = Abilities()
    if settings.objects.startswith("s3://"):
        bucket = settings.objects.removeprefix("s3://").partition("/")[0]
        abilities = probe(replace(account, buckets=None), bucket)
    return S3Objects(account, abilities)


def _addresses(settings: Settings) -> Addresses:
    written = settings.s3_endpoint if settings.objects.startswith("s3://") else settings.objects
    return Addresses(
        roles={
            "output": written,
            "checkpoints": written,
            "tracking": settings.tracking,
            "log_sink": written,
        },
        site_hosts=frozenset(settings.site_hosts),
    )


def _shipped_reference(settings: Settings) -> Reference:
    """Read what ships, the operator's own site, and the rows of the overlay folder."""
    reference = load_reference(site=_site(settings))
    if settings.reference_dir is None:
        return reference
    rows = load_overlay(settings.reference_dir, declared_by=settings.site_declared_by)
    return lay_over(reference, rows)


def _storage_environment(settings: Settings) -> dict[str, str]:
    if not settings.s3_endpoint:
        return {}
    return {
        "PLACET_S3_ENDPOINT": settings.s3_endpoint,
        "AWS_ACCESS_KEY_ID": settings.s3_access_key,
        "AWS_SECRET_ACCESS_KEY": settings.s3_secret_key.get_secret_value(),
        "AWS_DEFAULT_REGION": settings.s3_region,
    }


def _local_engine(settings: Settings) -> tuple[LocalEngine, Issuer]:
    private = settings.key_file("permit")
    keys.ed25519_seed(private)
    issuer = Issuer.from_pem(private)
    public = private.with_suffix(".pub.pem")
    public.write_bytes(issuer.public_pem())
    engine = LocalEngine(settings.home / "runs", public, threads=settings.trainer_threads)
    return engine, issuer
