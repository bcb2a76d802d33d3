"""Rankings with the range of ranks that the data allow, and the Pareto front of score and price.

Less is better. Candidates are sorted by mean; a tie goes to the smaller `tie_break`.
Every two candidates are compared by a permutation test of the difference of their means: exact
where the ways to deal out the values can be counted, else by seeded shuffles. The p values are
adjusted after Holm. A candidate's range goes from 1 + those that are surely better to n - those
that are surely worse; where the data do not separate the models, that is everywhere.

Rollouts that faulted have no value. A pair is decided only where it would also be with each of
them counted against the one that is ahead: as `most` for it, as 0 for the other (see `missing`).

With one value a candidate there is nothing to test with: the ranges are None, with a reason.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

from bakeoff._lib.value_object import value_object

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MOST_DEALS = 20_000
_SHUFFLES = 9_999
_SEED = 20_240_613
_ROUNDING = 1e-9


@value_object
class Measurements:
    """The values measured for one candidate, at least one.

    `faults` rollouts were lost; each would have had a value from 0 to `most`, None for no limit.
    """

    candidate: str
    values: tuple[float, ...]
    tie_break: tuple[float, ...] = ()
    faults: int = 0
    most: float | None = None

    def __post_init__(self) -> None:
        if not self.values or not all(math.isfinite(value) for value in self.values):
            raise ValueError(f"{self.candidate!r} needs at least one value, all finite")

    @property
    def mean(self) -> float:
        """The mean of its values."""
        return math.fsum(self.values) / len(self.values)


@value_object
class RankedCandidate:
    """One candidate in a ranking; `best` and `worst` are the ranks that it may have."""

    candidate: str
    rank: int
    value: float
    best: int | None
    worst: int | None


@value_object
class RankingPair:
    """The test of two candidates: difference, p-value and decision.

    It is `withheld` if only faulted rollouts prevent a decision.
    """

    first: str
    second: str
    difference: float
    p: float
    p_holm: float
    decided: bool
    withheld: bool = False


@value_object
class Ranking:
    """Candidates in order; `reason` says why there are no ranges, or why nothing is decided."""

    placed: tuple[RankedCandidate, ...]
    duels: tuple[RankingPair, ...]
    reason: str | None

    @property
    def decided(self) -> bool:
        """Whether the first candidate is significantly the best."""
        return bool(self.placed) and self.placed[0].worst == 1


def rank(measured: Iterable[Measurements], *, level: float = 0.95) -> Ranking:
    """Return *measured* in order, with rank ranges at *level* over all pairs together."""
    ordered = sorted(
        measured, key=lambda candidate: (candidate.mean, candidate.tie_break, candidate.candidate)
    )
    single = any(len(candidate.values) < 2 for candidate in ordered)
    duels = () if single else _duels(ordered, alpha=1 - level)
    # the first of a duel is the one with the smaller mean
    decided = None if single else [(duel.first, duel.second) for duel in duels if duel.decided]
    return Ranking(
        placed=rank_ranges(
            [(candidate.candidate, candidate.mean) for candidate in ordered], decided
        ),
        duels=duels,
        reason=_reason(ordered, duels, single=single),
    )


def rank_ranges(
    ordered: Sequence[tuple[str, float]], decided: Sequence[tuple[str, str]] | None
) -> tuple[RankedCandidate, ...]:
    """Return the candidates with their values in the order given, each with the ranks it may have.

    *decided* are pairs of which the first is surely better; None, where nothing could be tested.
    """
    losses = Counter(worse for _, worse in decided or ())
    wins = Counter(better for better, _ in decided or ())
    return tuple(
        RankedCandidate(
            candidate=candidate,
            rank=number,
            value=value,
            best=None if decided is None else 1 + losses[candidate],
            worst=None if decided is None else len(ordered) - wins[candidate],
        )
        for number, (candidate, value) in enumerate(ordered, start=1)
    )


def permutation_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Return how often values dealt out anew lie as far apart in their means as these do."""
    import numpy as np

    pool = np.array([*first, *second], dtype=float)
    n, m = len(first), len(second)
    deals = _deals(n, m)
    sums = deals.masks @ pool
    apart = np.abs(sums / n - (pool.sum() - sums) / m)
    seen = abs(math.fsum(first) / n - math.fsum(second) / m)
    scale = float(np.abs(pool).max()) or 1.0
    hits = int((apart >= seen - _ROUNDING * scale).sum())
    # a sample counts what was seen as one more deal: p is never 0
    return hits / len(sums) if deals.exact else (hits + 1) / (len(sums) + 1)


