"""A run that ends when its candidates are told apart: which of its trials are still wanted.

For each pair of candidates the tasks are looked at in the order of the plan, each when both are
done with it; trials that end out of order wait. So what is decided depends on the scores alone, and
a run that is resumed decides as one that was never stopped.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations

from bakeoff.core.plan import Plan, Trial
from bakeoff.core.ports import Job
from bakeoff.core.record import Status, TrialRow
from bakeoff.core.run_spec import Adaptive
from bakeoff.stats.missing import bounds, is_checked
from bakeoff.stats.stopping_rule import StoppingRule


class _Cell:
    """A task for a candidate: how many rollouts are due, and what those that ended scored."""

    __slots__ = ("due", "faults", "scored", "total")

    def __init__(self) -> None:
        self.due = self.scored = self.faults = 0
        self.total = 0.0

    @property
    def ended(self) -> bool:
        """Whether anything is known of it: a score, or a fault that hides one."""
        return bool(self.scored or self.faults)


class _Pair:
    """Two candidates on the tasks that both are given."""

    def __init__(self, first: str, second: str, settling: StoppingRule) -> None:
        self.names = (first, second)
        self.settling = settling
        self.at = 0


class AdaptiveSelection:
    """Knows which trials of *plan* are wanted, from the scores it hears."""

    def __init__(self, plan: Plan, rule: Adaptive) -> None:
        self._order = [task.id for task in plan.drawn_tasks(rule.seed)]
        self._cells: dict[str, dict[str, _Cell]] = {c.id: {} for c in plan.candidates}
        for block in plan.blocks:
            for candidate in block.candidates:
                mine = self._cells[candidate.id]
                for task in block.tasks:
                    mine.setdefault(task.id, _Cell()).due += block.rollouts
        self._unchecked = {task.id for task in plan.tasks if not is_checked(task)}
        couples = list(combinations(self._cells, 2))
        self._open = [
            _Pair(*names, StoppingRule(pairs=len(couples), precision=rule.precision))
            for names in couples
        ]

    def chosen(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yield those of *jobs* that are wanted when it is their turn, until nothing is open."""
        for job in jobs:
            if not self.wanting:
                return
            if self._wants(job.trial):
                yield job

    def recall(self, rows: Iterable[TrialRow]) -> None:
        """Learn what an earlier session has finished."""
        for row in rows:
            if Status(row.status).final:
                self.hear(row.candidate_id, row.task_id, row.score)

    @property
    def wanting(self) -> bool:
        """Whether any two candidates are not told apart yet."""
        return bool(self._open)

    def hear(
        self, candidate: str, task: str, score: float | None, *, faulted: bool = False
    ) -> None:
        """Learn that one rollout of *task* is over; without a score it is missing data."""
        cell = self._cells[candidate][task]
        cell.due -= 1
        cell.faults += faulted and task not in self._unchecked
        if score is not None:
            cell.scored += 1
            cell.total += score
        if cell.due == 0:
            for pair in [pair for pair in self._open if candidate in pair.names]:
                self._go_on(pair)

    def _wants(self, trial: Trial) -> bool:
        return any(trial.candidate.id in pair.names for pair in self._open)

    def _go_on(self, pair: _Pair) -> None:
        """Look at the tasks of *pair* that both are done with."""
        ours, theirs = (self._cells[name] for name in pair.names)
        while pair.at < len(self._order) and not pair.settling.settled:
            task = self._order[pair.at]
            one, other = ours.get(task), theirs.get(task)
            if one is not None and other is not None:
                if one.due or other.due:
                    return
                if one.ended and other.ended:
                    _see(pair.settling, one, other)
            pair.at += 1
        if pair.settling.settled:
            self._open.remove(pair)


def _see(settling: StoppingRule, one: _Cell, other: _Cell) -> None:
    """Look at a task that both are done with: what was seen of it, and what its faults could hide."""
    first, second = (
        bounds(scored=cell.scored, total=cell.total, faults=cell.faults) for cell in (one, other)
    )
    known = one.scored and other.scored
    seen = one.total / one.scored - other.total / other.scored if known else None
    settling.see_between(first.low - second.high, first.high - second.low, seen=seen)
