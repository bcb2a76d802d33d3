"""Pairwise comparison of all candidates of a run, and the ranks consistent with it.

A candidate's rank is that of its mean score, among those that have one. Where trials faulted, it is
that of the score that is sure: each fault counted as 0, so that faults never improve a rank, and
the order is that of all verdicts on the same tasks. Its range goes from 1 +
those that are surely better to n - those that are surely worse, as in `rankings`.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import combinations
from typing import Protocol

from bakeoff._lib.value_object import value_object
from bakeoff.stats.estimate import MissingBounds, bounds, ratio_of_totals
from bakeoff.stats.fairness import FairnessCheck, not_alike
from bakeoff.stats.one_task import Rollouts, compare_rollouts
from bakeoff.stats.paired import Pair, TaskMeans, compare, decide
from bakeoff.stats.rankings import RankedCandidate, rank_ranges
from bakeoff.stats.stopping_rule import TaskOrder, compare_all_drawn

BY_SCORE, BY_SURE_SCORE = "score", "score with faulted trials counted as 0"
_MOST_SAMPLED = 10_000  # sizes of differences, over all pairs: about a second


class TaskTally(Protocol):
    """The scores of one task for one candidate: count, sum and passes."""

    n: int
    total: float
    passed: int


@value_object
class CandidateScores:
    """A candidate with its scored tasks, by category and id; a task is in one category.

    `faults` has the tasks of which trials faulted, with their number. `rollouts` are the scores of
    a run's only task. `groups` has the group of every task that is in one, `costs` what the trials of
    a task cost in the mean.
    """

    candidate: str
    tasks: Mapping[str, Mapping[str, TaskTally]]
    faults: Mapping[str, int] = field(default_factory=dict)
    rollouts: Sequence[float] | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)


@value_object
class Pairwise:
    """All pairs of candidates compared; `reason` says why there are no rank ranges.

        `tasks` are those that every candidate has a score on; of these, `passed_by_all` were passed in
    every rollout by all candidates and `passed_by_none` in no rollout by any. `ordered_by` says what
    `ranks` is sorted by.
    """

    level: float
    pairs: tuple[Pair, ...]
    ranks: tuple[RankedCandidate, ...]
    tasks: int
    passed_by_all: int
    passed_by_none: int
    reason: str | None
    ordered_by: str = BY_SCORE

    @property
    def settled(self) -> frozenset[str]:
        """The candidates that need no more trials in an adaptive run."""
        names = frozenset(name for pair in self.pairs for name in (pair.first, pair.second))
        return names - {n for p in self.pairs if not p.settled for n in (p.first, p.second)}


def pairwise(
    candidates: Sequence[CandidateScores],
    *,
    level: float = 0.95,
    drawn: TaskOrder | None = None,
    margin: float | None = None,
    apart: FairnessCheck | None = None,
) -> Pairwise | None:
    """Compare all pairs of *candidates*, in their order; None if there are fewer than two.

    With a *margin*, it is also said which are equivalent within it. There is no verdict on a pair of which
    *apart* says that its conditions differ.

    With *drawn*, the run was adaptive, and is compared with anytime-valid tests.
    """
    if len(candidates) < 2:
        return None
    table = _Table.of(candidates, drawn.order if drawn else None)
    if any(candidate.rollouts is not None for candidate in candidates):
        pairs = compare_rollouts(_couples(candidates), level=level)
    elif drawn is None:
        pairs = _pairs(table.columns, level, margin)
    else:
        pairs = compare_all_drawn(table.columns, drawn, level=level)
    costs = {candidate.candidate: candidate.costs for candidate in candidates}
    pairs = tuple(_with_costs(pair, costs, table.groups) for pair in pairs)
    if apart is not None:
        reasons = [apart(pair.first, pair.second) for pair in pairs]
        pairs = tuple(
            not_alike(p, why) if why else p for p, why in zip(pairs, reasons, strict=True)
        )
    tested = any(pair.p is not None for pair in pairs)
    return Pairwise(
        level=level,
        pairs=pairs,
        ranks=_ranks(table.columns, pairs, tested=tested, implied=drawn is not None and drawn.best),
        tasks=table.tasks,
        passed_by_all=table.passed_by_all,
        passed_by_none=table.passed_by_none,
        reason=None if tested else "no two candidates have two scored tasks in common",
        ordered_by=BY_SURE_SCORE if any(c.bounds for c in table.columns) else BY_SCORE,
    )


def _with_costs(
    pair: Pair, costs: Mapping[str, Mapping[str, float]], groups: Mapping[str, str]
) -> Pair:
    """Return *pair* with how many times the cost of the second the first has."""
    first, second = costs[pair.first], costs[pair.second]
    shared = sorted(first.keys() & second.keys())
    if not shared:
        return pair
    ratio = ratio_of_totals(
        [(first[task], second[task]) for task in shared],
        groups=[groups.get(task) for task in shared] if groups else None,
    )
    return replace(pair, cost_ratio=ratio)


def _couples(candidates: Sequence[CandidateScores]) -> list[tuple[Rollouts, Rollouts]]:
    given = [
        Rollouts(
            candidate=candidate.candidate,
            scores=candidate.rollouts or (),
            faults=sum(candidate.faults.values()),
        )
        for candidate in candidates
    ]
    return list(combinations(given, 2))


def _pairs(
    columns: Sequence[TaskMeans], level: float, margin: float | None = None
) -> tuple[Pair, ...]:
    many = math.comb(len(columns), 2)
    pairs = [
        compare(first, second, most_sampled=_MOST_SAMPLED // many, alpha=(1 - level) / many)
        for first, second in combinations(columns, 2)
    ]
    return decide(pairs, level=level, margin=margin)


@value_object
class _Table:
    """Task means by candidate: eight bytes each, whatever the number of trials."""

    columns: tuple[TaskMeans, ...]
    groups: Mapping[str, str]
    tasks: int
    passed_by_all: int
    passed_by_none: int

    @classmethod
    def of(
        cls, candidates: Sequence[CandidateScores], order: Sequence[str] | None = None
    ) -> "_Table":
        means = [array("d") for _ in candidates]
        binary, solved = [True] * len(candidates), [True] * len(candidates)
        known_groups = next((c.groups for c in candidates if c.groups), {})
        groups: list[str | None] = []
        unsure: list[dict[int, MissingBounds]] = [{} for _ in candidates]
        tasks = passed_by_all = passed_by_none = 0
        rows = _rows(candidates) if order is None else _rows_in(order, candidates)
        for index, (task, row) in enumerate(rows):
            if known_groups:
                groups.append(known_groups.get(task))
            for number, (candidate, tally) in enumerate(zip(candidates, row, strict=True)):
                if faults := candidate.faults.get(task, 0):
                    unsure[number][index] = _bounds(tally, faults)
                means[number].append(math.nan if tally is None else tally.total / tally.n)
                if tally is not None and (tally.n > 1 or tally.total not in {0, 1}):
                    binary[number] = False
                if tally is not None and tally.total != tally.passed:
                    solved[number] = False
            known = [tally for tally in row if tally is not None]
            if len(known) == len(row):
                tasks += 1
                passed_by_all += all(tally.passed == tally.n for tally in known)
                passed_by_none += not any(tally.passed for tally in known)
        return cls(
            columns=tuple(
                TaskMeans(
                    candidate=candidate.candidate,
                    means=means[number],
                    binary=binary[number],
                    bounds=unsure[number],
                    groups=groups,
                    solved=solved[number],
                )
                for number, candidate in enumerate(candidates)
            ),
            groups=known_groups,
            tasks=tasks,
            passed_by_all=passed_by_all,
            passed_by_none=passed_by_none,
        )


def _bounds(tally: TaskTally | None, faults: int) -> MissingBounds:
    scored, total = (tally.n, tally.total) if tally is not None else (0, 0.0)
    return bounds(scored=scored, total=total, faults=faults)


_Row = tuple[str, list[TaskTally | None]]


def _rows(candidates: Sequence[CandidateScores]) -> Iterator[_Row]:
    """Yield each recorded task with the tallies of all candidates."""
    nothing: Mapping[str, TaskTally] = {}
    for category in {name: None for candidate in candidates for name in candidate.tasks}:
        parts = [candidate.tasks.get(category, nothing) for candidate in candidates]
        for number, part in enumerate(parts):
            for task in part:
                if not any(task in earlier for earlier in parts[:number]):
                    yield task, [other.get(task) for other in parts]
    for task in sorted({task for candidate in candidates for task in candidate.faults}):
        if not any(task in part for candidate in candidates for part in candidate.tasks.values()):
            yield task, [None for _ in candidates]


def _rows_in(order: Sequence[str], candidates: Sequence[CandidateScores]) -> Iterator[_Row]:
    """Yield the same in the *order* of the tasks."""
    known = [
        {t: tally for part in candidate.tasks.values() for t, tally in part.items()}
        for candidate in candidates
    ]
    for task in order:
        row = [tallies.get(task) for tallies in known]
        if any(row) or any(task in candidate.faults for candidate in candidates):
            yield task, row


def _ranks(
    columns: Sequence[TaskMeans], pairs: Sequence[Pair], *, tested: bool, implied: bool
) -> tuple[RankedCandidate, ...]:
    means = {c.candidate: mean for c in columns if (mean := _mean(c.means)) is not None}
    sure = {c.candidate: _mean(c.at_least()) or 0.0 for c in columns if c.candidate in means}
    decided = [
        (pair.better, pair.second if pair.better == pair.first else pair.first)
        for pair in pairs
        if pair.better is not None
    ]
    if implied:
        decided = _with_implied(decided)
    ordered = [(name, means[name]) for name in _in_order(sure, decided)]
    return rank_ranges(ordered, decided if tested else None)


def _with_implied(decided: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return *decided* and what follows: who beats one that left also beats those it had beaten."""
    beaten: dict[str, set[str]] = {}
    for better, worse in decided:
        beaten.setdefault(better, set()).add(worse)
    implied = []
    for better in beaten:
        below: set[str] = set()
        open_yet = [better]
        while open_yet:
            new = beaten.get(open_yet.pop(), set()) - below - {better}
            below |= new
            open_yet += new
        implied += [(better, worse) for worse in sorted(below)]
    return implied


def _mean(values: Iterable[float]) -> float | None:
    """Return the mean of what is known; None where nothing is."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else None


def _in_order(means: Mapping[str, float], decided: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield names by descending mean, but none before a significantly better one.

    Where not all did the same tasks, the mean of all its tasks may put a candidate before one that
    beats it on those they share.
    """
    left = sorted(means, key=lambda name: (-means[name], name))
    while left:
        beaten = {worse for better, worse in decided if better in left}
        # decisions on different tasks may go in a circle: then the mean is all there is
        first = next((name for name in left if name not in beaten), left[0])
        left.remove(first)
        yield first
