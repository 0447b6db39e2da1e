"""What a run costs: FLOP in three conventions, energy, memory.

Executed FLOP per token of a frozen base with adapters, matrix products only (attention scores, a
few per cent for short documents, are left out):

    trained    4 N_body + 6 N_adapter   forward and activations backward; no base gradient
    evaluated  2 N_body + 2 N_adapter
    and for each supervised token 4 N_head when trained, 2 N_head when evaluated

Energy comes from the processor's own counters (Linux powercap, "RAPL"), which count the whole
package, whoever else uses it. Where none can be read, or a GPU did the work, it is unknown, never
zero.
"""

import resource
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Parameters of a model: all of the base, its multiplied body and head, and the adapter's."""

    total: int
    body: int
    head: int
    adapter: int


def executed_flop(
    size: Size, *, tokens: int, targets: int, tokens_evaluated: int, targets_evaluated: int
) -> int:
    """Return the FLOP of all matrix products of a run."""
    trained = tokens * (4 * size.body + 6 * size.adapter) + targets * 4 * size.head
    evaluated = tokens_evaluated * 2 * (size.body + size.adapter)
    return trained + evaluated + targets_evaluated * 2 * size.head


def architecture_flop(size: Size, *, tokens: int) -> int:
    """Return 6 x parameters x tokens, the convention for training compute."""
    return 6 * size.total * tokens


@dataclass(frozen=True, slots=True)
class EnergyReading:
    """Counter values by zone in microjoules, with the value at which each wraps to 0."""

    zones: Mapping[str, tuple[int, int]]

    @staticmethod
    def take(powercap: Path = POWERCAP) -> "EnergyReading":
        """Read every package counter that this process may read."""
        zones = {}
        for zone in sorted(powercap.glob("intel-rapl:*")):
            if zone.name.count(":") != 1:  # sub-zones are parts of their package
                continue
            try:
                value = int((zone / "energy_uj").read_text())
                zones[zone.name] = (value, int((zone / "max_energy_range_uj").read_text()))
            except (OSError, ValueError):
                continue
        return EnergyReading(zones)

    def joules_until(self, later: "EnergyReading") -> Decimal | None:
        """Return the energy between two readings, None when a counter cannot be read.

        A counter that wrapped once is corrected; segments longer than a wrap (about an hour under
        full load) must be read in between.
        """
        if not self.zones or self.zones.keys() != later.zones.keys():
            return None
        total = sum(
            (later.zones[name][0] - value) % (top + 1) for name, (value, top) in self.zones.items()
        )
        return Decimal(total) / 1_000_000 if total else None

    @property
    def method(self) -> str:
        """Say in words how energy is found."""
        if self.zones:
            return f"powercap counters of {len(self.zones)} processor packages, whole machine"
        return "unknown: this process can read no energy counter"


def peak_memory_bytes() -> int:
    """Return the largest resident set of this process so far (Linux reports KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def cpu_seconds() -> float:
    """Return user and system time of this process and of all its threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
