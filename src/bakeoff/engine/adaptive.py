"""Adaptive runs: which trials are still needed until the candidates can be told apart.

For each pair of candidates the tasks are compared in plan order, each once both have finished it;
trials that end out of order wait. So decisions depend on the scores alone, and a resumed run
decides like one that was never stopped.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations

from bakeoff.core.plan import Plan, Trial
from bakeoff.core.ports import Job
from bakeoff.core.record import Status, TrialRow
from bakeoff.core.run_spec import Adaptive
from bakeoff.stats.estimate import bounds, is_checked
from bakeoff.stats.stopping_rule import StoppingRule


class _Cell:
    """A task for a candidate: how many rollouts are due, and what those that ended scored."""

    __slots__ = ("due", "faults", "scored", "total")

    def __init__(self) -> None:
        self.due = self.scored = self.faults = 0
        self.total = 0.0

    @property
    def ended(self) -> bool:
        """Whether there is a score, or a fault that hides one."""
        return bool(self.scored or self.faults)


class _Pair:
    """Two candidates on the tasks that both are given."""

    def __init__(self, first: str, second: str, rule: StoppingRule) -> None:
        self.names = (first, second)
        self.rule = rule
        self.at = 0


class AdaptiveSelection:
    """Decides from the scores so far which trials of *plan* are still needed."""

    def __init__(self, plan: Plan, rule: Adaptive) -> None:
        self._order = [task.id for task in plan.drawn_tasks(rule.seed)]
        self._cells: dict[str, dict[str, _Cell]] = {c.id: {} for c in plan.candidates}
        for block in plan.blocks:
            for candidate in block.candidates:
                cells = self._cells[candidate.id]
                for task in block.tasks:
                    cells.setdefault(task.id, _Cell()).due += block.rollouts
        self._unchecked = {task.id for task in plan.tasks if not is_checked(task)}
        couples = list(combinations(self._cells, 2))
        self._open = [
            _Pair(*names, StoppingRule(pairs=len(couples), precision=rule.precision))
            for names in couples
        ]

    def wanted_jobs(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yield those of *jobs* that are still needed at their turn, until all pairs are decided."""
        for job in jobs:
            if not self.undecided:
                return
            if self._wants(job.trial):
                yield job

    def restore(self, rows: Iterable[TrialRow]) -> None:
        """Record what an earlier session finished."""
        for row in rows:
            if Status(row.status).final:
                self.record(row.candidate_id, row.task_id, row.score)

    @property
    def undecided(self) -> bool:
        """Whether any pair of candidates is still undecided."""
        return bool(self._open)

    def record(
        self, candidate: str, task: str, score: float | None, *, faulted: bool = False
    ) -> None:
        """Record that one rollout of *task* has ended; without a score it is missing data."""
        cell = self._cells[candidate][task]
        cell.due -= 1
        cell.faults += faulted and task not in self._unchecked
        if score is not None:
            cell.scored += 1
            cell.total += score
        if cell.due == 0:
            for pair in [pair for pair in self._open if candidate in pair.names]:
                self._advance(pair)

    def _wants(self, trial: Trial) -> bool:
        return any(trial.candidate.id in pair.names for pair in self._open)

    def _advance(self, pair: _Pair) -> None:
        """Compare the tasks of *pair* that both have finished."""
        first, second = (self._cells[name] for name in pair.names)
        while pair.at < len(self._order) and not pair.rule.settled:
            task = self._order[pair.at]
            one, other = first.get(task), second.get(task)
            if one is not None and other is not None:
                if one.due or other.due:
                    return
                if one.ended and other.ended:
                    _compare(pair.rule, one, other)
            pair.at += 1
        if pair.rule.settled:
            self._open.remove(pair)


def _compare(rule: StoppingRule, one: _Cell, other: _Cell) -> None:
    """Feed *rule* with a task that both finished: the observed scores, and what faults may hide."""
    first, second = (
        bounds(scored=cell.scored, total=cell.total, faults=cell.faults) for cell in (one, other)
    )
    known = one.scored and other.scored
    seen = one.total / one.scored - other.total / other.scored if known else None
    rule.see_between(first.low - second.high, first.high - second.low, seen=seen)