@dataclass(frozen=True, eq=False)
class _Deals:
    """Ways to deal out values to two: a row for each, with 1 for what the first gets."""

    masks: "NDArray[np.float64]"
    exact: bool


@lru_cache(maxsize=16)
def _deals(n: int, m: int) -> _Deals:
    """Return every way to give *n* of *n* + *m* values to the first, or a seeded sample of them."""
    import numpy as np

    if can_count_deals(n, m):
        chosen = np.array(list(combinations(range(n + m), n)))
    else:
        order = np.random.default_rng(_SEED).random((_SHUFFLES, n + m)).argsort(axis=1)
        chosen = order[:, :n]
    masks = np.zeros((len(chosen), n + m))
    np.put_along_axis(masks, chosen, 1.0, axis=1)
    return _Deals(masks, exact=can_count_deals(n, m))


def can_count_deals(n: int, m: int) -> bool:
    """Whether all ways to deal out *n* and *m* values are few enough to count: the p is exact."""
    return math.comb(n + m, n) <= _MOST_DEALS


def holm(p_values: Sequence[float]) -> list[float]:
    """Return each p adjusted for being one of many, in the same order; never below the raw one."""
    adjusted = [0.0] * len(p_values)
    floor = 0.0
    for rank_ranges, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        floor = max(floor, min(1.0, (len(p_values) - rank_ranges) * p_values[index]))
        adjusted[index] = floor
    return adjusted


def _duels(ordered: Sequence[Measurements], *, alpha: float) -> tuple[RankingPair, ...]:
    pairs = list(combinations(ordered, 2))
    raw = [permutation_p(first.values, second.values) for first, second in pairs]
    worst = [max(p, _worst_p(*pair)) for pair, p in zip(pairs, raw, strict=True)]
    pairs_tested = []
    for (first, second), p, seen, at_worst in zip(pairs, raw, holm(raw), holm(worst), strict=True):
        sure = seen < alpha + _ROUNDING and second.mean > first.mean
        holds = at_worst < alpha + _ROUNDING
        pairs_tested.append(
            RankingPair(
                first=first.candidate,
                second=second.candidate,
                difference=second.mean - first.mean,
                p=p,
                p_holm=seen,
                decided=sure and holds,
                withheld=sure and not holds,
            )
        )
    return tuple(pairs_tested)


def _worst_p(ahead: Measurements, behind: Measurements) -> float:
    """Return the p with each rollout that faulted counted against the one *ahead*."""
    if not ahead.faults and not behind.faults:
        return 0.0  # nothing is missing: what was seen decides
    if ahead.faults and ahead.most is None:
        return 1.0
    first = (*ahead.values, *[ahead.most or 0.0] * ahead.faults)
    second = (*behind.values, *[0.0] * behind.faults)
    if math.fsum(first) / len(first) >= math.fsum(second) / len(second):
        return 1.0
    return permutation_p(first, second)


def _reason(
    ordered: Sequence[Measurements], duels: Sequence[RankingPair], *, single: bool
) -> str | None:
    if len(ordered) < 2:
        return "nothing to compare with" if ordered else "no model is ranked"
    if len({candidate.mean for candidate in ordered}) == 1:
        return "all are equal: ordered by speed"
    if single:
        return "a single observation: another run may put them in another order"
    if any(duel.decided for duel in duels):
        return None
    if any(duel.withheld for duel in duels):
        return "the rollouts that faulted could change the order"
    least = _least_p(ordered) * len(duels)
    if least >= 0.05:
        return "this few rollouts cannot separate the models, however far apart they are"
    return "the data do not separate the models"


def _least_p(ordered: Sequence[Measurements]) -> float:
    """Return the smallest p that any two candidates with so many values could reach."""
    return min(least_p(len(a.values), len(b.values)) for a, b in combinations(ordered, 2))


def least_p(n: int, m: int) -> float:
    """Return the smallest p that *n* and *m* values could reach."""
    return (1 if n != m else 2) / math.comb(n + m, n)


# --- score against price ----------------------------------------------------------------------


@value_object
class Offer:
    """A candidate with what it costs, in money or time, and what it scores."""

    candidate: str
    price: float
    score: float


def pareto_front(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """Return the offers that no other one beats: for less, or for the same with a better score.

    They come cheapest first, so each one scores more than the one before.
    """
    front: list[Offer] = []
    for offer in sorted(offers, key=lambda o: (o.price, -o.score, o.candidate)):
        if not front or offer.score > front[-1].score:
            front.append(offer)
    return tuple(front)
