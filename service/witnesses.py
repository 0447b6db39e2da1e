"""Asking witnesses to cosign a checkpoint before it is published (client of C2SP tlog-witness).

All are asked at the same time, each address once, with a deadline. What they answer is worth what
their keys verify: a line counts when it is a listed witness's over exactly this checkpoint, with a
time. Everything else is ignored, and who sent it is named in the operators' log. The one answer
that is believed without a signature is "I have cosigned more than you remember to have signed",
since whoever ignores it may be signing a second history: then nothing is signed until a person has
looked.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import structlog

from audit.keys import NoteError, VerifyKey, encode_base64
from audit.note import open_note, parse_checkpoint, parse_size, split_note
from audit.policy import (
    MAX_POLICY_BYTES,
    PolicyWitness,
    WitnessPolicy,
    WitnessPolicyError,
    evaluate_policy,
    parse_policy,
)
from audit.witnessing import SIZE_TYPE, write_request

log = structlog.get_logger(__name__)

DEADLINE_S = 5.0
_MAX_ANSWER_BYTES = 65_536
_OK, _CONFLICT = 200, 409
_AHEAD = (
    "the witness at {url} has cosigned {told} entries of this log, which remembers to have signed"
    " {signed}: this machine was restored from an older state, or that witness lies. Nothing more"
    " is signed until you compare what it gives under /<SHA-256 of the origin>/checkpoint: a true"
    " note of this log there proves the loss; else take the witness out of the policy file"
)

Prove = Callable[[int], Sequence[bytes]]
"""Gives the consistency proof from a size to the checkpoint's."""


class QuorumError(RuntimeError):
    """Too few witnesses cosigned for the policy; the next pass asks again."""


class WitnessAheadError(RuntimeError):
    """A witness has cosigned more entries of this log than it remembers to have signed."""


class _UselessError(Exception):
    """An answer that does not count; says why."""


@dataclass(frozen=True)
class _Reply:
    status: int
    content_type: str
    body: bytes


@dataclass(frozen=True)
class _Question:
    """What every witness is asked: cosign `note`; nobody may know more than `signed` entries."""

    note: bytes
    prove: Prove
    signed: int
    tries: int  # with two, the second follows the size that the first answer told

    @property
    def size(self) -> int:
        return parse_checkpoint(split_note(self.note)[0]).size


