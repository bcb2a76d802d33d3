"""Paired comparison of two candidates on their shared scored tasks.

The unit is the task: the difference is that of task means over rollouts. A task that only one of
the two has a score on is missing data and left out; how many there are is told. The p that
decides is that of the test that fits, adjusted after Holm for all the pairs of the run:

    scores 0 or 1, one rollout of each task    McNemar, exact
    flips that can be counted out              sign-flip, exact
    otherwise (many tasks, continuous scores)  paired t

Tasks that share a `group` are one unit: flips are those of whole groups, and t counts groups.

The interval is that which the test decides by (`paired_interval`), at the level that Holm's step
leaves to the pair: it holds 0 exactly where there is no verdict. With a margin it also says
whether the two are equivalent within it, by an interval at the strictest level.

A verdict also has to hold whatever the trials that faulted would have scored: the same test is made
with each of them counted against the candidate that is ahead, and its p decides too. Where it does
not hold, the tipping point says how many of them it takes.

The least difference that could be seen is that of a test as strict as the strictest step of
Holm's: at a level of 1 - 0.05 / pairs.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bakeoff._lib.value_object import value_object
from bakeoff.stats import power
from bakeoff.stats.distributions import student_two_sided
from bakeoff.stats.estimate import (
    NO_BOUNDS,
    Interval,
    MissingBounds,
    Ratio,
    Spread,
    by_group,
    could_turn,
    spread_of,
    standard_error,
)
from bakeoff.stats.paired_interval import as_tested, newcombe, paired_t
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
_ALPHA = 0.05
_ONE_GROUP = "all shared tasks are of one group: no variance between groups to measure"
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
    both: int = 0
    neither: int = 0


def mcnemar(only_first: int, only_second: int, *, both: int = 0, neither: int = 0) -> McNemar:
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
        both=both,
        neither=neither,
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


@value_object
class TaskMeans:
    """A candidate's mean on each task of a list that others share; NaN where it has no score.

    `binary` says that every task was scored only once, with 0 or 1. `bounds` has the tasks of which
    a trial faulted, by their place in the list. `groups` has the group of each task, or is empty.
    `solved` says that every score is 0 or 1: the mean is a share of tasks that were solved.
    """

    candidate: str
    means: Sequence[float]
    binary: bool
    bounds: Mapping[int, MissingBounds] = field(default_factory=lambda: NO_BOUNDS)
    groups: Sequence[str | None] = ()
    solved: bool = False

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
class ToShow:
    """A difference, and about how many tasks would show it four times in five."""

    difference: float
    tasks: int


@value_object
class Pair:
    """Two candidates compared; `reason` says why a part of it is None.

    The `unit` is the task; of a run with one task it is the rollout, and what is said holds for this
    task only. `p` and `p_holm` are those of `test`. `won` and `lost` are the tasks on which the first did
    better and worse. In an adaptive run, a pair that is `settled` needs no more trials.

    Of the trials on tasks that both were given, `faults` faulted. `worst_difference`, `worst_p` and
    `worst_p_holm` are the values if all of those had gone against the leader; if that undoes the
    verdict, it is `withheld`, and `tipping` is how many may have gone against the leader before it is
    undone. If neither is `better`, `undecided` says why; `verdict` is either of them in words. They are
    `equivalent` where the difference is surely less than the `margin`.

    Undecided, `to_show` is a smaller difference, and about how many tasks would show it.
    `units` are what the difference was estimated over: tasks, or groups of them. `solved` says that
    every score is 0 or 1. An adaptive run ended `early` for it: then the difference looks larger than
    it is, and the interval says where it may be. `cost_ratio` is what the first cost / what the second
    did, on tasks of which both costs are known.
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
    to_show: ToShow | None = None
    verdict: str = ""
    undecided: str | None = None
    settled: bool = False
    reason: str | None = None
    units: int = 0
    solved: bool = False
    tipping: int | None = None
    margin: float | None = None
    equivalent: bool | None = None
    cost_ratio: Ratio | None = None
    early: bool = False


