"""`placet policy what-if`, `replay` and `explain`: the past, under these rules or others."""

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from enum import IntEnum
from pathlib import Path
from typing import Any

from policies.bundle import BundleError, policy_at
from policies.decision import Decision, GateError
from policies.gate import ReplayResult
from policies.gate import replay as replay_record
from policies.letter import letter
from policies.policy import Policy
from policies.reference import Reference, ReferenceDataError
from policies.render import explain as explanations
from policies.rule import RuleError
from policies.what_if import Change, compare, summary
from service.client import Client, path_of
from service.commands.connection import connected
from service.commands.errors import CommandError, Status
from service.commands.history import Past, of_export, of_service
from service.commands.output import line, machine, table

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?\Z")
_SHOWN = 20
_EVERY_S = 0.5


class Exit(IntEnum):
    """How a replay ends, as `placet verify` does."""

    IDENTICAL = 0
    DIFFERING = 1
    INCOMPLETE = 4


def what_if(arguments: argparse.Namespace) -> int:
    """Decide the past again under a candidate and list what changes."""
    candidate = _candidate(arguments.candidate)
    progress = Progress("decided again")
    with ExitStack() as stack:
        total, past = _opened(stack, arguments)
        changes = list(_compared(candidate, progress.over(past, total)))
    found = summary(changes)
    found |= {"policy": candidate.digest, "per_second": progress.rate}
    if arguments.json:
        machine(found)
    else:
        _show_what_if(found)
    counts = {
        "any": found["to_deny"] + found["from_deny"],
        "stricter": found["to_deny"],
        "milder": found["from_deny"],
        "never": 0,
    }
    return Status.REFUSED if counts[arguments.fail_on] else Status.OK


def _candidate(paths: Sequence[Path]) -> Policy:
    try:
        return policy_at(paths)
    except (RuleError, BundleError) as error:
        raise CommandError(f"the candidate is refused: {error}", Status.USAGE) from error
    except OSError as error:
        raise CommandError(f"cannot read `{error.filename}`", Status.USAGE) from error


def _compared(candidate: Policy, history: Iterator[Past]) -> Iterator[Change]:
    references: dict[str, Reference] = {}
    for past in history:
        try:
            if past.reference not in references:
                references[past.reference] = Reference.from_bytes(past.load(past.reference))
            yield from compare([past.record], candidate, references)
        except (GateError, ReferenceDataError) as error:
            raise CommandError(f"{past.name}: {error}") from error


def replay(arguments: argparse.Namespace) -> int:
    """Make past decisions again and compare every byte."""
    if not arguments.all and arguments.history is None:
        raise CommandError("give --all for the service's decisions, or --history", Status.USAGE)
    progress = Progress("replayed")
    counts = dict.fromkeys(("identical", "differing", "not_checked"), 0)
    wrong: list[dict[str, Any]] = []
    with ExitStack() as stack:
        total, history = _opened(stack, arguments)
        for past in progress.over(history, total):
            outcome, told = _replayed(past)
            counts[outcome] += 1
            if outcome != "identical":
                wrong.append({"decision": past.name, "subject": past.subject} | told)
    found = {"decisions": sum(counts.values()), **counts, "per_second": progress.rate}
    if arguments.json:
        machine({**found, "list": wrong})
    else:
        _show_replay(found, wrong)
    if counts["differing"]:
        return Exit.DIFFERING
    return Exit.INCOMPLETE if counts["not_checked"] or not found["decisions"] else Exit.IDENTICAL


def _replayed(past: Past) -> tuple[str, dict[str, Any]]:
    try:
        result = replay_record(past.record, past.load(past.policy), past.load(past.reference))
    except (GateError, RuleError, ReferenceDataError) as error:
        return "differing", {"outcome": "differing", "detail": str(error)}
    outcome = _outcome(result)
    members = ", ".join(result.differing) or "its inputs' digests"
    told = result.not_checked if outcome == "not_checked" else members
    return outcome, {"outcome": outcome, "detail": told}


def _outcome(result: ReplayResult) -> str:
    """Level 2 that could not be checked is no pass; level 1 that fails is a difference."""
    if result.identical:
        return "identical"
    is_unchecked = result.same_inputs and result.same_output and result.same_derived is None
    return "not_checked" if is_unchecked else "differing"


