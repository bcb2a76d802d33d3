"""Paired comparison of two candidates on their shared scored tasks.

The unit is the task: the difference is that of task means over rollouts. A task that only one of
the two has a score on is missing data and left out; how many there are is told. The p that
decides is that of the test that fits, adjusted after Holm for all the pairs of the run:

    scores 0 or 1, one rollout of each task    McNemar, exact
    flips that can be counted out              sign-flip, exact
    otherwise (many tasks, continuous scores)  paired t

A verdict also has to hold whatever the trials that faulted would have scored (`missing`): the same
test is made with each of them counted against the candidate that is ahead, and its p decides too.

The number of tasks that are missing for a decision, and the least difference that could be seen,
are those of a test as strict as the strictest step of Holm's: at a level of 1 - 0.05 / pairs.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bakeoff._lib.value_object import value_object
from bakeoff.stats import power
from bakeoff.stats.estimate import (
    NO_BOUNDS,
    Interval,
    MissingBounds,
    could_turn,
    standard_error,
    student_quantile,
    student_two_sided,
)
from bakeoff.stats.rankings import holm

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
_SIZE_DIGITS, _SUM_DIGITS, _ROUNDING_tests = 12, 9, 1e-7
NO_DECISION = "no decision"
ONE_SHARED_TASK = "one shared task: no variance between tasks to measure"
_ROUNDING = 1e-12


@value_object
class SignFlip:
    """The p of a sign-flip test; `draws` is how many flips were sampled where it is not exact."""

    p: float
    exact: bool
    draws: int | None


@value_object
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
    seen = abs(math.fsum(rounded)) - _ROUNDING_tests
    unique = np.unique(np.abs(rounded[rounded != 0]), return_counts=True)
    sizes = _Sizes(values=unique[0], counts=unique[1])
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
    first_half, second_half = (
        _sums(sizes.values[half::2], sizes.counts[half::2]) for half in (0, 1)
    )
    if first_half is None or second_half is None:
        return None
    order = np.argsort(second_half.values)
    up_to = np.concatenate(([0.0], np.cumsum(second_half.chances[order])))
    low_enough = np.searchsorted(second_half.values[order], -seen - first_half.values, side="right")
    return min(2 * float(first_half.chances @ up_to[low_enough]), 1.0)  # as many flips reach +seen


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


@dataclass(frozen=True, kw_only=True)
class TaskMeans:
    """A candidate's mean on each task of a list that others share; NaN where it has no score.

    `binary` says that every task was scored only once, with 0 or 1. `bounds` has the tasks of which
    a trial faulted, by their place in the list.
    """

    candidate: str
    means: Sequence[float]
    binary: bool
    bounds: Mapping[int, MissingBounds] = field(default_factory=lambda: NO_BOUNDS)

    def at_least(self) -> Iterator[float]:
        """Yield the mean on each task with what faulted counted as 0."""
        for number, mean in enumerate(self.means):
            known = self.bounds.get(number)
            yield mean if known is None else known.low

    def at_most(self) -> Iterator[float]:
        """Yield the mean on each task with what faulted counted as 1."""
        for number, mean in enumerate(self.means):
            known = self.bounds.get(number)
            yield mean if known is None else known.high


@value_object
class Pair:
    """Two candidates compared; `reason` says why a part of it is None.

        The `unit` is the task; of a run with one task it is the rollout, and what is said holds for this
        task only. `p` and `p_holm` are those of `test`. `won` and `lost` are the tasks on which the first did
        better and worse. In an adaptive run, a pair that is `settled` needs no more trials.

        Of the trials on tasks that both were given, `faults` faulted. `worst_difference`, `worst_p` and
    `worst_p_holm` are the values if all of those had gone against the leader;
    if that undoes the verdict, it is `withheld`. If neither is `better`,
        `undecided` says why; `verdict` is either of them in words.
    """

    first: str
    second: str
    tasks: int
    left_out: int
    unit: str = "task"
    won: int = 0
    lost: int = 0
    difference: float | None = None
    se: float | None = None
    interval: Interval | None = None
    t_p: float | None = None
    sign_flip: SignFlip | None = None
    mcnemar: McNemar | None = None
    test: str | None = None
    p: float | None = None
    p_holm: float | None = None
    detectable: float | None = None
    faults: int = 0
    worst_difference: float | None = None
    worst_p: float | None = None
    worst_p_holm: float | None = None
    withheld: bool = False
    better: str | None = None
    more_tasks: int | None = None
    verdict: str = ""
    undecided: str | None = None
    settled: bool = False
    reason: str | None = None


def compare(
    first: TaskMeans, second: TaskMeans, *, level: float = 0.95, most_sampled: int = 10_000
) -> Pair:
    """Compare two candidates; what takes the other pairs to know is left to `decide`."""
    apart = (a - b for a, b in zip(first.means, second.means, strict=True))
    # in order of size: neither the order of the tasks nor that of the two makes a difference
    differences = sorted((d for d in apart if not math.isnan(d)), key=_by_size)
    n = len(differences)
    pair = Pair(
        first=first.candidate,
        second=second.candidate,
        tasks=n,
        left_out=sum(
            math.isnan(a) != math.isnan(b) for a, b in zip(first.means, second.means, strict=True)
        ),
        won=sum(d > _ROUNDING for d in differences),
        lost=sum(d < -_ROUNDING for d in differences),
    )
    if not n:
        return replace(pair, reason="no task has a score of both")
    mean = math.fsum(differences) / n
    if n == 1:
        return replace(pair, difference=mean, reason=ONE_SHARED_TASK)
    tested = _tested(
        _spread(pair, differences, mean, level=level),
        sign_flip=sign_flip(differences, most_sampled=most_sampled),
        mcnemar=mcnemar(pair.won, pair.lost) if first.binary and second.binary else None,
    )
    return _in_the_worst_case(tested, first, second)


def _in_the_worst_case(pair: Pair, first: TaskMeans, second: TaskMeans) -> Pair:
    """Return *pair* with its result if all faults had gone against the leader."""
    pair = replace(pair, faults=shared_faults(first, second))
    if not pair.faults or not pair.difference:
        return pair
    ahead = pair.difference > 0
    differences = [a - b for a, b in worst_means(first, second, first_leads=ahead)]
    differences = sorted((d for d in differences if not math.isnan(d)), key=_by_size)
    mean = math.fsum(differences) / len(differences)
    p = _p_value(differences, mean) if mean * pair.difference > 0 else 1.0
    return replace(pair, worst_difference=mean, worst_p=p)


def worst_means(
    first: TaskMeans, second: TaskMeans, *, first_leads: bool
) -> Iterator[tuple[float, float]]:
    """Yield the means of the two on each task with all faults against the one that leads."""
    if first_leads:
        return zip(first.at_least(), second.at_most(), strict=True)
    return zip(first.at_most(), second.at_least(), strict=True)


def shared_faults(first: TaskMeans, second: TaskMeans) -> int:
    """Return how many trials faulted on the tasks that something is recorded of for both."""
    total = 0
    for means, other in ((first, second), (second, first)):
        for number, known in means.bounds.items():
            if number in other.bounds or not math.isnan(other.means[number]):
                total += known.faults
    return total


def _p_value(differences: Sequence[float], mean: float) -> float:
    """Return the p of the exact test, or of t where flips cannot be counted out."""
    flips = sign_flip(differences, most_sampled=0)
    if flips is not None and flips.exact:
        return flips.p
    se = standard_error(differences, mean, scale=1.0)
    return 1.0 if se is None else student_two_sided(mean / se, len(differences) - 1)


def _by_size(difference: float) -> tuple[float, bool]:
    return abs(difference), difference < 0


def _spread(pair: Pair, differences: Sequence[float], mean: float, *, level: float) -> Pair:
    """Return *pair* with its difference, and what the spread tells: error, interval and t."""
    n = len(differences)
    se = standard_error(differences, mean, scale=1.0)
    if se is None:
        why = f"all {n} differences are equal: no variance to estimate a standard error from"
        return replace(pair, difference=mean, reason=why)
    half = student_quantile(0.5 + level / 2, n - 1) * se
    low, high = max(mean - half, -1.0), min(mean + half, 1.0)
    return replace(
        pair,
        difference=mean,
        se=se,
        interval=Interval(low=low, high=high, level=level, method="paired t"),
        t_p=student_two_sided(mean / se, n - 1),
    )


def _tested(pair: Pair, *, sign_flip: SignFlip | None, mcnemar: McNemar | None) -> Pair:
    """Return *pair* with the tests, and the one of them that fits."""
    pair = replace(pair, sign_flip=sign_flip, mcnemar=mcnemar)
    if mcnemar is not None:
        return replace(pair, test="McNemar, exact", p=mcnemar.p_exact)
    if sign_flip is not None and sign_flip.exact:
        return replace(pair, test="sign-flip, exact", p=sign_flip.p)
    return replace(pair, test="paired t", p=pair.t_p)


def decide(pairs: Sequence[Pair], *, level: float = 0.95) -> tuple[Pair, ...]:
    """Return all *pairs* of a run, each with its verdict, its p adjusted for being one of many."""
    tested = sum(pair.p is not None for pair in pairs)
    strictest = 1 - (1 - level) / max(tested, 1)
    return tuple(_judged(pair, level=level, strictest=strictest) for pair in adjusted(pairs))


def adjusted(pairs: Sequence[Pair]) -> list[Pair]:
    """Return *pairs* with their p values adjusted for being many, as seen and in the worst case."""
    known = [pair.p for pair in pairs if pair.p is not None]
    worst = [max(pair.p, pair.worst_p or 0.0) for pair in pairs if pair.p is not None]
    both = zip(holm(known), holm(worst), strict=True)
    faulted = any(pair.worst_p is not None for pair in pairs)

    def with_both(pair: Pair) -> Pair:
        if pair.p is None:
            return pair
        seen, at_worst = next(both)
        return replace(pair, p_holm=seen, worst_p_holm=at_worst if faulted else None)

    return [with_both(pair) for pair in pairs]


def holds(pair: Pair, *, level: float) -> bool:
    """Whether a difference that is sure stays so in the worst case."""
    return pair.worst_p_holm is None or pair.worst_p_holm < 1 - level


def _judged(pair: Pair, *, level: float, strictest: float) -> Pair:
    """Return *pair* with its verdict, and what it could have seen."""
    if pair.p_holm is None or pair.difference is None:
        return undecided(pair, pair.reason)
    seen = None
    if pair.se is not None:
        variance = pair.se**2 * pair.tasks
        seen = power.detectable(pair.tasks, variance=variance, level=strictest)
    if pair.p_holm < 1 - level and pair.difference:
        if not holds(pair, level=level):
            return withheld(replace(pair, detectable=seen))
        better = pair.first if pair.difference > 0 else pair.second
        return replace(pair, detectable=seen, better=better, verdict=f"{better} is better")
    more = _more_tasks(pair, strictest)
    needs = "no difference was seen" if more is None else f"needs about {about(more)}"
    return undecided(replace(pair, detectable=seen, more_tasks=more), needs)


def undecided(pair: Pair, why: str | None) -> Pair:
    """Return *pair* without a decision, and *why* there is none."""
    return replace(pair, undecided=why, verdict=f"{NO_DECISION} ({why})")


def withheld(pair: Pair) -> Pair:
    """Return *pair* with its verdict withheld, because faults could reverse it."""
    return undecided(replace(pair, withheld=True), could_turn(pair.faults))


def _more_tasks(pair: Pair, level: float) -> int | None:
    """Return how many tasks like these are missing if the difference is what it looks like."""
    if pair.difference is None or abs(pair.difference) <= _ROUNDING:
        return None
    variance = (pair.se or 0.0) ** 2 * pair.tasks
    enough = power.tasks_needed(pair.difference, variance=variance, level=level)
    least = power.least_tasks(level) * pair.tasks / (pair.won + pair.lost)
    return max(math.ceil(max(enough, least)) - pair.tasks, 1)


def about(tasks: int) -> str:
    """Return a number of tasks that is not known better than to two digits."""
    unit = 10 ** max(len(str(tasks)) - 2, 0)
    rounded = -(-tasks // unit) * unit
    return "1 more task" if rounded == 1 else f"{rounded:,} more tasks"
