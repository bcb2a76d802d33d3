"""The stopping rule of adaptive runs: two candidates, task by task in a fixed order.

Of many pairs each is held to a stricter level, such that all decisions of a run are right together.

    scores 0 or 1, one rollout of each task   signs after every task, exact (alpha spending)
    other scores                              a mixture of bets after every task, which no look can
                                              mislead, for a part of the error; for what is left,
                                              one exact test of the whole suite where it was run
    a given number of looks                   signs at these looks, whatever the scores

Signs of 0 and 1 are coins where the means are equal. Other differences may be lopsided: many small
gains and a few large losses look like a win for a while, and only bets allow for that.

In a `Race`, pairs look at each task together; where only the best candidate is wanted, one that is
surely worse than another leaves it.
"""

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import combinations

from bakeoff._lib.value_object import value_object
from bakeoff.stats.estimate import Interval
from bakeoff.stats.paired import (
    Pair,
    TaskMeans,
    adjusted,
    compare,
    holds,
    left_open,
    shared_faults,
    undecided,
    withheld,
    worst_means,
)
from bakeoff.stats.paired_interval import as_tested
from bakeoff.stats.sequential import (
    DifferenceMixture,
    Looks,
    SignWalk,
    anytime_difference,
    spent_by,
)

EARLY, LAST = 0.2, 0.8  # how bets and the last look share the error
_SHARE = 20  # from here on, precision is looked at after every twentieth of the tasks seen


class _Signs:
    """Evidence of signs at some looks: each side has half of the error.

    Before the last look, only one that was enough has a p below `surely`.
    """

    def __init__(self, looks: Looks, *, alpha: float, surely: float) -> None:
        self._looks, self._alpha, self._surely = looks, alpha, surely
        self._walk = SignWalk()
        self._seen = 0
        self._looked = 0.0

    def see(self, difference: float) -> None:
        """Take a step, and look where it is time to."""
        self._seen += 1
        self._walk.add(difference)
        if self._looks.due_after(self._seen):
            self.look(self.share)

    def look(self, share: float) -> None:
        """Look, with what may be spent after this *share* of the tasks."""
        if not self._walk.crossed:
            self._looked = share
            self._walk.look(spent_by(share, alpha=self._alpha / 2))

    def end(self) -> None:
        """Take the last look: the suite is over."""
        self.look(1.0)

    @property
    def share(self) -> float:
        """The share of the tasks that was seen."""
        return self._seen / self._looks.tasks

    @property
    def crossed(self) -> bool:
        """Whether a look was enough for either side."""
        return self._walk.crossed

    @property
    def test(self) -> str:
        """The name of the test."""
        every = self._looks.count >= self._looks.tasks
        when = "after every task" if every else f"at {self._looks.count} looks"
        return f"sign test {when}, exact"

    @property
    def p_above(self) -> float:
        """The p-value of the side of a difference over 0, of two that are tested."""
        return self._of_side(self._walk.p_above)

    @property
    def p_below(self) -> float:
        """The p-value of the side of a difference under 0, of two that are tested."""
        return self._of_side(self._walk.p_below)

    @property
    def p(self) -> float:
        """A p-value that holds although one looked before."""
        return min(self.p_above, self.p_below)

    def _of_side(self, p: float) -> float:
        p *= 2
        if not self.crossed and 0 < self._looked < 1:
            p = max(p / self._looked**2, self._surely)
        return min(1.0, p)


