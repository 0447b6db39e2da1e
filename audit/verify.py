"""Verify an export offline: the procedure, step by step.

Trust comes from the verifier keys that the auditor gives, and from the checkpoint that they
remember. A key named like the checkpoint's origin, of type Ed25519 or ML-DSA-44, is the *log's*; a
cosignature key (0x04, 0x06) of another name is a *witness's*. The log's own ML-DSA line never
counts as a witness. Keys inside the export are hints.

(1)  Open the file: one form of zip, known names, limits, manifest, set of members and tiles.   L0
(2)  Hash each member and compare with the manifest.                                            L2
(3)  Read the entries once: compare each leaf hash with the tiles, each tile with the level
     above, the root with the checkpoint, and entries.ndjson with the entries.                  L1
(4)  Check the form of each entry on the way.                                                   L0
(5)  Check the story that the entries tell, and the documents that must tell the same.          L6
(6)  Check the log's signatures on the checkpoint and on the manifest.                          L2
(7)  Check that the remembered checkpoint is the beginning of this tree.                        L3
(8)  Check the cosignature of every witness whose key was given, and the witness policy, when
     one was given.                                                                             L4
(9)  Time is not checked: no timestamp format is defined yet, times in entries are claims.      L5
(10) List the documents that entries refer to and that are not enclosed; the manifest must say
     the same.                                                                                  L7
(11) Replay is not checked here: it needs the policies room.                                    L8
(12) Check the signatures of maintainers, when their keys were given, on every policy.          L9
(13) Check values that were disclosed, when some were given, against the entries' commitments.  L10

Cost: about one SHA-256 of the file, one hash per entry and node, one JSON parse per entry; memory
grows with the number of things that entries name, not with their bytes.
"""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from audit.bundle import ENVELOPE, Bundle, open_bundle
from audit.disclosure import Disclosure, Disclosures
from audit.dsse import DsseError, open_envelope
from audit.enclosed import Load
from audit.invariants import Invariants
from audit.keys import (
    ED25519,
    ED25519_COSIGNATURE,
    MLDSA44,
    NoteError,
    VerifyKey,
)
from audit.manifest import MANIFEST_TYPE, BundleError
from audit.merkle import (
    MerkleError,
    check_consistency,
)
from audit.note import Checkpoint, open_note, split_note
from audit.policy import WitnessPolicy, evaluate_policy
from audit.reading import Reading, read_entries
from audit.report import Exit, Level, Outcome, Report, failed, malformed, not_checked, passed
from audit.signers import Trusted
from audit.tiles import TileError, TileReader

_UNKNOWN = "what an earlier level found leaves nothing to check"


def verify(
    path: Path,
    vkeys: Sequence[str],
    *,
    remembered: Checkpoint | None = None,
    trusted: Trusted | None = None,
    witness_policy: WitnessPolicy | None = None,
) -> Report:
    """Verify the export at `path` and report on every level.

    Args:
        path: the export.
        vkeys: verifier keys that the auditor trusts: the log's and any witnesses'.
        remembered: the checkpoint of an earlier verification of the same log.
        trusted: the maintainers' keys, and policies that a release ships.
        witness_policy: which witnesses must have cosigned, as the auditor asks for.

    Raises:
        NoteError: a key in `vkeys` is malformed. OSError: the file cannot be read.
    """
    keys = [VerifyKey.parse(vkey) for vkey in vkeys]
    try:
        with open_bundle(path) as bundle:  # (1)
            return examine(
                bundle,
                keys,
                remembered=remembered,
                trusted=trusted,
                witness_policy=witness_policy,
            )
    except BundleError as cause:
        return malformed(str(cause))


def examine(
    bundle: Bundle,
    keys: Sequence[VerifyKey],
    *,
    remembered: Checkpoint | None = None,
    trusted: Trusted | None = None,
    disclosed: Sequence[Disclosure] = (),
    witness_policy: WitnessPolicy | None = None,
) -> Report:
    """Verify an open export, steps (2) to (13); a replay may then read on in the same file.

    Raises:
        BundleError: a member turned out malformed.
    """
    checkpoint = bundle.checkpoint
    changed = _changed_member(bundle)  # (2)
    invariants = Invariants(checkpoint.origin, _documents(bundle), trusted)
    reading = Reading(invariants, Disclosures(disclosed), bundle.manifest.excerpt)
    read_entries(bundle, reading)  # (3) (4) (5)
    levels = (
        _format_level(reading),
        _integrity_level(reading, checkpoint),
        _signature_level(bundle, keys, changed),  # (6)
        _consistency_level(bundle, reading, remembered),  # (7)
        _witness_level(bundle, keys, witness_policy),  # (8)
        not_checked("L5", "no trusted timestamp: times in entries are claims"),  # (9)
        _invariant_level(reading),
        _document_level(bundle, reading),  # (10)
        not_checked("L8", "needs the policies: run `placet verify --replay`"),  # (11)
        _policy_level(reading),  # (12)
        _disclosure_level(reading),  # (13)
    )
    return Report(
        levels,
        checkpoint.origin,
        checkpoint.size,
        checkpoint.root,
        tuple(reading.invariants.violations),
        tuple(sorted(reading.absent)),
        bundle.hinted_keys(),
    )


