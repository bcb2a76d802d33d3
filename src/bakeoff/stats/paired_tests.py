"""Two candidates on the same tasks: could the differences be chance?

    sign_flip    if nobody is better, each task's difference might as well have the other sign.
                 Exact where the sums of all those flips can be counted, else a seeded sample.
    mcnemar      scores that are 0 or 1, once each: of the tasks that only one of the two solves,
                 how many are the first's? The exact p is that of `sign_flip`.

The differences lie in [-1, 1]. What counts is their sizes, and how often each occurs: that many
signs are a binomial number. Task means of a few rollouts have few sizes and sums on a grid, so that
thousands of tasks can still be counted out; of continuous scores, about two dozen can.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MOST_SIZES = 26
_MOST_SUMS = 2 ** (_MOST_SIZES // 2)
_MOST_AT_ONCE = 2**20
_DRAWS = 9_999
_FEW = 1_000
_SEED = 20_240_613
# Equal sizes and sums differ by rounding: they are taken as equal up to these digits.
_SIZE_DIGITS, _SUM_DIGITS, _ROUNDING = 12, 9, 1e-7


@dataclass(frozen=True, slots=True, kw_only=True)
class SignFlip:
    """The p of a sign-flip test; `draws` is how many flips were sampled where it is not exact."""

    p: float
    exact: bool
    draws: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class McNemar:
    """What only one of two candidates solves, and how likely that is by chance."""

    only_first: int
    only_second: int
    p_exact: float
    p_mid: float


def mcnemar(only_first: int, only_second: int) -> McNemar:
    """Compare two candidates by the tasks that only one of them solves."""
    n, k = only_first + only_second, min(only_first, only_second)
    here = _chance(n, k)
    up_to, term, below = here, here, k
    while below and term > up_to * 1e-17:
        term *= below / (n - below + 1)
        up_to += term
        below -= 1
    return McNemar(
        only_first=only_first,
        only_second=only_second,
        p_exact=min(1.0, 2 * up_to),
        p_mid=min(1.0, 2 * up_to - here),
    )


def _chance(n: int, k: int) -> float:
    """Return how likely *k* of *n* tosses of a coin are heads."""
    if n <= _FEW:
        return math.comb(n, k) / (1 << n)
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(ways - n * math.log(2))


def sign_flip(differences: Sequence[float], *, most_sampled: int = 10_000) -> SignFlip | None:
    """Return how often flipped differences have a sum as far from 0 as these have.

    None where it cannot be counted out and more than *most_sampled* sizes would have to be sampled.
    """
    import numpy as np

    rounded = np.round(np.asarray(differences, dtype=float), _SIZE_DIGITS)
    seen = abs(math.fsum(rounded)) - _ROUNDING
    found = np.unique(np.abs(rounded[rounded != 0]), return_counts=True)
    sizes = _Sizes(values=found[0], counts=found[1])
    if (p := _counted_out(sizes, seen)) is not None:
        return SignFlip(p=p, exact=True, draws=None)
    if len(sizes.values) > most_sampled:
        return None
    # what was seen is one more draw: p is never 0
    return SignFlip(p=(_sampled(sizes, seen) + 1) / (_DRAWS + 1), exact=False, draws=_DRAWS)


@dataclass(frozen=True, eq=False)
class _Sizes:
    """The sizes that differences have, and how many have each."""

    values: "NDArray[np.float64]"
    counts: "NDArray[np.int64]"


def _counted_out(sizes: _Sizes, seen: float) -> float | None:
    """Return how likely flips reach *seen*, over all of them; None where they are too many."""
    import numpy as np

    if seen <= 0:
        return 1.0
    if len(sizes.values) > _MOST_SIZES:
        return None
    # two halves, and one looked up in the other: the square root of the work
    one, other = (_sums(sizes.values[half::2], sizes.counts[half::2]) for half in (0, 1))
    if one is None or other is None:
        return None
    order = np.argsort(other.values)
    up_to = np.concatenate(([0.0], np.cumsum(other.chances[order])))
    low_enough = np.searchsorted(other.values[order], -seen - one.values, side="right")
    return min(2 * float(one.chances @ up_to[low_enough]), 1.0)  # as many flips reach +seen


@dataclass(frozen=True, eq=False)
class _Sums:
    """The sums that flips may have, and how likely each is."""

    values: "NDArray[np.float64]"
    chances: "NDArray[np.float64]"


def _sums(sizes: "NDArray[np.float64]", counts: "NDArray[np.int64]") -> _Sums | None:
    """Return the sums of all flips; None where they are too many."""
    import numpy as np

    # below this number it is cheaper to keep equal sums apart than to find them
    crowded = math.prod(count + 1 for count in counts.tolist()) > _MOST_SUMS
    values, chances = np.zeros(1), np.ones(1)
    for size, count in zip(sizes, counts.tolist(), strict=True):
        if len(values) > _MOST_SUMS or len(values) * (count + 1) > _MOST_AT_ONCE:
            return None
        heads = np.arange(count + 1)
        tosses = np.array([_chance(count, k) for k in range(count + 1)])
        values = np.add.outer(values, size * (2 * heads - count)).ravel()
        chances = np.multiply.outer(chances, tosses).ravel()
        if crowded:
            values, which = np.unique(np.round(values, _SUM_DIGITS), return_inverse=True)
            chances = np.bincount(which, weights=chances).astype(float)
    return _Sums(values, chances)


def _sampled(sizes: _Sizes, seen: float) -> int:
    """Return how many of the seeded draws reach *seen*."""
    import numpy as np

    chance = np.random.default_rng(_SEED)
    once = sizes.values[sizes.counts == 1]
    often, counts = sizes.values[sizes.counts > 1], sizes.counts[sizes.counts > 1]
    width = -(-len(once) // 8)
    hits, left = 0, _DRAWS
    while left:
        rows = min(left, max(_MOST_AT_ONCE // len(sizes.values), 1))
        packed = np.frombuffer(chance.bytes(rows * width), dtype=np.uint8).reshape(rows, width)
        heads = np.unpackbits(packed, axis=1, count=len(once)).astype(float)
        sums = 2 * (heads @ once) - once.sum()
        many = chance.binomial(counts, 0.5, size=(rows, len(often)))
        sums += (2 * many - counts) @ often
        hits += int((np.abs(sums) >= seen).sum())
        left -= rows
    return hits
