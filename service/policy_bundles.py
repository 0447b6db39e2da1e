"""Which policy decides: bundles that two maintainers signed, put in force by an officer.

A bundle counts when all of it does: it is well-formed, two different keys of the installation's
maintainers signed its manifest, its day has come, its packs load, every rule's own tests pass, its
policy is the one it names, and its number is new. Otherwise nothing of it is used: the policy in
force stays, and an entry says why (`policy.rejected`).

Trust is not in the database: the maintainers' public keys stand in a file of the operator
(`PLACET_POLICY_KEYS`, one vkey a line), and signatures are checked with `audit`'s keys and DSSE.
Without any bundle the packs of this release are in force, as number 0.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from sqlmodel import Session, col, select

from audit.canonical import CanonicalError
from audit.dsse import pae
from audit.event import EventKind
from audit.keys import ED25519, NoteError, Signer, VerifyKey, encode_base64, strict_base64
from audit.kinds import is_code
from policies.bundle import PAYLOAD_TYPE, Bundle, BundleError
from policies.load import policy_of, read_packs
from policies.policy import Policy
from policies.rule import RuleError
from service import in_force
from service.clock import seconds
from service.force_tables import PolicyAct
from service.ids import Prefix, new_id
from service.keys import KeyFileError
from service.own_packs import failures, told
from service.principals import Caller, Role
from service.transaction import SYSTEM, Transaction

QUORUM = 2
MEDIA_TYPE = "application/vnd.placet.policy-bundle+json"
Mode = Literal["enforce", "shadow"]


class RejectedError(ValueError):
    """The bundle counts for nothing.

    Args:
        code: why, as the entry says it.
        detail: what is wrong and what to do, for people.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


@dataclass(frozen=True)
class Examined:
    """A bundle that holds by itself; what was enforced before is asked when it is put in force."""

    bundle: Bundle
    policy: Policy
    signers: tuple[str, ...]


