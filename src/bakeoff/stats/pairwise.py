"""All candidates of a run, two by two, and the ranks that the decisions leave open.

A candidate's rank is that of its mean score, among those that have one. Its range goes from 1 +
those that are surely better to n - those that are surely worse, as in `rankings`.
"""

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

from bakeoff.stats.paired import Pair, TaskMeans, compare, decide
from bakeoff.stats.paired_anytime import Drawn, compare_drawn, decide_drawn
from bakeoff.stats.rankings import Placed, place

_MOST_SAMPLED = 10_000  # sizes of differences, over all pairs: about a second


class Tallied(Protocol):
    """What is known of one task for one candidate: so many scores, their sum, and the passes."""

    n: int
    total: float
    passed: int


@dataclass(frozen=True, kw_only=True)
class Seat:
    """A candidate with its scored tasks, by category and id; a task is in one category."""

    candidate: str
    tasks: Mapping[str, Mapping[str, Tallied]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairwise:
    """Every two candidates compared. `reason` says why there are no rank ranges.

    `tasks` are those that every candidate has a score on; of these, `passed_by_all` were passed in
    every rollout by everybody and `passed_by_none` in no rollout by anybody.
    """

    level: float
    pairs: tuple[Pair, ...]
    ranks: tuple[Placed, ...]
    tasks: int
    passed_by_all: int
    passed_by_none: int
    reason: str | None

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
    pairs = _pairs(table.columns, level) if drawn is None else _drawn(table.columns, drawn, level)
    tested = any(pair.p is not None for pair in pairs)
    return Pairwise(
        level=level,
        pairs=pairs,
        ranks=_ranks(table.columns, pairs, tested=tested),
        tasks=table.tasks,
        passed_by_all=table.passed_by_all,
        passed_by_none=table.passed_by_none,
        reason=None if tested else "no two candidates have two scored tasks in common",
    )


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
        tasks = passed_by_all = passed_by_none = 0
        for row in _rows(seats) if order is None else _rows_in(order, seats):
            for number, one in enumerate(row):
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
                TaskMeans(candidate=seat.candidate, means=mine, binary=marks)
                for seat, mine, marks in zip(seats, means, binary, strict=True)
            ),
            tasks=tasks,
            passed_by_all=passed_by_all,
            passed_by_none=passed_by_none,
        )


def _rows(seats: Sequence[Seat]) -> Iterator[list[Tallied | None]]:
    """Yield for each task that anybody has a score on what everybody has."""
    nothing: Mapping[str, Tallied] = {}
    for category in {name: None for seat in seats for name in seat.tasks}:
        parts = [seat.tasks.get(category, nothing) for seat in seats]
        for number, part in enumerate(parts):
            for task in part:
                if not any(task in earlier for earlier in parts[:number]):
                    yield [other.get(task) for other in parts]


def _rows_in(order: Sequence[str], seats: Sequence[Seat]) -> Iterator[list[Tallied | None]]:
    """Yield the same in the *order* of the tasks."""
    known = [{t: one for part in seat.tasks.values() for t, one in part.items()} for seat in seats]
    for task in order:
        row = [mine.get(task) for mine in known]
        if any(row):
            yield row


def _ranks(
    columns: Sequence[TaskMeans], pairs: Sequence[Pair], *, tested: bool
) -> tuple[Placed, ...]:
    known = {one.candidate: [mean for mean in one.means if not math.isnan(mean)] for one in columns}
    means = {name: math.fsum(values) / len(values) for name, values in known.items() if values}
    decided = [
        (pair.better, pair.second if pair.better == pair.first else pair.first)
        for pair in pairs
        if pair.better is not None
    ]
    ordered = [(name, means[name]) for name in _in_order(means, decided)]
    return place(ordered, decided if tested else None)


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
