"""Measure the gate: decisions, evaluation alone, replay; beside OPA as a library.

    python tests/bench/gate/bench.py [--opa FOLDER] [--jobs 2000] [--json FILE]

Nothing is asserted but that answers agree; README.md says how to read the table.
"""

import argparse
import copy
import gc
import hashlib
import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[3])]

from opa import VERSION, Opa, unpacked
from twelve import policy_of_twelve, rego_of_twelve

from policies import asking, judging
from policies.batch import replay_all
from policies.cases import CASE_SITE
from policies.decision import parse_instant
from policies.deriving import derive
from policies.evaluator import Evaluator, PythonEvaluator, RustEvaluator
from policies.facts import taken
from policies.gate import decide, replay
from policies.load import PACKS, load_reference, policy_of, read_packs
from policies.memory import Written
from policies.policy import Policy

Row = dict[str, Any]
ENGINES: tuple[Evaluator, ...] = (RustEvaluator(), PythonEvaluator())
_NODE = b"\x01" + bytes(64)
SUBJECT, DAY = "job:job_01@1", "2026-11-30"
REFERENCE = load_reference(site=CASE_SITE)


def jobs(count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield instants and facts of as many different jobs: own ids, digests, costs, sizes, data."""
    rng = random.Random(1)
    packs = {name: facts for pack in read_packs([PACKS]) for name, facts in pack.bases.items()}
    bases = [packs[name] for name in ("public", "personal", "special", "health")]
    for number in range(count):
        facts = copy.deepcopy({k: v for k, v in rng.choice(bases).items() if k != "derived"})
        digest = f"sha256:{rng.getrandbits(256):064x}"
        facts["job"] |= {
            "id": f"job_{number:026}",
            "team": f"team-{rng.randrange(40)}",
            "document_digest": digest,
            "spec_digest": digest[:-4] + "0000",
            "max_minutes": rng.randrange(30, 3000),
        }
        facts["compute"] |= {"gpus": rng.choice((0, 1, 1, 2, 4, 8))}
        data = rng.randrange(200)
        facts["datasets"][0] |= {"id": f"ds_{data:04}", "digest": f"sha256:{data:064x}"}
        facts["training"] = {
            "flop_1e15": rng.randrange(1, 10**6),
            "estimated_minutes": rng.randrange(5, 3000),
        }
        budget = rng.randrange(100, 10**6)
        facts["cost"] = {"estimate_cents": rng.randrange(budget * 11 // 10), "budget_cents": budget}
        yield f"{DAY}T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z", facts


def timed(name: str, calls: Iterable[Callable[[], object]], **more: Any) -> Row:
    """Time each call once; collect microseconds at p50 and p99."""
    clock = time.perf_counter_ns
    taken = []
    gc.collect()
    gc.freeze()  # the jobs made in advance are no garbage of the gate
    for call in calls:
        start = clock()
        call()
        taken.append(clock() - start)
    taken.sort()
    return {
        "what": name,
        "p50_us": round(taken[len(taken) // 2] / 1000, 1),
        "p99_us": round(taken[len(taken) * 99 // 100] / 1000, 1),
        "per_s": round(1e9 / statistics.fmean(taken)),
        **more,
    }


def decisions(name: str, policy: Policy, work: Sequence[Any], engine: Evaluator) -> Iterator[Row]:
    """Measure decisions with record on jobs never seen before, and with an empty memory."""

    def one(at: str, facts: Any) -> object:
        return decide(policy, REFERENCE, facts, evaluated_at=at, subject=SUBJECT, evaluator=engine)

    one(*work[0])
    calls = [lambda job=job: one(*job) for job in work]
    more = {"rules": len(policy.rules), "engine": engine.name}
    yield timed(f"decide + record, {name}", calls, **more)

    def emptied() -> Iterator[Callable[[], object]]:
        for call in calls[: len(calls) // 10]:
            judging._bench.cache_clear()
            judging._bench(policy, engine, "train", _era(policy))
            yield call

    yield timed(f"decide + record, {name}, nothing remembered", emptied(), **more)


def _era(policy: Policy) -> int:
    return sum(edge <= f"{DAY}T00:00:00Z" for edge in policy.edges)


def evaluations(name: str, policy: Policy, work: Sequence[Any], engine: Evaluator) -> Iterator[Row]:
    """Measure the rules alone, on facts that are parsed and derived already."""
    derived = [(f, derive(f, REFERENCE, parse_instant(at))) for at, f in work]
    seen = [(taken(facts, ()), Written.of(more)) for facts, more in derived]
    more = {"rules": len(policy.rules), "engine": engine.name}
    bench = judging._bench(policy, engine, "train", _era(policy))
    yield timed(
        f"evaluation alone, {name}",
        [lambda s=s: bench.panel.answers(*s) for s in seen],
        **more,
    )
    asked = [c for c in judging._compiled(policy, engine) if "train" in c.rule.stages]

    def everything(checked: Any, made: Any) -> object:
        whole = {**checked.facts, "derived": made.value}
        return [asking.ask(one, whole) for one in asked]

    part = seen[: max(1, len(seen) // 10)]
    yield timed(
        f"evaluation alone, {name}, nothing remembered",
        [lambda s=s: everything(*s) for s in part],
        **more,
    )


def peer(name: str, copies: int, work: Sequence[Any], library: Path) -> Row:
    """Measure OPA on the same rules; its answers must be ours first."""
    policy, opa = policy_of_twelve(copies), Opa(library, rego_of_twelve(copies))
    texts = []
    for at, facts in work:
        made = decide(policy, REFERENCE, facts, evaluated_at=at, subject=SUBJECT)
        seen = {**facts, "derived": made.document["derived"]}
        texts.append(json.dumps(seen, ensure_ascii=False).encode())
        if opa.outcomes(texts[-1]) != {f.rule: f.outcome for f in made.results}:
            raise SystemExit(f"OPA and the gate answer differently about {seen}")
    calls = [lambda text=text: opa.evaluate(text) for text in texts]
    return timed(f"OPA evaluation alone, {name}", calls, rules=12 * copies, engine=f"opa {VERSION}")


def replays(name: str, policy: Policy, work: Sequence[Any], workers: int) -> Row:
    """Measure replays of records that all differ, ten times as many when there are workers."""
    more_work = work if workers == 1 else jobs(10 * len(work))
    records = [
        decide(policy, REFERENCE, facts, evaluated_at=at, subject=SUBJECT).record
        for at, facts in more_work
    ]
    inputs = policy.to_bytes(), REFERENCE.to_bytes()
    what = f"replay, {name}, {workers} process(es)"
    more = {"rules": len(policy.rules), "engine": ENGINES[0].name}
    if workers == 1:
        calls = [lambda record=record: replay(record, *inputs) for record in records]
        row = timed(what, calls, **more)
        if not all(call().identical for call in calls):
            raise SystemExit("a record does not replay")
        return row
    results = replay_all(records, *inputs, workers=workers)
    for _ in range(len(records) // 5):  # the first chunks pay for starting the processes
        next(results)
    gc.collect()
    gc.freeze()
    start, count = time.perf_counter(), 0
    for result in results:
        count += 1
        if not result.identical:
            raise SystemExit("a record does not replay")
    taken = time.perf_counter() - start
    return {
        "what": what,
        **more,
        "p50_us": round(taken / count * 1e6, 1),
        "p99_us": None,
        "per_s": round(count / taken),
    }


def _probe() -> object:
    return hashlib.sha256(_NODE).digest()


def measured(arguments: argparse.Namespace) -> Iterator[Row]:
    """Take all measurements."""
    yield timed("probe: SHA-256 of 65 bytes", [_probe] * 100_000, engine="hashlib", rules=0)
    work = list(jobs(arguments.jobs))
    shipped = policy_of(read_packs([PACKS]))
    sizes = (
        ("12 rules", policy_of_twelve()),
        ("shipped packs", shipped),
        ("240 rules", policy_of_twelve(20)),
    )
    sizes = tuple((name, policy) for name, policy in sizes if arguments.only in name)
    for name, policy in sizes:
        for engine in ENGINES:
            part = work if engine is ENGINES[0] else work[: len(work) // 4]
            yield from decisions(name, policy, part, engine)
            yield from evaluations(name, policy, part, engine)
    library = unpacked(arguments.opa) if arguments.opa else None
    if library is not None:
        for name, copies in (("12 rules", 1), ("240 rules", 20)):
            if arguments.only not in name:
                continue
            yield peer(name, copies, work[:: max(1, copies // 2)], library)
    for name, policy in sizes:
        for workers in (1, 2):
            yield replays(name, policy, work, workers)


def main() -> int:
    """Print the table, and write it as JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--opa", type=Path, help="folder of the unpacked OPA wheel, or of the wheel"
    )
    parser.add_argument("--jobs", type=int, default=2000, help="how many different jobs")
    parser.add_argument("--only", default="", help="measure policies whose name holds this")
    parser.add_argument("--json", type=Path, help="write the rows here")
    arguments = parser.parse_args()
    rows = []
    write = sys.stdout.write
    write(f"{platform.platform()}, Python {platform.python_version()}\n")
    write(f"{'':58} {'engine':14} {'rules':>5} {'p50 µs':>9} {'p99 µs':>9} {'per s':>8}\n")
    for row in measured(arguments):
        rows.append(row)
        p99 = "" if row["p99_us"] is None else row["p99_us"]
        write(
            f"{row['what']:58} {row['engine']:14} {row['rules']:5} "
            f"{row['p50_us']:9} {p99!s:>9} {row['per_s']:8}\n"
        )
    p50 = {row["what"]: row["p50_us"] for row in rows if row["engine"] != "jsonschema"}
    for name in ("12 rules", "240 rules"):
        if (theirs := p50.get(f"OPA evaluation alone, {name}")) is not None:  # the fair sentence
            ours = p50[f"evaluation alone, {name}"]
            bare = p50[f"evaluation alone, {name}, nothing remembered"]
            whole = p50[f"decide + record, {name}"]
            write(
                f"{name}: OPA takes {theirs / ours:.1f}x as long as our evaluation, "
                f"{theirs / bare:.1f}x as long with nothing remembered, "
                f"{theirs / whole:.1f}x as long as the whole decision with its record\n"
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
