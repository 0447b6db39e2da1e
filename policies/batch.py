"""Replaying many records that share a policy and reference data, on one core or on several.

    for result in replay_all(records, policy_bytes, reference_bytes, workers=2): …

Another process costs about two seconds before its first record, for it reads the policy and the
reference data again; so several workers pay from some ten thousand records on.
"""

import functools
import gc
import itertools
import multiprocessing
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

from policies.decision import GateError
from policies.gate import ReplayResult, replay
from policies.policy import Policy

CHUNK = 256


def replay_all(
    records: Iterable[bytes], policy_bytes: bytes, reference_bytes: bytes, *, workers: int = 1
) -> Iterator[ReplayResult | GateError]:
    """Replay every record, in order; a malformed one gives its error, and the others go on.

    `workers` is the number of processes; 1 starts none.

    Raises:
        RuleError: the policy is malformed.
        ReferenceDataError: the reference data are.
    """
    Policy.from_bytes(policy_bytes)
    if workers == 1:
        for record in records:
            yield _replay(record, policy_bytes, reference_bytes)
        return
    with ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(policy_bytes, reference_bytes),
    ) as pool:
        for results in pool.map(_replay_chunk, _chunks(records)):
            for result in results:
                yield _identical(result) if isinstance(result, str) else result


# What a worker process was started with: it replays for one policy only.
_INPUTS: list[bytes] = []


def _begin(*inputs: bytes) -> None:
    _INPUTS[:] = inputs
    Policy.from_bytes(inputs[0])
    gc.freeze()  # what every record needs is never garbage: not looked at again and again
    gc.set_threshold(100_000)  # replaying leaves no cycles behind


def _chunks(records: Iterable[bytes]) -> Iterator[list[bytes]]:
    remaining = iter(records)
    while chunk := list(itertools.islice(remaining, CHUNK)):
        yield chunk


def _replay_chunk(records: list[bytes]) -> list[ReplayResult | GateError | str]:
    """Replay, and answer with the verdict alone for what is as it was: that is quick to send."""
    results = (_replay(record, *_INPUTS) for record in records)
    return [r.verdict if isinstance(r, ReplayResult) and r.identical else r for r in results]


@functools.cache
def _identical(verdict: str) -> ReplayResult:
    return ReplayResult(True, True, True, (), verdict)


def _replay(record: bytes, policy_bytes: bytes, reference_bytes: bytes) -> ReplayResult | GateError:
    try:
        return replay(record, policy_bytes, reference_bytes)
    except GateError as error:
        return error
