"""What `placet doctor` looks at once it knows that our packages are ours."""

import importlib
import uuid
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session

from audit.policy import WitnessPolicyError
from service import own_packs
from service.commands.doctor import Check
from service.commands.errors import CommandError
from service.commands.operating import read_settings
from service.database import READ_ONLY, open_engine
from service.in_force import current, newest_act
from service.installation import log_signers
from service.keys import KeyFileError
from service.objects.files import FileObjects
from service.objects.protocol import ObjectError, Objects
from service.objects.s3 import Abilities, S3Account, S3Objects
from service.own_packs import Offer
from service.policy_bundles import QUORUM, last_rejection, trusted_keys
from service.problems import Problem
from service.schema import is_current
from service.settings import Settings
from service.witnesses import load_witnesses

_KEYS = ("log", "permit", "seal")


def run() -> Iterator[Check]:
    """Check settings, keys, rules, database, object storage and the tracking library."""
    try:
        settings = read_settings()
    except CommandError as error:
        yield Check("settings", "failed", str(error))
        return
    yield Check("settings", "ok", f"data folder {settings.home}")
    yield _site(settings)
    yield from _keys(settings)
    yield _guard(settings)
    yield _witnesses(settings)
    offer = own_packs.read(settings.policy_dirs)
    yield _rules(offer)
    database = _database(settings)
    yield database
    if database.outcome == "ok":
        yield from _in_force(settings, offer)
    yield _objects(settings)
    yield _tracking()


def _site(settings: Settings) -> Check:
    if settings.site_country is None:
        detail = "no PLACET_SITE_COUNTRY: the own site's country is unknown, jobs on it are denied"
        return Check("site", "warning", detail)
    return Check("site", "ok", f"declared {settings.site_country} on {settings.site_declared_on}")


def _keys(settings: Settings) -> Iterator[Check]:
    for name in _KEYS:
        path = settings.key_file(name)  # type: ignore[arg-type]  # the three names are its literals
        if not path.exists():
            yield Check("keys", "warning", f"{name} key is made at the first start: {path}")
        elif path.stat().st_mode & 0o077:
            yield Check("keys", "failed", f"others can read {path}; run `chmod 600 {path}`")
        else:
            yield Check("keys", "ok", f"{name} key {path}")


def _guard(settings: Settings) -> Check:
    guard = settings.guard
    where = guard.parent if guard.parent.exists() else settings.home
    if where.exists() and settings.home.exists() and settings.guard_file is None:
        detail = "beside the database; set PLACET_GUARD_FILE to a file on another volume"
        return Check("guard", "warning", detail)
    return Check("guard", "ok", str(guard))


def _witnesses(settings: Settings) -> Check:
    path = settings.witness_policy
    if path is None:
        detail = "no PLACET_WITNESS_POLICY: nobody outside remembers what this log published"
        return Check("witnesses", "warning", detail)
    if not settings.key_file("log").exists():
        return Check("witnesses", "warning", f"`{path}` is checked once the log has its key")
    try:
        vkeys = [signer.vkey for signer in log_signers(settings)]
        policy = load_witnesses(path, settings.origin, vkeys).policy
    except OSError as error:
        return Check("witnesses", "failed", f"`{path}` cannot be read: {error.strerror}")
    except (WitnessPolicyError, KeyFileError) as error:
        return Check("witnesses", "failed", f"`{path}`: {error}")
    if policy.quorum is None:
        return Check("witnesses", "warning", f"`{path}` has `quorum none`: nobody must cosign")
    return Check("witnesses", "ok", f"{len(policy.witnesses)} keys of witnesses in `{path}`")


def _rules(offer: Offer) -> Check:
    refused = offer.failed_tests if offer.unread is None else offer.unread
    if refused is not None or offer.policy is None:
        return Check("rules", "failed", str(refused))
    return Check("rules", "ok", f"{len(offer.policy.rules)} rules, {offer.policy.digest[:19]}…")


def _in_force(settings: Settings, offer: Offer) -> Iterator[Check]:
    """Say what the database has in force, and whether packs or a bundle were refused since."""
    try:
        keys = trusted_keys(settings.policy_keys)
    except KeyFileError as error:
        yield Check("policy keys", "failed", str(error))
        return
    if 0 < len({key.public_key for key in keys}) < QUORUM:
        detail = f"a bundle needs {QUORUM} maintainers, and {settings.policy_keys} names fewer"
        yield Check("policy keys", "warning", detail)
    database = open_engine(settings.database)
    try:
        with Session(database.execution_options(**READ_ONLY)) as session:
            now, rejected = current(session), last_rejection(session)
            refused = offer.refusal(newest_act(session, "enforce"))
    except Problem as error:
        yield Check("policy", "warning", error.detail)
        return
    finally:
        database.dispose()
    detail = f"number {now.number}, {now.policy.digest[:19]}…"
    if refused is not None:
        yield Check("policy", "warning", f"{refused}; {detail} stays in force")
    if rejected is not None:
        why = f"a bundle was rejected at {rejected.created_at} ({rejected.reason_code})"
        yield Check("policy", "warning", f"{why}; {detail} stays in force")
    if refused is None and rejected is None:
        yield Check("policy", "ok", f"{detail} is in force")


def _database(settings: Settings) -> Check:
    url = settings.database
    if url.startswith("sqlite") and not Path(url.removeprefix("sqlite:///")).exists():
        return Check("database", "failed", "there is none yet; run `placet migrate`")
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
        if not is_current(engine):
            detail = "lacks this release's schema; run `placet migrate`"
            return Check("database", "failed", detail)
    except SQLAlchemyError as error:
        detail = str(getattr(error, "orig", None) or type(error).__name__)
        return Check("database", "failed", " ".join(detail.split())[:200])
    finally:
        engine.dispose()
    return Check("database", "ok", f"{engine.dialect.name}, schema current")


def _objects(settings: Settings) -> Check:
    """Write, read back and remove one small object."""
    probe = f"{settings.objects}/doctor/{uuid.uuid4().hex}"
    try:
        objects = _store(settings)
        objects.put(probe, b"placet doctor\n")
        objects.delete(probe)
    except (ObjectError, OSError) as error:
        return Check("objects", "failed", f"{settings.objects}: {error}")
    return Check("objects", "ok", f"{settings.objects} can be written")


def _store(settings: Settings) -> Objects:
    if not settings.objects.startswith("s3://"):
        root = Path(settings.objects.removeprefix("file://"))
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        return FileObjects([root])
    account = S3Account(
        endpoint=settings.s3_endpoint,
        region=settings.s3_region,
        access_key=settings.s3_access_key,
        secret_key=settings.s3_secret_key.get_secret_value(),
    )
    return S3Objects(account, Abilities())


def _tracking() -> Check:
    try:
        mlflow = importlib.import_module("mlflow")
    except ImportError as error:
        detail = f"MLflow cannot be imported ({error}); install placet[service] again"
        return Check("tracking", "failed", " ".join(detail.split())[:200])
    return Check("tracking", "ok", f"MLflow {mlflow.__version__}")