def _changed_member(bundle: Bundle) -> str | None:
    for name, (listed, _) in bundle.manifest.members.items():
        sha256 = hashlib.sha256()
        for chunk in bundle.chunks(name):
            sha256.update(chunk)
        if listed != f"sha256:{sha256.hexdigest()}":
            return name
    return None


def _documents(bundle: Bundle) -> Load:
    """Return the look-up of what is enclosed."""

    def load(reference: str) -> bytes | None:
        try:
            return bundle.document(reference)
        except BundleError:  # other bytes than its name says: level L2 has found that, step (2)
            return None

    return load


def _format_level(reading: Reading) -> Level:
    if reading.entry_fault is not None:
        return failed("L0", reading.entry_fault, Exit.MALFORMED)
    return passed("L0", "file, manifest and entries are well formed")


def _integrity_level(reading: Reading, checkpoint: Checkpoint) -> Level:
    if reading.integrity_fault is not None:
        return failed("L1", reading.integrity_fault)
    if reading.excerpt is not None:
        what = f"the {reading.excerpt.shown} entries shown of {checkpoint.size}"
        return passed("L1", f"{what}, and the hashes of all, lead to the root")
    return passed("L1", f"{checkpoint.size} entries and their tiles lead to the root")


def _signature_level(bundle: Bundle, keys: Iterable[VerifyKey], changed: str | None) -> Level:
    if changed is not None:
        return failed("L2", f"member {changed} is not the one that the manifest lists")
    given = tuple(keys)
    if not given:
        return not_checked("L2", "no verifier key was given", Exit.UNTRUSTED)
    origin = bundle.checkpoint.origin
    log_keys = [key for key in given if key.name == origin and key.kind in (ED25519, MLDSA44)]
    signed = {(line.name, line.key_id) for line in split_note(bundle.checkpoint_note)[1]}
    if not any((key.name, key.id) in signed for key in log_keys):
        return failed("L2", f"no given key of the log {origin!a} signed this", Exit.UNTRUSTED)
    try:
        opened = open_note(bundle.checkpoint_note, log_keys)
        payload, _ = open_envelope(bundle.read(ENVELOPE), MANIFEST_TYPE, log_keys)
    except (NoteError, DsseError) as cause:
        return failed("L2", str(cause))
    if payload != bundle.manifest_bytes:
        return failed("L2", "the signed manifest is not manifest.json")
    names = ", ".join(f"type 0x{line.key.kind:02x}" for line in opened.verified)
    return passed("L2", f"signed by {origin} ({names}); all members are the listed ones")


def _consistency_level(bundle: Bundle, reading: Reading, remembered: Checkpoint | None) -> Level:
    now = bundle.checkpoint
    if remembered is None:
        return not_checked("L3", "no checkpoint is remembered: this is a first use")
    if reading.integrity_fault is not None:
        return not_checked("L3", _UNKNOWN)
    if remembered.origin != now.origin:
        return failed("L3", f"the remembered log is another one: {remembered.origin!a}")
    if remembered.size > now.size:
        return failed("L3", f"shorter than the {remembered.size} entries that are remembered")
    reader = TileReader(now.size, bundle.read)
    try:
        if remembered.size:  # a remembered empty log is the beginning of every log
            proof = reader.prove_consistency(remembered.size)
            check_consistency(remembered.size, now.size, proof, remembered.root, now.root)
    except (MerkleError, TileError) as cause:
        return failed("L3", f"the log was rewritten: {cause}")
    return passed("L3", f"an extension of the {remembered.size} entries that are remembered")


def _witness_level(
    bundle: Bundle, keys: Sequence[VerifyKey], policy: WitnessPolicy | None
) -> Level:
    """Judge the witnesses whose keys were given, and the policy: with both, both must hold."""
    kinds = (ED25519_COSIGNATURE, MLDSA44)
    origin = bundle.checkpoint.origin
    witnesses = {key for key in keys if key.name != origin and key.kind in kinds}
    given = _given_witnesses(bundle, witnesses)
    if policy is None or (given is not None and given.outcome is not Outcome.PASS):
        return given or not_checked("L4", "no witness key and no witness policy was given")
    log_keys = [key for key in keys if key.name == origin and key.kind in (ED25519, MLDSA44)]
    return _policy_quorum(bundle, policy, log_keys)


