"""Adaptive runs: which trials are still needed until the candidates can be told apart.

For each pair of candidates the tasks are compared in plan order, each once both have finished it;
trials that end out of order wait. Where only the best is wanted, all that are left look at a task
together. So decisions depend on the scores alone, and a resumed run decides like one that was never
stopped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations

from bakeoff.core.plan import Plan, Trial
from bakeoff.core.ports import Job
from bakeoff.core.record import Status, TrialRow
from bakeoff.core.run_spec import Adaptive
from bakeoff.stats.estimate import bounds, is_checked
from bakeoff.stats.stopping_rule import Apart, Race, TaskOrder


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
        self._races = _races(list(self._cells), self._order, rule)

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
        return any(race.open for race in self._races)

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
            for race in self._races:
                if candidate in race.running:
                    self._advance(race)

    def _wants(self, trial: Trial) -> bool:
        return any(trial.candidate.id in race.running for race in self._races)

    def _advance(self, race: Race) -> None:
        """Compare the tasks of *race* that all who are in it have finished."""
        while race.open and race.tasks < len(self._order):
            task = self._order[race.tasks]
            cells = {name: self._cells[name].get(task) for name in race.running}
            if any(cell is not None and cell.due for cell in cells.values()):
                return
            race.see(partial(_apart, cells))


def _races(candidates: Sequence[str], order: Sequence[str], rule: Adaptive) -> list[Race]:
    """Return one race of all pairs where only the best is wanted, else one for each pair."""
    couples = list(combinations(candidates, 2))
    best = rule.goal == "best"
    drawn = TaskOrder(order=order, precision=rule.precision, looks=rule.looks)
    rules = {names: drawn.rule(pairs=len(couples)) for names in couples}
    if best:
        return [Race(rules, best=True)]
    return [Race({names: rules[names]}, best=False) for names in couples]


def _apart(cells: Mapping[str, _Cell | None], one_name: str, other_name: str) -> Apart | None:
    """Return how far two are apart on a task that both finished, and what faults may hide."""
    one, other = cells[one_name], cells[other_name]
    if one is None or other is None or not (one.ended and other.ended):
        return None
    first, second = (
        bounds(scored=cell.scored, total=cell.total, faults=cell.faults) for cell in (one, other)
    )
    known = one.scored and other.scored
    seen = one.total / one.scored - other.total / other.scored if known else None
    return first.low - second.high, first.high - second.low, seen