def explain(arguments: argparse.Namespace) -> int:
    """Explain a decision from exactly what it was made from."""
    with connected(arguments) as client:
        path = f"/v1/decisions/{_decision_of(client, arguments.id)}"
        record = client.get_bytes(f"{path}/record")
        policy = client.get_bytes(f"{path}/policy")
        reference = client.get_bytes(f"{path}/reference")
    try:
        decision, rules = Decision.from_record(record), Policy.from_bytes(policy)
        tables = Reference.from_bytes(reference)
    except (GateError, RuleError, ReferenceDataError) as error:
        raise CommandError(f"the service's answer cannot be read: {error}") from error
    if arguments.json:
        found = explanations(decision, rules, arguments.language, tables)
        machine({"verdict": decision.verdict, "findings": found})
        return Status.OK
    # Nothing in a letter can steer a terminal; its numbers hold spaces that `line` would escape.
    sys.stdout.write(letter(decision, rules, tables, arguments.language))
    return Status.OK


def _decision_of(client: Client, name: str) -> str:
    if name.startswith("dec_"):
        return name
    decision = client.get(path_of(name))["decision"]
    if decision is None:
        raise CommandError(f"`{name}` has no decision yet")
    return str(decision["id"])


def _opened(stack: ExitStack, arguments: argparse.Namespace) -> tuple[int, Iterator[Past]]:
    since = arguments.since
    if since is not None and not _DAY.match(since):
        raise CommandError(f"--since `{since}`: expected YYYY-MM-DD", Status.USAGE)
    if arguments.history is not None:
        return stack.enter_context(of_export(arguments.history, since=since))
    client = stack.enter_context(connected(arguments))
    return of_service(client, since=since)


class Progress:
    """Says on a terminal how far long work is, and how fast it was.

    Args:
        verb: what is done to each.
        clock: seconds that only ever grow.
    """

    def __init__(self, verb: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._verb = verb
        self._clock = clock
        self._seconds = 0.0
        self._done = 0

    @property
    def rate(self) -> int:
        """How many a second."""
        return round(self._done / self._seconds) if self._seconds else 0

    def over(self, history: Iterator[Past], total: int) -> Iterator[Past]:
        """Pass the history on, counting."""
        start = last = self._clock()
        for past in history:
            yield past
            self._done += 1
            now = self._clock()
            self._seconds = now - start
            if now - last >= _EVERY_S and sys.stderr.isatty():
                sys.stderr.write(f"\r\x1b[K{self._verb}: {self._done} of {total}")
                sys.stderr.flush()
                last = now
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")


def _show_what_if(found: dict[str, Any]) -> None:
    line(
        f"{found['decisions']} decisions again, {found['changed']} come out otherwise:"
        f" {found['stricter']} stricter, {found['milder']} milder"
        f" ({found['per_second']} a second)"
    )
    if found["verdicts"]:
        line()
        table(("before", "after", "count"), found["verdicts"])
    if found["rules"]:
        rows = [
            {"rule": one["rule"], **each, "verdicts": one["verdicts"]}
            for one in found["rules"]
            for each in one["outcomes"]
        ]
        line()
        table(("rule", "before", "after", "count", "verdicts"), rows)
    if found["changed"]:
        line()
        table(("team", "decisions", "stricter", "milder", "to_deny", "from_deny"), found["teams"])
        line()
        table(("subject", "team", "evaluated_at", "before", "after"), found["list"][:_SHOWN])
        if found["changed"] > _SHOWN:
            line(f"… and {found['changed'] - _SHOWN} more; --json lists all")


def _show_replay(found: dict[str, Any], wrong: list[dict[str, Any]]) -> None:
    line(
        f"{found['decisions']} decisions: {found['identical']} identical,"
        f" {found['differing']} differing, {found['not_checked']} not checked"
        f" ({found['per_second']} a second)"
    )
    for one in wrong[:_SHOWN]:
        line(f"  {one['decision']}  {one['subject']}  {one['outcome']}: {one['detail']}")
    if len(wrong) > _SHOWN:
        line(f"  … and {len(wrong) - _SHOWN} more; --json lists all")
