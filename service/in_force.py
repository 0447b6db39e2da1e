"""What is in force: the policy, the reference data and a policy tried in the shadow.

All three are rows and documents in the database, so every process takes a change at its next
transaction. What was read is kept by digest, so a decision costs two look-ups and reads nothing.

A writing transaction that asks holds what it was told until its end: on PostgreSQL by a shared
advisory lock, which whoever changes what is in force takes alone; SQLite has one writer at a time.
So a decision stands in the log before the change that it did not know, and its transaction sees
one version throughout.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog
from sqlalchemy import text
from sqlmodel import Session, col, select

from policies.policy import Policy
from policies.reference import Reference, ReferenceDataError
from policies.rule import RuleError
from service.archive import AlteredDocumentError, load
from service.database import READ_ONLY
from service.force_tables import PolicyAct, ReferenceRow
from service.problems import Unavailable

log = structlog.get_logger(__name__)
Kept = TypeVar("Kept", Policy, Reference)

_LOCK = 0x706C6166  # one number for everyone who asks or changes what is in force
_KEPT = 16
_policies: dict[str, Policy] = {}
_references: dict[str, Reference] = {}


@dataclass(frozen=True)
class InForce:
    """What decides now; `number` is the bundle's, 0 for what ships."""

    policy: Policy
    reference: Reference
    shadow: Policy | None
    number: int


def current(session: Session) -> InForce:
    """Return what is in force in this transaction.

    Raises:
        Unavailable: nothing was ever put in force, or its documents cannot be used.
    """
    hold(session)
    enforced, row = newest_act(session, "enforce"), newest_row(session)
    if enforced is None or row is None:
        raise Unavailable("no policy is in force yet; start the service or the worker once")
    shadow = shadow_act(session)
    return InForce(
        policy=_policy(session, str(enforced.policy_digest)),
        reference=reference_of(session, row.reference_digest),
        shadow=None if shadow is None else _policy(session, str(shadow.policy_digest)),
        number=enforced.number,
    )


def hold(session: Session, *, alone: bool = False) -> None:
    """Keep what is in force as it is until the transaction ends; `alone` to change it."""
    bind = session.get_bind()
    if bind.dialect.name == "postgresql" and not _is_reading(session):
        name = "pg_advisory_xact_lock" if alone else "pg_advisory_xact_lock_shared"
        session.execute(text(f"SELECT {name}(:lock)"), {"lock": _LOCK})


def _is_reading(session: Session) -> bool:
    options = session.get_bind().get_execution_options()
    return all(options.get(name) == value for name, value in READ_ONLY.items())


def newest_act(session: Session, act: str) -> PolicyAct | None:
    """Return the last act of a kind on the policy: `enforce`, `shadow` or `rejected`."""
    query = select(PolicyAct).where(PolicyAct.act == act)
    return session.exec(query.order_by(col(PolicyAct.sequence).desc()).limit(1)).first()


def newest_row(session: Session) -> ReferenceRow | None:
    """Return the last act on the reference data."""
    query = select(ReferenceRow).order_by(col(ReferenceRow.sequence).desc())
    return session.exec(query.limit(1)).first()


def shadow_act(session: Session) -> PolicyAct | None:
    """Return what is tried in the shadow; whatever is enforced later ends it."""
    acts = select(PolicyAct).where(col(PolicyAct.act).in_(("enforce", "shadow")))
    last = session.exec(acts.order_by(col(PolicyAct.sequence).desc()).limit(1)).first()
    return last if last is not None and last.act == "shadow" else None


def _policy(session: Session, name: str) -> Policy:
    return _kept(_policies, session, name, Policy.from_bytes)


def reference_of(session: Session, name: str) -> Reference:
    """Return the reference data with this digest.

    Raises:
        Unavailable: the document cannot be used.
    """
    return _kept(_references, session, name, Reference.from_bytes)


def _kept(
    kept: dict[str, Kept], session: Session, name: str, read: Callable[[bytes], Kept]
) -> Kept:
    """Read a document once; a digest names one content for ever, so nothing here gets old."""
    found = kept.get(name)
    if found is not None:
        return found
    try:
        made = read(load(session, name))
    except (AlteredDocumentError, RuleError, ReferenceDataError) as error:
        log.critical("in_force.unusable", digest=name, reason=str(error))
        raise Unavailable(
            f"what is in force cannot be used ({error}); tell the operator"
        ) from error
    while len(kept) >= _KEPT:
        kept.pop(next(iter(kept)), None)
    kept[name] = made
    return made