@dataclass
class Witnesses:
    """The witnesses of a policy, and how far each was seen to be.

    Args:
        policy: who is asked and how many are needed; URLs end without a slash.
        log_keys: the log's own keys, which never count as a witness's.
        deadline_s: seconds until an answer no longer counts.
    """

    policy: WitnessPolicy
    log_keys: Sequence[VerifyKey]
    deadline_s: float = DEADLINE_S
    _sizes: dict[str, int] = field(default_factory=dict, init=False)

    def settle(self, note: bytes, *, signed: int) -> None:
        """Ask witnesses that were not heard from yet about the newest checkpoint that was signed.

        So a restored machine learns of its lost entries before it signs anything new.

        Args:
            note: that checkpoint.
            signed: the largest size that this log remembers to have signed.

        Raises:
            WitnessAheadError: one has cosigned more than that.
        """
        unheard = [url for url in self._by_url() if url not in self._sizes]
        self._ask(unheard, _Question(note, lambda _: (), signed, tries=1))

    def cosigned(self, note: bytes, prove: Prove) -> bytes:
        """Return the note with the lines of every witness that cosigned it.

        Raises:
            QuorumError: they are too few for the policy.
            WitnessAheadError: a witness has cosigned more than the note's size.
        """
        size = parse_checkpoint(split_note(note)[0]).size
        found = self._ask(list(self._by_url()), _Question(note, prove, size, tries=2))
        lines = [found[each] for each in self.policy.witnesses if each in found]
        whole = note + "".join(lines).encode()
        standing = evaluate_policy(self.policy, whole, self.log_keys)
        if not standing.is_met:
            absent = ", ".join(each.shown for each in standing.absent)
            raise QuorumError(
                f"the checkpoint over {size} entries is not published: the witness policy is not"
                f" met without {absent}; they are asked again"
            )
        return whole

    def _ask(self, urls: Sequence[str], question: _Question) -> dict[PolicyWitness, str]:
        """Ask these at the same time; return the lines that count."""

        async def everyone() -> list[dict[PolicyWitness, str]]:
            async with httpx.AsyncClient(timeout=None) as client:  # noqa: S113 — `_within` limits
                asked = (self._within(client, url, question) for url in urls)
                return await asyncio.gather(*asked)

        found: dict[PolicyWitness, str] = {}
        if urls:
            for lines in asyncio.run(everyone()):
                found |= lines
        return found

    async def _within(
        self, client: httpx.AsyncClient, url: str, question: _Question
    ) -> dict[PolicyWitness, str]:
        names = ", ".join(each.shown for each in self._by_url()[url])
        try:
            async with asyncio.timeout(self.deadline_s):  # ends it however slowly it drips
                return await self._lines_of(client, url, question)
        except _UselessError as useless:
            log.warning("witness.ignored", witness=names, url=url, reason=str(useless)[:200])
        except (httpx.HTTPError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            log.warning("witness.away", witness=names, url=url, reason=reason[:200])
        return {}

    async def _lines_of(
        self, client: httpx.AsyncClient, url: str, question: _Question
    ) -> dict[PolicyWitness, str]:
        """Ask one address, a second time when it tells another size; return what counts."""
        size = question.size
        old = min(self._sizes.get(url, size), size)
        for _ in range(question.tries):
            proof = question.prove(old) if 0 < old < size else ()
            body = write_request(old, proof, question.note)
            reply = await _post(client, f"{url}/add-checkpoint", body)
            if reply.status != _CONFLICT:
                break
            told = _told_size(reply)
            if told > question.signed:
                self._sizes.pop(url, None)  # so that it is settled again before the next signature
                raise WitnessAheadError(_AHEAD.format(url=url, told=told, signed=question.signed))
            self._sizes[url] = old = told
            if told > size or question.tries == 1:
                return {}  # it has seen what was signed and not published yet, or is behind
        if reply.status == _CONFLICT:
            raise _UselessError("says 409 again, to the size that it told itself")
        if reply.status != _OK:
            raise _UselessError(f"answers {reply.status}: {reply.body[:120]!r}")
        found = _checked(question.note, reply.body, self._by_url()[url])
        self._sizes[url] = size
        return found

    def _by_url(self) -> Mapping[str, list[PolicyWitness]]:
        found: dict[str, list[PolicyWitness]] = {}
        for each in self.policy.witnesses:
            if each.url:
                found.setdefault(each.url, []).append(each)
        return found


def load_witnesses(path: Path, origin: str, vkeys: Iterable[str]) -> Witnesses:
    """Read the policy file of a log that asks its witnesses.

    Raises:
        WitnessPolicyError: malformed, about another log, or a quorum that cannot be reached with
            the witnesses that have a URL. OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        policy = parse_policy(file.read(MAX_POLICY_BYTES + 1))
    keys = [VerifyKey.parse(vkey) for vkey in vkeys]
    if policy.logs and not any(key in policy.logs for key in keys):
        raise WitnessPolicyError(f"the policy lists other logs than {origin}: add its `log` line")
    ours = {key.public_key for key in keys}
    for each in policy.witnesses:
        if each.key.name == origin or each.key.public_key in ours:
            raise WitnessPolicyError(f"witness {each.shown} is the log itself, which never counts")
        if each.url and not _is_address(each.url):
            raise WitnessPolicyError(f"witness {each.shown}: expected a URL http(s)://host[/path]")
    if not policy.is_met_by({each.name for each in policy.witnesses if each.url}):
        raise WitnessPolicyError(
            "the quorum needs witnesses that have no URL, so none can ask them"
        )
    bare = [PolicyWitness(each.name, each.key, each.url.rstrip("/")) for each in policy.witnesses]
    return Witnesses(WitnessPolicy(policy.logs, tuple(bare), policy.groups, policy.quorum), keys)


def _is_address(url: str) -> bool:
    parts = urlsplit(url)
    return (
        url.isascii()
        and parts.scheme in {"http", "https"}
        and bool(parts.hostname)
        and not (parts.query or parts.fragment or parts.username)
    )


async def _post(client: httpx.AsyncClient, url: str, body: bytes) -> _Reply:
    """Post, and read an answer of bounded size.

    Raises:
        httpx.HTTPError: no answer. _UselessError: one that is too large.
    """
    headers = {"Content-Type": "text/plain; charset=utf-8", "Accept-Encoding": "identity"}
    async with client.stream("POST", url, content=body, headers=headers) as answer:
        got = bytearray()
        async for chunk in answer.aiter_raw():
            got += chunk
            if len(got) > _MAX_ANSWER_BYTES:
                raise _UselessError(f"answers more than {_MAX_ANSWER_BYTES} bytes")
        kind = answer.headers.get("content-type", "").partition(";")[0].strip()
        return _Reply(answer.status_code, kind, bytes(got))


def _told_size(reply: _Reply) -> int:
    text = reply.body.decode("ascii", "replace")
    if reply.content_type != SIZE_TYPE or not text.endswith("\n"):
        raise _UselessError(f"says 409 without a size: expected {SIZE_TYPE} and one line")
    try:
        return parse_size(text[:-1])
    except NoteError as cause:
        raise _UselessError(f"says 409 without a size: {cause}") from cause


def _checked(
    note: bytes, body: bytes, witnesses: Sequence[PolicyWitness]
) -> dict[PolicyWitness, str]:
    """Return the line of each witness in the answer, verified over the note's text.

    Raises:
        _UselessError: a line of a listed key does not hold, or there is none.
    """
    text, _ = split_note(note)
    try:
        answered, lines = split_note(text.encode() + b"\n" + body)
    except NoteError as cause:
        raise _UselessError(f"answers with no signature lines: {cause}") from cause
    if answered != text:
        raise _UselessError("answers with more than signature lines")
    first = {(line.name, line.key_id): line.signature for line in reversed(lines)}
    found = {
        each: _checked_line(text, each, first[each.key.name, each.key.id])
        for each in witnesses
        if (each.key.name, each.key.id) in first
    }
    if not found:
        raise _UselessError("answers with no line of a key that the policy lists")
    return found


def _checked_line(text: str, witness: PolicyWitness, signature: bytes) -> str:
    key = witness.key
    line = f"\u2014 {key.name} {encode_base64(key.id + signature)}\n"
    try:
        verified = open_note(f"{text}\n{line}".encode(), [key]).verified[0]
    except NoteError as cause:
        raise _UselessError(str(cause)) from cause
    if not verified.timestamp:
        raise _UselessError(f"the cosignature of `{key.name}` has no time")
    return line
