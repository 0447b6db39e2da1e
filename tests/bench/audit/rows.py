"""A measurement, and the ratios that say something about several of them."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One measurement; what does not apply is None."""

    what: str
    per_s: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    more: str = ""

    def figures(self) -> str:
        """Return what was measured, for a table."""
        parts = [
            "" if self.per_s is None else f"{self.per_s:>12,.0f}/s",
            "" if self.p50_ms is None else f"p50 {self.p50_ms:8.3f} ms",
            "" if self.p99_ms is None else f"p99 {self.p99_ms:8.3f} ms",
            self.more,
        ]
        return "  ".join(part for part in parts if part)

    def to_document(self) -> dict[str, Any]:
        """Return the form for JSON."""
        return asdict(self)


def spread(what: str, seconds: Sequence[float], *, more: str = "") -> Row:
    """Make a row of single times in seconds."""
    taken = sorted(seconds)
    return Row(
        what,
        per_s=1 / statistics.fmean(taken),
        p50_ms=taken[len(taken) // 2] * 1e3,
        p99_ms=taken[min(len(taken) - 1, len(taken) * 99 // 100)] * 1e3,
        more=more,
    )


def ratios(rows: Sequence[Row]) -> Iterator[str]:
    """Yield one line for each comparison whose two sides were measured."""
    rate = {row.what: row.per_s for row in rows if row.per_s}
    p50 = {row.what: row.p50_ms for row in rows if row.p50_ms}

    def line(text: str, ours: float | None, theirs: float | None) -> Iterator[str]:
        if ours and theirs:
            yield text.format(ours / theirs)

    plain, outbox = rate.get("transactions, plain"), rate.get("transactions, with their entry")
    yield from line("with its entry a transaction reaches {:.0%} of plain", outbox, plain)
    chain = rate.get("transactions, chain with one head row")
    yield from line("with its entry {:.1f}x the transactions of a head-row chain", outbox, chain)
    proof = p50.get("inclusion proof from files")
    peer = p50.get("pymerkle, SQLite, 50,000 leaves: inclusion proof")
    yield from line(
        "pymerkle on SQLite takes {:.1f}x as long for a proof, in a smaller tree", peer, proof
    )
    built = rate.get("tiles built and hashed, in memory")
    peer = rate.get("pymerkle, in memory: append")
    yield from line("tiles are built at {:.1f}x the rate of pymerkle's append", built, peer)
