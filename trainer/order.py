"""The order in which packs are seen: a Philox permutation per epoch, so the cursor is one integer.

Epoch `e` of a run with seed `s` visits the packs in the order of `philox(key=s, counter=(i, e))`.
Position `c` of the run is pack `c % n` of epoch `c // n`; an update takes the next `packs_per_step`
positions, across epoch borders, and the last update takes what is left. Nothing else is random, and
any number of machines that share the seed see the same sequence.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), Philox4x32-10.
"""

from collections.abc import Sequence
from functools import lru_cache

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_WORD = 0xFFFFFFFF


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return four random 32-bit words; each argument is made of 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _WORD, (p0 >> 32) ^ c3 ^ k1, p0 & _WORD
        k0, k1 = (k0 + _W0) & _WORD, (k1 + _W1) & _WORD
    return c0, c1, c2, c3


@lru_cache(maxsize=4)
def permutation(seed: int, epoch: int, size: int) -> Sequence[int]:
    """Return the order of `size` packs in one epoch; cost O(size log size)."""
    return sorted(range(size), key=lambda i: philox((i, epoch, 0, 0), (seed, 0)))


def num_steps(*, num_packs: int, packs_per_step: int, epochs: int, max_steps: int) -> int:
    """Return the updates of a run; `max_steps` 0 sets no limit."""
    steps = -(-num_packs * epochs // packs_per_step)
    return min(steps, max_steps) if max_steps else steps


def step_packs(
    *, seed: int, cursor: int, num_packs: int, packs_per_step: int, epochs: int
) -> list[int]:
    """Return the indices of the packs of the update that starts at `cursor`.

    Args:
        seed: The run's seed.
        cursor: Packs already seen.
        num_packs: Packs in one epoch.
        packs_per_step: Packs an update takes.
        epochs: Passes over all packs.
    """
    end = min(cursor + packs_per_step, num_packs * epochs)
    return [
        permutation(seed, place // num_packs, num_packs)[place % num_packs]
        for place in range(cursor, end)
    ]
