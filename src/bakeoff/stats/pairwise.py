"""All candidates of a run, two by two, and the ranks that the decisions leave open.

A candidate's rank is that of its mean score, among those that have one. Where trials faulted, it is
that of the score that is sure: each fault counted as 0, so that faults never improve a rank, and
the order is that of all verdicts on the same tasks. Its range goes from 1 +
those that are surely better to n - those that are surely worse, as in `rankings`.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Protocol

from bakeoff.stats.missing import MissingBounds, bounds
from bakeoff.stats.one_task import Rollouts, compare_rollouts
from bakeoff.stats.paired import Pair, TaskMeans, compare, decide
from bakeoff.stats.rankings import Placed, place
from bakeoff.stats.stopping_rule import Drawn, compare_drawn, decide_drawn

BY_SCORE, BY_SURE_SCORE = "score", "score with faulted trials counted as 0"
_MOST_SAMPLED = 10_000  # sizes of differences, over all pairs: about a second


class Tallied(Protocol):
    """What is known of one task for one candidate: so many scores, their sum, and the passes."""

    n: int
    total: float
    passed: int


@dataclass(frozen=True, kw_only=True)
class Seat:
    """A candidate with its scored tasks, by category and id; a task is in one category.

    `faults` has the tasks of which trials faulted, with their number. `rollouts` are the scores of
    a run's only task.
    """

    candidate: str
    tasks: Mapping[str, Mapping[str, Tallied]]
    faults: Mapping[str, int] = field(default_factory=dict)
    rollouts: Sequence[float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairwise:
    """Every two candidates compared. `reason` says why there are no rank ranges.

    `tasks` are those that every candidate has a score on; of these, `passed_by_all` were passed in
    every rollout by everybody and `passed_by_none` in no rollout by anybody. `ordered_by` says what
    the order of `ranks` is that of.
    """

    level: float
    pairs: tuple[Pair, ...]
    ranks: tuple[Placed, ...]
    tasks: int
    passed_by_all: int
    passed_by_none: int
    reason: str | None
    ordered_by: str = BY_SCORE

    @property
    def settled(self) -> frozenset[str]:
        """Those of whom an adaptive run needs to know nothing more."""
        names = frozenset(name for pair in self.pairs for name in (pair.first, pair.second))
        return names - {n for p in self.pairs if not p.settled for n in (p.first, p.second)}


def pairwise(
    seats: Sequence[Seat], *, level: float = 0.95, drawn: Drawn | None = None
) -> Pairwise | None:
    """Compare every two of *seats*, in their order; None where there are not two.

    With *drawn*, the run was to end when it was sure, and is compared as such a run has to be.
    """
    if len(seats) < 2:
        return None
    table = _Table.of(seats, drawn.order if drawn else None)
    if any(seat.rollouts is not None for seat in seats):
        pairs = compare_rollouts(_couples(seats), level=level)
    elif drawn is None:
        pairs = _pairs(table.columns, level)
    else:
        pairs = _drawn(table.columns, drawn, level)
    tested = any(pair.p is not None for pair in pairs)
    return Pairwise(
        level=level,
        pairs=pairs,
        ranks=_ranks(table.columns, pairs, tested=tested),
        tasks=table.tasks,
        passed_by_all=table.passed_by_all,
        passed_by_none=table.passed_by_none,
        reason=None if tested else "no two candidates have two scored tasks in common",
        ordered_by=BY_SURE_SCORE if any(c.bounds for c in table.columns) else BY_SCORE,
    )


def _couples(seats: Sequence[Seat]) -> list[tuple[Rollouts, Rollouts]]:
    given = [
        Rollouts(
            candidate=seat.candidate,
            scores=seat.rollouts or (),
            faults=sum(seat.faults.values()),
        )
        for seat in seats
    ]
    return list(combinations(given, 2))


def _pairs(columns: Sequence[TaskMeans], level: float) -> tuple[Pair, ...]:
    many = math.comb(len(columns), 2)
    found = [
        compare(first, second, level=level, most_sampled=_MOST_SAMPLED // many)
        for first, second in combinations(columns, 2)
    ]
    return decide(found, level=level)


def _drawn(columns: Sequence[TaskMeans], drawn: Drawn, level: float) -> tuple[Pair, ...]:
    many, precision = math.comb(len(columns), 2), drawn.precision
    found = [
        compare_drawn(first, second, pairs=many, precision=precision, level=level)
        for first, second in combinations(columns, 2)
    ]
    return decide_drawn(found, precision=precision, level=level)


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Tasks by candidates: eight bytes for each, whatever the number of trials."""

    columns: tuple[TaskMeans, ...]
    tasks: int
    passed_by_all: int
    passed_by_none: int

    @classmethod
    def of(cls, seats: Sequence[Seat], order: Sequence[str] | None = None) -> "_Table":
        means = [array("d") for _ in seats]
        binary = [True] * len(seats)
        unsure: list[dict[int, MissingBounds]] = [{} for _ in seats]
        tasks = passed_by_all = passed_by_none = 0
        found = _rows(seats) if order is None else _rows_in(order, seats)
        for index, (task, row) in enumerate(found):
            for number, (seat, one) in enumerate(zip(seats, row, strict=True)):
                if faults := seat.faults.get(task, 0):
                    unsure[number][index] = _bounds(one, faults)
                means[number].append(math.nan if one is None else one.total / one.n)
                if one is not None and (one.n > 1 or one.total not in {0, 1}):
                    binary[number] = False
            known = [one for one in row if one is not None]
            if len(known) == len(row):
                tasks += 1
                passed_by_all += all(one.passed == one.n for one in known)
                passed_by_none += not any(one.passed for one in known)
        return cls(
            columns=tuple(
                TaskMeans(candidate=seat.candidate, means=mine, binary=marks, bounds=faulted)
                for seat, mine, marks, faulted in zip(seats, means, binary, unsure, strict=True)
            ),
            tasks=tasks,
            passed_by_all=passed_by_all,
            passed_by_none=passed_by_none,
        )