def trusted_keys(path: Path | None) -> tuple[VerifyKey, ...]:
    """Read the maintainers' public keys, one vkey a line; blank lines and `#` lines are skipped.

    Raises:
        KeyFileError: it cannot be read, or a line is no Ed25519 vkey.
    """
    if path is None:
        return ()
    try:
        lines = [line.strip() for line in path.read_text(encoding="ascii").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise KeyFileError(f"cannot read the maintainers' keys in `{path}`: {error}") from error
    keys = []
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        try:
            key = VerifyKey.parse(line)
        except NoteError as error:
            raise KeyFileError(f"`{path}` line {number}: {error}") from error
        if key.kind != ED25519 or not is_code(keyid_of(key)):
            raise KeyFileError(f"`{path}` line {number}: expected an Ed25519 key with a plain name")
        keys.append(key)
    return tuple(keys)


def keyid_of(key: VerifyKey) -> str:
    """Name a key as signatures do: its name and its 4-byte id."""
    return f"{key.name}+{key.id.hex()}"


def sign(bundle: Bundle, signer: Signer) -> Bundle:
    """Return the bundle with the signature of one maintainer over its manifest."""
    signature = signer.sign(pae(PAYLOAD_TYPE, bundle.manifest.to_bytes()))
    return bundle.signed(keyid_of(VerifyKey.parse(signer.vkey)), encode_base64(signature))


def signers_of(bundle: Bundle, keys: Sequence[VerifyKey]) -> tuple[str, ...]:
    """Return who of the trusted keys signed the manifest, each key once whatever its names.

    Raises:
        RejectedError: the signature of a trusted key does not verify.
    """
    trusted = {keyid_of(key): key for key in keys}
    signed: dict[bytes, str] = {}
    message = pae(PAYLOAD_TYPE, bundle.manifest.to_bytes())
    for keyid, encoded in bundle.signatures:
        key = trusted.get(keyid)
        if key is None:
            continue
        try:
            verifies = key.verify(strict_base64(encoded), message)
        except NoteError:
            verifies = False
        if not verifies:
            raise RejectedError("signature", f"the signature of `{keyid}` does not verify")
        signed.setdefault(key.public_key, keyid)
    return tuple(sorted(signed.values()))


def examine(data: bytes, *, keys: Sequence[VerifyKey], mode: Mode, now: datetime) -> Examined:
    """Check everything about a bundle that does not depend on what is in force; takes a second.

    Raises:
        RejectedError: something does not hold; all of the bundle is refused.
    """
    try:
        bundle = Bundle.from_bytes(data)
    except BundleError as error:
        raise RejectedError("malformed", str(error)) from error
    if not keys:
        raise RejectedError("no_keys", "this installation trusts nobody: set PLACET_POLICY_KEYS")
    signers = signers_of(bundle, keys)
    if len(signers) < QUORUM:
        raise RejectedError(
            "quorum", f"signed by {len(signers)} of {QUORUM} different maintainers of this house"
        )
    if mode == "enforce" and bundle.manifest.effective > seconds(now)[:10]:
        raise RejectedError(
            "not_effective",
            f"it takes effect on {bundle.manifest.effective}; until then try it with --shadow",
        )
    return Examined(bundle, _tested(bundle), signers)


def _tested(bundle: Bundle) -> Policy:
    """Load the packs of a bundle and run their own tests."""
    with tempfile.TemporaryDirectory(prefix="placet-bundle-") as folder:
        try:
            bundle.write_to(Path(folder))
            packs = read_packs([Path(folder)])
            policy = policy_of(packs)
        except (RuleError, CanonicalError, OSError) as error:
            raise RejectedError("lint", f"its packs do not load: {error}") from error
    if policy.digest != bundle.manifest.policy:
        raise RejectedError("policy_digest", "its packs give another policy than it names")
    if failed := failures(packs):
        raise RejectedError("tests", told(failed))
    return policy


def check_activator(caller: Caller) -> None:
    """Refuse whoever may not put a policy in force.

    The maintainers answer for what a bundle says, an officer for when it decides here. An admin
    makes officers, so an admin alone does neither.

    Raises:
        Forbidden: not an officer, or no person.
    """
    caller.require(Role.OFFICER)
    caller.require_person("cannot change what decides")


def activate(
    tx: Transaction, caller: Caller, *, examined: Examined, mode: Mode, reason: str, now: datetime
) -> PolicyAct:
    """Put an examined bundle in force, or in the shadow, from this commit on.

    Raises:
        Forbidden: not an officer, or no person.
        RejectedError: its number is not new, or it brings back what was left without saying so.
    """
    check_activator(caller)
    in_force.hold(tx.session, alone=True)
    manifest = examined.bundle.manifest
    _check_number(tx.session, examined)
    row = PolicyAct(
        id=new_id(Prefix.POLICY),
        entry_id="",
        created_at=seconds(now),
        created_by=caller.id,
        sequence=_next(tx.session),
        act=mode,
        number=manifest.number,
        policy_digest=tx.keep(examined.policy.to_bytes()),
        bundle_digest=tx.keep(examined.bundle.to_bytes(), MEDIA_TYPE),
        signers=list(examined.signers),
    )
    return _record(tx, row, actor=caller, reason=reason, rollback_of=manifest.rollback_of)


def _check_number(session: Session, examined: Examined) -> None:
    enforced = in_force.newest_act(session, "enforce")
    manifest = examined.bundle.manifest
    last = 0 if enforced is None else enforced.number
    if manifest.number <= last:
        raise RejectedError(
            "number", f"its number is {manifest.number}, and {last} is in force: numbers only grow"
        )
    if manifest.rollback_of is not None and manifest.rollback_of != last:
        raise RejectedError(
            "rollback", f"it takes back number {manifest.rollback_of}, and {last} is in force"
        )
    left = select(PolicyAct.policy_digest).where(PolicyAct.act == "enforce")
    is_back = examined.policy.digest in set(session.exec(left))
    is_now = enforced is not None and enforced.policy_digest == examined.policy.digest
    if is_back and not is_now and manifest.rollback_of is None:
        raise RejectedError(
            "rollback", f"its policy was in force before and was left; say `--rollback-of {last}`"
        )


def reject(
    tx: Transaction, caller: Caller, *, data: bytes, error: RejectedError, now: datetime
) -> PolicyAct:
    """Record that a bundle was refused and what stays in force."""
    check_activator(caller)
    in_force.hold(tx.session, alone=True)
    enforced = in_force.newest_act(tx.session, "enforce")
    row = PolicyAct(
        id=new_id(Prefix.POLICY),
        entry_id="",
        created_at=seconds(now),
        created_by=caller.id,
        sequence=_next(tx.session),
        act="rejected",
        number=0 if enforced is None else enforced.number,
        policy_digest=None if enforced is None else enforced.policy_digest,
        bundle_digest=tx.keep(data, MEDIA_TYPE),
        signers=[],
        reason_code=error.code,
    )
    tx.record(
        EventKind.POLICY_REJECTED,
        row,
        actor=caller.actor,
        data={
            "bundle": row.bundle_digest,
            "reason_code": error.code,
            "still": row.policy_digest,
        },
        outcome="denied",
    )
    return row


def ship(tx: Transaction, policy: Policy, *, now: datetime) -> PolicyAct | None:
    """Put what this release ships in force, unless a bundle is, or it is already."""
    in_force.hold(tx.session, alone=True)
    enforced = in_force.newest_act(tx.session, "enforce")
    if enforced is not None and (
        enforced.bundle_digest is not None or enforced.policy_digest == policy.digest
    ):
        return None
    row = PolicyAct(
        id=new_id(Prefix.POLICY),
        entry_id="",
        created_at=seconds(now),
        sequence=_next(tx.session),
        act="enforce",
        number=0,
        policy_digest=tx.keep(policy.to_bytes()),
        signers=[],
    )
    return _record(tx, row, actor=None, reason="", rollback_of=None)


def last_rejection(session: Session) -> PolicyAct | None:
    """Return the last rejected bundle, if nothing was put in force after it."""
    last = session.exec(select(PolicyAct).order_by(col(PolicyAct.sequence).desc()).limit(1)).first()
    return last if last is not None and last.act == "rejected" else None


def _next(session: Session) -> int:
    last = session.exec(select(PolicyAct).order_by(col(PolicyAct.sequence).desc()).limit(1)).first()
    return 0 if last is None else last.sequence + 1


def _record(
    tx: Transaction, row: PolicyAct, *, actor: Caller | None, reason: str, rollback_of: int | None
) -> PolicyAct:
    tx.record(
        EventKind.POLICY_ACTIVATED,
        row,
        actor=SYSTEM if actor is None else actor.actor,
        data={
            "policy": row.policy_digest,
            "bundle": row.bundle_digest,
            "number": row.number,
            "mode": row.act,
            "signers": list(row.signers),
            **({} if rollback_of is None else {"rollback_of": rollback_of}),
        },
        private={"reason": reason.strip()} if reason.strip() else None,
    )
    return row