def compare(
    first: TaskMeans, second: TaskMeans, *, most_sampled: int = 10_000, alpha: float = _ALPHA
) -> Pair:
    """Compare two candidates; what takes the other pairs to know is left to `decide`.

    The tipping point is that of a test at *alpha*, the strictest of all pairs.
    """
    differences = _Differences.of(
        zip(first.means, second.means, strict=True), first.groups or second.groups
    )
    n = len(differences.values)
    pair = Pair(
        first=first.candidate,
        second=second.candidate,
        tasks=n,
        left_out=sum(
            math.isnan(a) != math.isnan(b) for a, b in zip(first.means, second.means, strict=True)
        ),
        won=sum(d > _ROUNDING for d in differences.values),
        lost=sum(d < -_ROUNDING for d in differences.values),
        units=len(differences.totals),
        solved=first.solved and second.solved,
    )
    if not n:
        return replace(pair, reason="no task has a score of both")
    mean = differences.mean
    if n == 1:
        return replace(pair, difference=mean, reason=ONE_SHARED_TASK)
    if pair.units == 1:
        return replace(pair, difference=mean, reason=_ONE_GROUP)
    table = None
    if first.binary and second.binary and not differences.spread.grouped:
        solved = sum(
            a for a, b in zip(first.means, second.means, strict=True) if not math.isnan(a + b)
        )
        both = round(solved) - pair.won
        table = mcnemar(pair.won, pair.lost, both=both, neither=n - both - pair.won - pair.lost)
    tested = _tested(
        _spread(pair, differences),
        sign_flip=sign_flip(differences.totals, most_sampled=most_sampled),
        mcnemar=table,
    )
    return _in_the_worst_case(tested, first, second, alpha=alpha)


@value_object
class _Differences:
    """The differences of two candidates by task, and their `totals` by what is independent."""

    values: Sequence[float]
    totals: Sequence[float]
    mean: float
    spread: Spread

    @classmethod
    def of(
        cls, means: Iterable[tuple[float, float]], groups: Sequence[str | None]
    ) -> "_Differences":
        """Return the differences of *means*, those of a task without one left out."""
        apart = [a - b for a, b in means]
        known = [d for d in apart if not math.isnan(d)]
        # in order of size: neither the order of the tasks nor that of the two makes a difference
        ordered = sorted(known, key=_by_size)
        mean = math.fsum(ordered) / len(ordered) if ordered else 0.0
        if groups and known:
            shared = [group for d, group in zip(apart, groups, strict=True) if not math.isnan(d)]
            totals = by_group(known, shared)
            if totals is not None:
                spread = spread_of(known, mean, groups=shared)
                return cls(
                    values=ordered, totals=sorted(totals, key=_by_size), mean=mean, spread=spread
                )
        se = standard_error(ordered, mean, scale=1.0) if ordered else None
        spread = Spread(se=se, units=len(ordered))
        return cls(values=ordered, totals=ordered, mean=mean, spread=spread)

    def p(self) -> float:
        """Return the p of the exact test, or of t where flips cannot be counted out."""
        flips = sign_flip(self.totals, most_sampled=0)
        if flips is not None and flips.exact:
            return flips.p
        if self.spread.se is None:
            return 1.0
        return student_two_sided(self.mean / self.spread.se, self.spread.df)


def _in_the_worst_case(pair: Pair, first: TaskMeans, second: TaskMeans, *, alpha: float) -> Pair:
    """Return *pair* with its result if all faults had gone against the leader."""
    pair = replace(pair, faults=shared_faults(first, second))
    if not pair.faults or not pair.difference:
        return pair
    ahead = pair.difference > 0
    worst = _Differences.of(worst_means(first, second, first_leads=ahead), first.groups)
    p = worst.p() if worst.mean * pair.difference > 0 else 1.0
    pair = replace(pair, worst_difference=worst.mean, worst_p=p)
    return replace(pair, tipping=_tipping_point(pair, first, second, alpha=alpha))


def _tipping_point(pair: Pair, first: TaskMeans, second: TaskMeans, *, alpha: float) -> int | None:
    """Return how many faults may go against the leader before p is over *alpha*; None if it is now.

    Those that hurt most go first, the faults of one task together: fewer cannot undo it.
    """
    if pair.p is None or pair.p >= alpha:
        return None
    ahead = (pair.difference or 0.0) > 0
    seen = list(zip(first.means, second.means, strict=True))
    worst = list(worst_means(first, second, first_leads=ahead))
    faulted = sorted({*first.bounds, *second.bounds}, key=lambda n: _loss(n, seen, worst))
    counts = [
        sum(bounds[n].faults for bounds in (first.bounds, second.bounds) if n in bounds)
        for n in faulted
    ]

    def holds_with(many: int) -> bool:
        lost = set(faulted[:many])
        means = (worst[n] if n in lost else pair for n, pair in enumerate(seen))
        left = _Differences.of(means, first.groups)
        return left.mean * (pair.difference or 0.0) > 0 and left.p() < alpha

    low, high = 0, len(faulted)  # it holds without any of them
    while low < high:
        middle = (low + high + 1) // 2
        if holds_with(middle):
            low = middle
        else:
            high = middle - 1
    return sum(counts[:low])