class _SignsOrBets:
    """Evidence after every task: of signs while all differences are -1, 0 or 1, then of bets.

    `left` is the share of the error that is for bets and the last look: what signs have not spent.
    Up to the first other difference signs are no more misleading than coins, however lopsided the
    differences are: what they lose there counts as not seen.
    """

    def __init__(self, tasks: int, *, alpha: float, surely: float) -> None:
        every = Looks(count=tasks, tasks=tasks)
        self._signs: _Signs | None = _Signs(every, alpha=alpha, surely=surely)
        self._coins = array("d")
        self._bets = DifferenceMixture()
        self.left = 1.0

    def see(self, difference: float) -> None:
        """Add the difference on the next task."""
        if self._signs is None:
            self._bets.see(difference)
        elif self._signs.crossed:
            return
        elif difference in _COINS:
            self._signs.see(difference)
            self._coins.append(difference)
        else:
            self.left = 1 - spent_by(self._signs.share, alpha=1.0)
            self._signs = None
            for each in (*self._coins, difference):
                self._bets.see(each)

    def end(self) -> None:
        """Take the last look, where signs are looked at."""
        if self._signs is not None:
            self._signs.end()

    @property
    def has_last_look(self) -> bool:
        """Whether an error is left for a test of the whole suite."""
        return self._signs is None

    @property
    def test(self) -> str:
        """The name of the test."""
        if self._signs is None:
            return "mixture of bets after every task, exact at the end"
        return self._signs.test

    @property
    def p_above(self) -> float:
        """The p-value of the side of a difference over 0, of two that are tested."""
        return self._of_bets(self._bets.p_above) if self._signs is None else self._signs.p_above

    @property
    def p_below(self) -> float:
        """The p-value of the side of a difference under 0, of two that are tested."""
        return self._of_bets(self._bets.p_below) if self._signs is None else self._signs.p_below

    @property
    def p(self) -> float:
        """A p-value that holds although one looked before."""
        return self._of_bets(self._bets.p) if self._signs is None else self._signs.p

    def _of_bets(self, p: float) -> float:
        return min(1.0, p / (EARLY * self.left))


_COINS = frozenset((-1.0, 0.0, 1.0))