def _bounds(one: Tallied | None, faults: int) -> MissingBounds:
    scored, total = (one.n, one.total) if one is not None else (0, 0.0)
    return bounds(scored=scored, total=total, faults=faults)


_Row = tuple[str, list[Tallied | None]]


def _rows(seats: Sequence[Seat]) -> Iterator[_Row]:
    """Yield each task that anything is recorded of, with what everybody has on it."""
    nothing: Mapping[str, Tallied] = {}
    for category in {name: None for seat in seats for name in seat.tasks}:
        parts = [seat.tasks.get(category, nothing) for seat in seats]
        for number, part in enumerate(parts):
            for task in part:
                if not any(task in earlier for earlier in parts[:number]):
                    yield task, [other.get(task) for other in parts]
    for task in sorted({task for seat in seats for task in seat.faults}):
        if not any(task in part for seat in seats for part in seat.tasks.values()):
            yield task, [None for _ in seats]


def _rows_in(order: Sequence[str], seats: Sequence[Seat]) -> Iterator[_Row]:
    """Yield the same in the *order* of the tasks."""
    known = [{t: one for part in seat.tasks.values() for t, one in part.items()} for seat in seats]
    for task in order:
        row = [mine.get(task) for mine in known]
        if any(row) or any(task in seat.faults for seat in seats):
            yield task, row


def _ranks(
    columns: Sequence[TaskMeans], pairs: Sequence[Pair], *, tested: bool
) -> tuple[Placed, ...]:
    means = {c.candidate: mean for c in columns if (mean := _mean(c.means)) is not None}
    sure = {c.candidate: _mean(c.at_least()) or 0.0 for c in columns if c.candidate in means}
    decided = [
        (pair.better, pair.second if pair.better == pair.first else pair.first)
        for pair in pairs
        if pair.better is not None
    ]
    ordered = [(name, means[name]) for name in _in_order(sure, decided)]
    return place(ordered, decided if tested else None)


def _mean(values: Iterable[float]) -> float | None:
    """Return the mean of what is known; None where nothing is."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else None


def _in_order(means: Mapping[str, float], decided: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield names from the highest mean down, but nobody before one that is surely better.

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
