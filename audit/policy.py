"""Which witnesses must have cosigned: policy files as C2SP tlog-policy writes them.

    log placet.example.org/log+3f0a…+AbC…               a log, by its vkey; its name is the origin
    witness north witness.example.net+9e1c…+BIZ… https://witness.example.net/
    witness south witness.example.com+77d0…+BFL… https://witness.example.com/
    group two-sites all north south                      `all`, `any`, or how many of them
    quorum two-sites                                     a name from above, or `none`

Items are parted by spaces and tabs, `#` begins a comment line, every line ends in a newline (a file
that was cut off is refused). Names mean nothing outside the file and are opaque octets. A name is
used after the line that defines it, and is a member of one group at most, so that a witness counts
once. One public key stands on one line only, whatever its name or type: not as two witnesses, and
not as a log and its witness.

A note meets a policy when a listed log signed it under the origin as its name (where logs are
listed), the quorum cosigned it, and no line of a listed key fails. A line under the log's own name
never counts as a witness's, and neither does one without a time, which states nothing about when.

Source: c2sp.org/tlog-policy, commit 13027ee; c2sp.org/tlog-cosignature v1.0.1.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from audit.keys import ED25519, ED25519_COSIGNATURE, MLDSA44, NoteError, VerifyKey
from audit.note import open_note, parse_checkpoint, parse_size, split_note

MAX_POLICY_BYTES = 1_048_576
_LOG_KINDS = (ED25519, MLDSA44)
_WITNESS_KINDS = (ED25519_COSIGNATURE, MLDSA44)
_NOBODY = b"none"


class WitnessPolicyError(ValueError):
    """A policy file is malformed; the message says in which line and what was expected."""


@dataclass(frozen=True)
class PolicyWitness:
    """One witness: its name in the file, its key, and the submission URL or ""."""

    name: bytes
    key: VerifyKey
    url: str

    @property
    def shown(self) -> str:
        """The name for messages; octets that are no UTF-8 show as U+FFFD."""
        return self.name.decode("utf-8", "replace")


@dataclass(frozen=True)
class WitnessGroup:
    """A group counts as one that cosigned when at least `threshold` of its members do."""

    name: bytes
    threshold: int
    members: tuple[bytes, ...]


@dataclass(frozen=True)
class WitnessPolicy:
    """A parsed policy. `quorum` is the name that must have cosigned, None for `none`."""

    logs: tuple[VerifyKey, ...]
    witnesses: tuple[PolicyWitness, ...]
    groups: tuple[WitnessGroup, ...]
    quorum: bytes | None

    def is_met_by(self, names: Collection[bytes]) -> bool:
        """Say whether these witnesses are enough; linear in the size of the policy."""
        cosigned = {each.name for each in self.witnesses if each.name in names}
        for group in self.groups:  # members are defined before their group
            if len(cosigned.intersection(group.members)) >= group.threshold:
                cosigned.add(group.name)
        return self.quorum is None or self.quorum in cosigned


@dataclass(frozen=True)
class Standing:
    """How a note stands to a policy; `faulty` names listed keys whose line does not verify."""

    is_signed_by_log: bool
    cosigned: tuple[PolicyWitness, ...]
    absent: tuple[PolicyWitness, ...]
    faulty: tuple[str, ...]
    is_quorum: bool

    @property
    def is_met(self) -> bool:
        """Whether the note is valid by the policy."""
        return self.is_signed_by_log and self.is_quorum and not self.faulty


def parse_policy(raw: bytes) -> WitnessPolicy:
    """Read a policy file.

    Raises:
        WitnessPolicyError: anything that the module's text does not allow, with its line.
    """
    if len(raw) > MAX_POLICY_BYTES:
        raise WitnessPolicyError(f"policy of {len(raw)} bytes: at most {MAX_POLICY_BYTES}")
    if any(octet < 0x20 and octet not in b"\t\n" for octet in raw) or 0x7F in raw:
        raise WitnessPolicyError("policy has a control character other than tab and newline")
    if not raw.endswith(b"\n"):
        raise WitnessPolicyError("policy does not end in a newline: it is empty or was cut off")
    draft = _PolicyDraft()
    for number, line in enumerate(raw[:-1].split(b"\n"), 1):
        items = line.replace(b"\t", b" ").split(b" ")
        words = [item for item in items if item]
        if not words or words[0].startswith(b"#"):
            continue
        try:
            draft.add(words)
        except (WitnessPolicyError, NoteError) as cause:
            raise WitnessPolicyError(f"policy line {number}: {cause}") from cause
    return draft.finished()


def evaluate_policy(
    policy: WitnessPolicy, note: bytes, log_keys: Iterable[VerifyKey] = ()
) -> Standing:
    """Hold a checkpoint note against a policy.

    Args:
        policy: what the reader asks for.
        note: the checkpoint with all its signature lines.
        log_keys: keys that the reader knows to be the log's, beside those the policy lists: they
            stand in for listed logs when there are none, and never count as witnesses.

    Raises:
        NoteError: the note is malformed.
    """
    text, lines = split_note(note)
    origin = parse_checkpoint(text).origin
    signed = {(line.name, line.key_id) for line in lines}
    own = tuple(policy.logs or log_keys)
    known = {key.public_key for key in (*policy.logs, *log_keys)}
    faulty: list[str] = []

    def verifies(key: VerifyKey, *, timed: bool) -> bool:
        if (key.name, key.id) not in signed:
            return False
        if _is_good_line(note, key, timed=timed):
            return True
        faulty.append(key.name)
        return False

    by_log = [verifies(key, timed=False) for key in own if key.name == origin]
    cosigned = tuple(
        each
        for each in policy.witnesses
        # INVARIANT: the log is no witness of itself, under its name or with its key.
        if each.key.name != origin
        and each.key.public_key not in known
        and verifies(each.key, timed=True)
    )
    return Standing(
        any(by_log),
        cosigned,
        tuple(each for each in policy.witnesses if each not in cosigned),
        tuple(faulty),
        policy.is_met_by({each.name for each in cosigned}),
    )


def _is_good_line(note: bytes, key: VerifyKey, *, timed: bool) -> bool:
    try:
        verified = open_note(note, [key]).verified[0]
    except NoteError:
        return False
    return not timed or bool(verified.timestamp)


@dataclass
class _PolicyDraft:
    """A policy while its lines are read."""

    logs: list[VerifyKey] = field(default_factory=list)
    witnesses: list[PolicyWitness] = field(default_factory=list)
    groups: list[WitnessGroup] = field(default_factory=list)
    quorums: list[bytes] = field(default_factory=list)
    _free: dict[bytes, bool] = field(default_factory=dict)  # name -> is no member of a group yet
    _public_keys: set[bytes] = field(default_factory=set)

    def add(self, words: Sequence[bytes]) -> None:
        """Take the items of one line."""
        readers: dict[bytes, Callable[[Sequence[bytes]], None]] = {
            b"log": self._log,
            b"witness": self._witness,
            b"group": self._group,
            b"quorum": self._quorum,
        }
        if words[0] not in readers:
            raise WitnessPolicyError("expected log, witness, group or quorum")
        readers[words[0]](words[1:])

    def finished(self) -> WitnessPolicy:
        """Return the whole policy."""
        if not self.quorums:
            raise WitnessPolicyError("policy has no quorum line; `quorum none` asks for nobody")
        quorum = None if self.quorums[0] == _NOBODY else self.quorums[0]
        return WitnessPolicy(tuple(self.logs), tuple(self.witnesses), tuple(self.groups), quorum)

    def _log(self, words: Sequence[bytes]) -> None:
        if not 1 <= len(words) <= 2:
            raise WitnessPolicyError("expected `log <vkey> [<url>]`")
        self.logs.append(self._key(words[0], _LOG_KINDS, "0x01 or 0x06, as logs sign"))

    def _witness(self, words: Sequence[bytes]) -> None:
        if not 2 <= len(words) <= 3:
            raise WitnessPolicyError("expected `witness <name> <vkey> [<url>]`")
        key = self._key(words[1], _WITNESS_KINDS, "0x04 or 0x06, as witnesses cosign")
        self._define(words[0])
        url = words[2].decode("utf-8", "surrogateescape") if len(words) == 3 else ""
        self.witnesses.append(PolicyWitness(words[0], key, url))

    def _group(self, words: Sequence[bytes]) -> None:
        if len(words) < 3:
            raise WitnessPolicyError("expected `group <name> <k>|any|all <name>...`")
        name, asked, *members = words
        for member in members:
            if not self._free.get(member, False):
                raise WitnessPolicyError(
                    f"{member!r} was not defined above, or is a member of a group already"
                )
            self._free[member] = False
        threshold = {b"any": 1, b"all": len(members)}.get(asked)
        if threshold is None:
            threshold = parse_size(asked.decode("ascii", "replace"))
        if not 1 <= threshold <= len(members):
            raise WitnessPolicyError(f"expected 1 to {len(members)}, `any` or `all`")
        self._define(name)
        self.groups.append(WitnessGroup(name, threshold, tuple(members)))

    def _quorum(self, words: Sequence[bytes]) -> None:
        if len(words) != 1 or self.quorums:
            raise WitnessPolicyError("expected one `quorum <name>|none` in the whole file")
        if words[0] != _NOBODY and words[0] not in self._free:
            raise WitnessPolicyError(f"{words[0]!r} was not defined above")
        self.quorums.append(words[0])

    def _define(self, name: bytes) -> None:
        if name == _NOBODY or name in self._free:
            raise WitnessPolicyError(f"{name!r} is taken: names are defined once, `none` never")
        self._free[name] = True

    def _key(self, vkey: bytes, kinds: Sequence[int], expected: str) -> VerifyKey:
        try:
            key = VerifyKey.parse(vkey.decode("utf-8"))
        except UnicodeDecodeError as cause:
            raise WitnessPolicyError("vkey is not valid UTF-8") from cause
        if key.kind not in kinds:
            raise WitnessPolicyError(f"vkey of type 0x{key.kind:02x}: expected {expected}")
        if key.public_key in self._public_keys:
            raise WitnessPolicyError(f"the public key of `{key.name}` stands on a line above")
        self._public_keys.add(key.public_key)
        return key