def _loss(
    number: int, seen: Sequence[tuple[float, float]], worst: Sequence[tuple[float, float]]
) -> tuple[float, int]:
    """Return by how much a task's difference falls towards 0 or beyond, greatest first."""
    before, after = (a - b for a, b in (seen[number], worst[number]))
    return (-abs(after) if math.isnan(before) else -abs(before - after)), number


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


def _by_size(difference: float) -> tuple[float, bool]:
    return abs(difference), difference < 0


def _spread(pair: Pair, differences: _Differences) -> Pair:
    """Return *pair* with its difference, and what the spread tells: its error and t."""
    mean, spread = differences.mean, differences.spread
    if spread.se is None:
        why = (
            f"all {pair.tasks} differences are equal: no variance to estimate a standard error from"
        )
        return replace(pair, difference=mean, reason=why)
    p = student_two_sided(mean / spread.se, spread.df)
    return replace(pair, difference=mean, se=spread.se, t_p=p)


def interval_at(pair: Pair, level: float) -> Interval | None:
    """Return the interval of a pair's difference by the method of its test; None where none fits."""
    if pair.difference is None:
        return None
    if pair.mcnemar is not None:
        table = pair.mcnemar
        return newcombe(
            table.only_first, table.only_second, both=table.both, neither=table.neither, level=level
        )
    if pair.se is None:
        return None
    grouped = pair.units < pair.tasks
    return paired_t(pair.difference, pair.se, df=pair.units - 1, level=level, grouped=grouped)


def _tested(pair: Pair, *, sign_flip: SignFlip | None, mcnemar: McNemar | None) -> Pair:
    """Return *pair* with the tests, and the one of them that fits."""
    pair = replace(pair, sign_flip=sign_flip, mcnemar=mcnemar)
    if mcnemar is not None:
        return replace(pair, test="McNemar, exact", p=mcnemar.p_exact)
    of_groups = " of groups" if pair.units < pair.tasks else ""
    if sign_flip is not None and sign_flip.exact:
        return replace(pair, test=f"sign-flip{of_groups}, exact", p=sign_flip.p)
    return replace(pair, test=f"paired t{of_groups}", p=pair.t_p)


def decide(
    pairs: Sequence[Pair], *, level: float = 0.95, margin: float | None = None
) -> tuple[Pair, ...]:
    """Return all *pairs* of a run, each with its verdict, its p adjusted for being one of many."""
    tested = sum(pair.p is not None for pair in pairs)
    strictest = 1 - (1 - level) / max(tested, 1)
    return tuple(
        _judged(_with_interval(pair, at), level=level, strictest=strictest, margin=margin)
        for pair, at in zip(adjusted(pairs), _levels(pairs, alpha=1 - level), strict=True)
    )


def _levels(pairs: Sequence[Pair], *, alpha: float) -> list[float]:
    """Return the level that Holm's step leaves to each pair: its test decides exactly there."""
    order = sorted(
        (n for n, pair in enumerate(pairs) if pair.p is not None), key=lambda n: pairs[n].p or 0.0
    )
    levels, left, open_yet = [1 - alpha] * len(pairs), len(order), True
    for n in order:
        levels[n] = 1 - alpha / left
        open_yet = open_yet and (pairs[n].p or 0.0) < alpha / left
        left -= open_yet  # from the first that is not decided on, the step stays what it is
    return levels


def _with_interval(pair: Pair, level: float) -> Pair:
    interval = interval_at(pair, level)
    if interval is None or pair.p is None or pair.difference is None:
        return pair
    refuted = pair.p < 1 - level
    return replace(pair, interval=as_tested(interval, pair.difference, refuted=refuted))


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


def _judged(pair: Pair, *, level: float, strictest: float, margin: float | None) -> Pair:
    """Return *pair* with its verdict, and what it could have seen."""
    p, difference = pair.p_holm, pair.difference
    if p is None or difference is None:
        return undecided(pair, pair.reason)
    if pair.se is not None:
        seen, more = _detectable(pair, strictest), _more_tasks(pair, strictest)
        pair = replace(pair, detectable=seen, more_tasks=more)
    if margin is not None:
        pair = replace(pair, margin=margin, equivalent=_within(pair, margin, strictest))
    if p < 1 - level and difference:
        if not holds(pair, level=level):
            return withheld(pair)
        better = pair.first if difference > 0 else pair.second
        less = f", by less than {margin:g}" if pair.equivalent else ""
        return replace(pair, more_tasks=None, better=better, verdict=f"{better} is better{less}")
    if pair.equivalent:
        why = f"equivalent within {margin:g}"
        return replace(pair, undecided=why, verdict=why)
    return left_open(pair, level=strictest)