class StoppingRule:
    """One pair of *pairs*; `differences` are those of its task means, from -1 to 1.

    It is decided only if faults could not reverse it: for "the first is better" each
    faulted trial counts against the first, for the opposite against the second.
    """

    def __init__(
        self,
        *,
        pairs: int,
        tasks: int,
        precision: float | None = None,
        level: float = 0.95,
        looks: int | None = None,
    ) -> None:
        self._alpha = (1 - level) / pairs
        self._precision = precision
        self._seen: _Signs | _SignsOrBets
        if looks is None:
            self._seen = _SignsOrBets(tasks, alpha=self._alpha, surely=1 - level)
        else:
            at = Looks(count=looks, tasks=tasks)
            self._seen = _Signs(at, alpha=self._alpha, surely=1 - level)
        self._lowest = self._highest = self._seen  # one and the same until a fault
        self.differences = array("d")
        self.decided = False
        self.precise = False

    def see(self, difference: float) -> None:
        """Add the difference on the next task."""
        self.see_between(difference, difference, seen=difference)

    def see_between(self, low: float, high: float, *, seen: float | None) -> None:
        """Add the bounds of the difference on the next task given its faults, and the *seen* one."""
        if self._lowest is self._seen and not low == high == seen:
            self._lowest, self._highest = deepcopy(self._seen), deepcopy(self._seen)
        if self._lowest is not self._seen:
            self._lowest.see(low)
            self._highest.see(high)
        if seen is not None:
            self._seen.see(seen)
        self.decided = self.decided or self.worst_p < self._alpha
        if seen is None:
            return
        self.differences.append(seen)
        if self._precision is not None and not self.precise and self._is_look():
            interval = self.interval(level=1 - self._alpha)
            self.precise = interval is None or interval.high - interval.low <= 2 * self._precision

    def end(self) -> None:
        """Take the last look of those that were planned: the suite is over."""
        for evidence in (self._seen, self._lowest, self._highest):
            evidence.end()

    @property
    def for_last_look(self) -> float:
        """The share of the error that is left for a test of the whole suite; 0 where none is."""
        if isinstance(self._seen, _SignsOrBets) and self._seen.has_last_look:
            return LAST * self._seen.left
        return 0.0

    @property
    def test(self) -> str:
        """The name of the test that decides."""
        return self._seen.test

    @property
    def settled(self) -> bool:
        """Whether the pair is decided, or its difference is known precisely enough."""
        return self.decided or self.precise

    @property
    def p(self) -> float:
        """The p-value of "there is no difference", that holds although one looked before.

        Tasks without a score are not seen, so that less of the error may be spent than with every
        fault counted against the leader: what is sure then is sure.
        """
        return min(self._seen.p, self.worst_p)

    @property
    def worst_p(self) -> float:
        """The same p-value with every fault counted against the leader."""
        return min(self._lowest.p_above, self._highest.p_below)

    @property
    def first_leads(self) -> bool:
        """Whether the evidence is rather that the first is better."""
        return self._lowest.p_above <= self._highest.p_below

    def interval(self, *, level: float) -> Interval | None:
        """Return where the difference is; None where no task was seen, or nothing fits."""
        return anytime_difference(self.differences, level=level) if self.differences else None

    def _is_look(self) -> bool:
        seen = len(self.differences)
        return seen % max(seen // _SHARE, 1) == 0


Apart = tuple[float, float, float | None]
"""The least and the most that a difference may be given its faults, and the one that was seen."""


class Race:
    """Pairs of candidates that look at each task together, in an order fixed before.

    With `best`, a candidate that is surely worse than another leaves, and its pairs end with it;
    `left` says after how many tasks. What is decided depends on the scores and the order alone.
    """

    def __init__(self, rules: Mapping[tuple[str, str], StoppingRule], *, best: bool) -> None:
        self.open = dict(rules)
        self.tasks = 0
        self.left: dict[str, int] = {}
        self._best = best

    @property
    def running(self) -> frozenset[str]:
        """The candidates that are still compared with another one."""
        return frozenset(name for names in self.open for name in names)

    def see(self, apart: Callable[[str, str], Apart | None]) -> None:
        """Look at the next task: *apart* says how far two candidates are apart on it, if it is known."""
        self.tasks += 1
        for names, rule in self.open.items():
            if (known := apart(*names)) is not None:
                low, high, seen = known
                rule.see_between(low, high, seen=seen)
        if self._best:
            worse = (n[rule.first_leads] for n, rule in self.open.items() if rule.decided)
            self.left.update(dict.fromkeys(worse, self.tasks))
        self.open = {
            names: rule
            for names, rule in self.open.items()
            if not rule.settled and self.left.keys().isdisjoint(names)
        }


@value_object
class TaskOrder:
    """The ids of the tasks in the order drawn, and what the run was to find out how precisely.

    `complete` are the candidates of which every planned trial has ended: they have their last look.
    With `best`, only the best candidate is wanted; `looks` is how many there are, None after each task.
    """

    order: Sequence[str]
    precision: float | None = None
    complete: frozenset[str] = frozenset()
    best: bool = False
    looks: int | None = None

    def rule(self, *, pairs: int, level: float = 0.95) -> StoppingRule:
        """Return the rule for one of *pairs* pairs."""
        return StoppingRule(
            pairs=pairs,
            tasks=max(len(self.order), 1),
            precision=self.precision,
            level=level,
            looks=self.looks,
        )


_OUT = "one of them is surely not the best"


def compare_all_drawn(
    columns: Sequence[TaskMeans], drawn: TaskOrder, *, level: float
) -> tuple[Pair, ...]:
    """Compare every two candidates of an adaptive run; their means are in the order of the tasks."""
    many = math.comb(len(columns), 2)
    left = _left(columns, drawn, pairs=many, level=level) if drawn.best else {}
    seen = replace(drawn, complete=drawn.complete - left.keys())
    pairs = []
    for first, second in combinations(columns, 2):
        ends = [left[c.candidate] for c in (first, second) if c.candidate in left]
        both = [_upto(column, min(ends)) if ends else column for column in (first, second)]
        pair = compare_drawn(*both, pairs=many, drawn=seen, level=level)
        if ends and not pair.settled:
            pair = replace(pair, settled=True, reason=_OUT)
        pairs.append(pair)
    return decide_drawn(pairs, precision=drawn.precision, level=level)


def _left(
    columns: Sequence[TaskMeans], drawn: TaskOrder, *, pairs: int, level: float
) -> Mapping[str, int]:
    """Return after how many tasks each candidate left that is surely not the best."""
    tasks = {
        (first.candidate, second.candidate): list(_differences(first, second))
        for first, second in combinations(columns, 2)
    }

    def apart(number: int, first: str, second: str) -> Apart | None:
        return _known(*tasks[first, second][number])

    race = Race({names: drawn.rule(pairs=pairs, level=level) for names in tasks}, best=True)
    for number in range(len(columns[0].means)):
        race.see(partial(apart, number))
    return race.left


def _upto(column: TaskMeans, tasks: int) -> TaskMeans:
    """Return the first *tasks* of *column*."""
    return replace(
        column,
        means=column.means[:tasks],
        groups=column.groups[:tasks],
        bounds={number: known for number, known in column.bounds.items() if number < tasks},
    )


def _known(difference: float, low: float, high: float) -> Apart | None:
    """Return a difference and its bounds, the difference None where a score is missing."""
    if math.isnan(low):
        return None
    return low, high, None if math.isnan(difference) else difference


def compare_drawn(
    first: TaskMeans, second: TaskMeans, *, pairs: int, drawn: TaskOrder, level: float
) -> Pair:
    """Compare two of *pairs* pairs; their means are in the order of the tasks."""
    rule = drawn.rule(pairs=pairs, level=level)
    for task in _differences(first, second):
        if (known := _known(*task)) is not None:
            low, high, seen = known
            rule.see_between(low, high, seen=seen)
    over = {first.candidate, second.candidate} <= drawn.complete and not rule.decided
    if over:
        rule.end()
    differences = rule.differences
    pair = Pair(
        first=first.candidate,
        second=second.candidate,
        tasks=len(differences),
        left_out=0,  # what is not there was not needed
        won=sum(d > 0 for d in differences),
        lost=sum(d < 0 for d in differences),
        settled=rule.settled,
        units=len(differences),
        solved=first.solved and second.solved,
        faults=shared_faults(first, second),
    )
    if not differences:
        return replace(pair, reason="no task has a score of both")
    mean = math.fsum(differences) / len(differences)
    interval = rule.interval(level=level)
    pair = replace(
        _at_worst(pair, first, second, mean=mean),
        difference=mean,
        interval=interval,
        test=rule.test,
        p=rule.p,
        worst_p=rule.worst_p if pair.faults else None,
        early=rule.decided,
        reason=None if interval else "the scores refute every difference: did the tasks change?",
    )
    if not over:
        return pair
    share = rule.for_last_look
    whole = compare(first, second, alpha=(share or 1.0) * (1 - level) / pairs)
    return _with_last_look(pair, whole, share=share)


def _with_last_look(pair: Pair, whole: Pair, *, share: float) -> Pair:
    """Return *pair* of a suite that is over, with this *share* of the error for the *whole*."""
    if whole.p is None or not share:
        return replace(pair, se=whole.se, tipping=whole.tipping)
    worst = max(whole.p, whole.worst_p or 0.0) / share
    return replace(
        pair,
        se=whole.se,
        p=min(pair.p or 1.0, whole.p / share),
        worst_p=None if pair.worst_p is None else min(pair.worst_p, worst, 1.0),
        tipping=whole.tipping,
    )


def _differences(first: TaskMeans, second: TaskMeans) -> Iterator[tuple[float, float, float]]:
    """Yield for each task the difference that was seen, and the least and the most it could be."""
    seen = zip(first.means, second.means, strict=True)
    low = worst_means(first, second, first_leads=True)
    high = worst_means(first, second, first_leads=False)
    for each in zip(seen, low, high, strict=True):
        difference, least, most = (a - b for a, b in each)
        yield difference, least, most


def _at_worst(pair: Pair, first: TaskMeans, second: TaskMeans, *, mean: float) -> Pair:
    """Return *pair* with the difference that all faults against the one ahead would leave."""
    if not pair.faults or not mean:
        return pair
    both = worst_means(first, second, first_leads=mean > 0)
    known = [a - b for a, b in both if not math.isnan(a - b)]
    return replace(pair, worst_difference=math.fsum(known) / len(known))


def decide_drawn(
    pairs: Sequence[Pair], *, precision: float | None, level: float
) -> tuple[Pair, ...]:
    """Return all *pairs* of a run, each with its verdict, its p adjusted for being one of many."""
    strictest = 1 - (1 - level) / max(len(pairs), 1)
    return tuple(
        _agreeing(_judged(pair, precision=precision, level=level, strictest=strictest), level=level)
        for pair in adjusted(pairs)
    )


def _agreeing(pair: Pair, *, level: float) -> Pair:
    """Return *pair* with 0 in its interval exactly where p does not refute it."""
    if pair.interval is None or pair.difference is None or pair.p_holm is None:
        return pair
    refuted = pair.p_holm < 1 - level
    return replace(pair, interval=as_tested(pair.interval, pair.difference, refuted=refuted))


def _judged(pair: Pair, *, precision: float | None, level: float, strictest: float) -> Pair:
    if pair.p_holm is None or pair.difference is None:
        return undecided(pair, pair.reason)
    if pair.p_holm < 1 - level and pair.difference:
        if not holds(pair, level=level):
            return withheld(pair)
        better = pair.first if pair.difference > 0 else pair.second
        return replace(pair, better=better, verdict=f"{better} is better")
    if not pair.settled:
        # the whole suite was run, or no task told them apart
        over = pair.se is not None or not (pair.won or pair.lost)
        return left_open(pair, level=strictest) if over else undecided(pair, "needs more tasks")
    return undecided(pair, pair.reason or f"known to within {precision:g}")