def _given_witnesses(bundle: Bundle, witnesses: set[VerifyKey]) -> Level | None:
    """Ask for a cosignature of each; None when none was given."""
    if not witnesses:
        return None
    try:
        verified = open_note(bundle.checkpoint_note, witnesses).verified
    except NoteError as cause:
        return failed("L4", str(cause), Exit.UNTRUSTED)
    cosigned = {line.key for line in verified if line.timestamp}
    absent = sorted(key.name for key in witnesses - cosigned)
    if absent:
        return failed("L4", f"no cosignature of {', '.join(absent)}", Exit.UNTRUSTED)
    return passed("L4", f"cosigned by all {len(witnesses)} witnesses given")


def _policy_quorum(bundle: Bundle, policy: WitnessPolicy, log_keys: list[VerifyKey]) -> Level:
    if not policy.logs and not log_keys:
        detail = "neither the policy nor --vkey names a key of the log, to tell it from witnesses"
        return not_checked("L4", detail, Exit.UNTRUSTED)
    standing = evaluate_policy(policy, bundle.checkpoint_note, log_keys)
    if standing.faulty:
        detail = f"the line of {', '.join(standing.faulty)} does not verify"
        return failed("L4", detail, Exit.UNTRUSTED)
    if not standing.is_signed_by_log:
        return failed("L4", "no log that the witness policy names signed this", Exit.UNTRUSTED)
    if policy.quorum is None:
        return not_checked("L4", "the witness policy asks for nobody: `quorum none`")
    if not standing.is_quorum:
        absent = ", ".join(each.shown for each in standing.absent)
        detail = f"the quorum of the witness policy is not met; no cosignature of {absent}"
        return failed("L4", detail, Exit.UNTRUSTED)
    names = ", ".join(each.shown for each in standing.cosigned)
    return passed("L4", f"the quorum of the witness policy is met, by {names}")


def _invariant_level(reading: Reading) -> Level:
    if reading.excerpt is not None:
        detail = "an excerpt tells no whole story; what it leaves out is fixed, but unseen"
        return not_checked("L6", detail, Exit.INCOMPLETE)
    count = reading.invariants.num_violations
    if count:
        return failed("L6", f"{count} violations")
    if reading.entry_fault is not None or reading.integrity_fault is not None:
        return not_checked("L6", _UNKNOWN)
    if missing := reading.invariants.missing:
        detail = f"no entry breaks a rule, but {len(missing)} documents to check are not enclosed"
        return not_checked("L6", detail, Exit.INCOMPLETE)
    return passed("L6", "the entries tell an allowed story")


def _document_level(bundle: Bundle, reading: Reading) -> Level:
    if reading.integrity_fault is not None:
        return not_checked("L7", _UNKNOWN)
    if set(bundle.manifest.missing) != reading.absent:
        return failed("L7", "the manifest does not name the documents that are missing")
    if reading.absent:
        detail = f"{len(reading.absent)} documents are not enclosed, as the manifest says"
        return failed("L7", detail, Exit.INCOMPLETE)
    whose = "an entry" if reading.excerpt is None else "an entry shown"
    return passed("L7", f"every document that {whose} refers to is enclosed")


def _policy_level(reading: Reading) -> Level:
    found = reading.invariants.signatures
    if not found.trusted.keys and not found.trusted.policies:
        return not_checked("L9", "no key of a policy's signer was given")
    is_excerpt = reading.excerpt is not None
    if reading.entry_fault is not None or reading.integrity_fault is not None or is_excerpt:
        detail = "an excerpt may leave policies out" if is_excerpt else _UNKNOWN
        return not_checked("L9", detail, Exit.INCOMPLETE if is_excerpt else Exit.VERIFIED)
    if found.faults:
        return failed("L9", found.faults[0])
    if found.unsigned:
        return failed("L9", found.unsigned[0], Exit.UNTRUSTED)
    if found.unknown or not found.num_trusted:
        detail = next(iter(found.unknown), "no policy was put in force")
        return not_checked("L9", detail, Exit.UNTRUSTED)
    return passed("L9", f"{found.num_trusted} policies in force, each signed by two or named")


def _disclosure_level(reading: Reading) -> Level:
    found = reading.disclosures
    if not found.num_given:
        return not_checked("L10", "no disclosed value was given")
    if reading.integrity_fault is not None or reading.entry_fault is not None:
        return not_checked("L10", _UNKNOWN)
    if found.faults:
        return failed("L10", found.faults[0])
    if found.absent:
        return failed("L10", f"no entry {found.absent[0]!a} is in this export", Exit.UNTRUSTED)
    return passed("L10", f"{found.num_given} disclosed values are what the entries committed to")