def left_open(pair: Pair, *, level: float) -> Pair:
    """Return *pair* without a decision, with what so many tasks can show at this *level*."""
    if pair.se is not None and pair.detectable is None:
        pair = replace(pair, detectable=_detectable(pair, level))
    pair = replace(pair, to_show=_to_show(pair, level=level))
    return undecided(pair, what_it_takes(pair, level=level))


def _within(pair: Pair, margin: float, level: float) -> bool | None:
    """Whether the difference is surely less than *margin*, whatever the faults hide (two one-sided tests)."""
    interval = interval_at(pair, level)
    if interval is None:
        return None
    lost = 0.0
    if pair.worst_difference is not None and pair.difference is not None:
        lost = abs(pair.difference - pair.worst_difference)
    elif pair.faults:
        lost = pair.faults / pair.tasks
    return -margin < interval.low - lost and interval.high + lost < margin


def _detectable(pair: Pair, level: float) -> float:
    """Return the least difference that so many tasks show with a chance of 80 %."""
    variance = (pair.se or 0.0) ** 2 * pair.tasks
    seen = power.detectable(pair.tasks, variance=variance, level=level)
    if pair.mcnemar is None:
        return seen
    # of tasks that count as 0 or 1, so many have to speak for the same one
    return max(seen, min(power.least_tasks(level) / pair.tasks, 1.0))


_ROUND_DIFFERENCES = (0.1, 0.05, 0.02, 0.01)
_NOTABLY = 0.8  # a smaller difference is named where it is smaller by this factor at least


def what_it_takes(pair: Pair, *, level: float) -> str:
    """Return in words what so many tasks can show, and how many a smaller difference takes."""
    least, seen = power.least_tasks(level), pair.detectable
    if pair.units < least:
        return f"{counted_tasks(pair.tasks)} cannot show anything: it takes {least} at least"
    if seen is None or pair.se is None:
        return "no difference was seen"
    text = f"these {pair.tasks:,} tasks would show {seen:.2g} or more"
    if pair.to_show is None:
        return text
    return f"{text}; to show {pair.to_show.difference:g}: about {pair.to_show.tasks:,}"


def _to_show(pair: Pair, *, level: float) -> ToShow | None:
    """Return the next smaller round difference, and how many tasks it takes; None where unknown."""
    least, seen = power.least_tasks(level), pair.detectable
    if pair.units < least or seen is None or pair.se is None:
        return None
    smaller = max((d for d in _ROUND_DIFFERENCES if d < _NOTABLY * seen), default=None)
    if smaller is None:
        return None
    needed = power.tasks_needed(smaller, variance=pair.se**2 * pair.tasks, level=level)
    if pair.mcnemar is not None:
        needed = max(needed, least / smaller)
    return ToShow(difference=smaller, tasks=two_digits(math.ceil(needed)))


def counted_tasks(tasks: int) -> str:
    """Return a number of tasks with its noun."""
    return "1 task" if tasks == 1 else f"{tasks:,} tasks"


def undecided(pair: Pair, why: str | None) -> Pair:
    """Return *pair* without a decision, and *why* there is none."""
    return replace(pair, undecided=why, verdict=f"{NO_DECISION} ({why})")


def withheld(pair: Pair) -> Pair:
    """Return *pair* with its verdict withheld, because faults could reverse it."""
    why = could_turn(pair.faults)
    if pair.tipping is not None and pair.difference is not None:
        ahead = pair.first if pair.difference > 0 else pair.second
        why = (
            f"{ahead} is better unless more than {pair.tipping:,} of the {pair.faults:,} faulted "
            "trials went against it"
        )
    return undecided(replace(pair, withheld=True), why)


def _more_tasks(pair: Pair, level: float) -> int | None:
    """Return how many tasks like these are missing if the difference is what it looks like."""
    if pair.difference is None or abs(pair.difference) <= _ROUNDING:
        return None
    variance = (pair.se or 0.0) ** 2 * pair.tasks
    enough = power.tasks_needed(pair.difference, variance=variance, level=level)
    least = power.least_tasks(level) * pair.tasks / (pair.won + pair.lost)
    return max(math.ceil(max(enough, least)) - pair.tasks, 1)


def two_digits(tasks: int) -> int:
    """Return a number of tasks that is not known better than to two digits."""
    unit = int(10 ** max(len(str(tasks)) - 2, 0))
    return -(-tasks // unit) * unit
