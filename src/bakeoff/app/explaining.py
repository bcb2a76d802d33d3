"""Why one candidate of a run is better than another, and the tasks behind it as a suite of their own."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff._lib.phrasing import did_you_mean
from bakeoff.app.reporting import clean, redactor_of
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Plan
from bakeoff.core.task import Task
from bakeoff.formats.suite_writing import write_suite
from bakeoff.stats.explain import (
    ENOUGH_CANDIDATES,
    CategoryPart,
    FailureGroup,
    TaskPart,
    TaskQuality,
    failure_groups,
    gap,
    task_qualities,
)
from bakeoff.stats.paired import Pair
from bakeoff.stats.pairwise import Pairwise
from bakeoff.stores.attachments import AttachmentStore

if TYPE_CHECKING:
    from bakeoff.app.run_results import Run

_CATEGORY = "category:"


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why `first` and `second` differ: in tasks, categories and failures.

    `difference` is first - second on the tasks that both have a score on; the `part`s of `tasks`, and those of
    `categories`, add up to it. `better` and `verdict` are as in the summary of the run. `qualities` are over all `candidates` of the run.
    """

    run: str
    first: str
    second: str
    difference: float | None
    better: str | None
    verdict: str
    tasks: tuple[TaskPart, ...]
    categories: tuple[CategoryPart, ...]
    left_out: int
    candidates: int
    qualities: tuple[TaskQuality, ...]
    failures: tuple[FailureGroup, ...]

    @property
    def groups(self) -> dict[str, list[str]]:
        """Tasks by the names that `write` takes; a group without tasks is left out."""
        sign = -1 if (self.difference or 0.0) < 0 else 1
        found = {
            "gap": [t.task for t in self.tasks if t.part],
            "ahead": [t.task for t in self.tasks if sign * t.part > 0],
            "behind": [t.task for t in self.tasks if sign * t.part < 0],
            "flaky": [q.task for q in self.qualities if q.flaky],
            "all-pass": [q.task for q in self.qualities if q.all_pass],
            "none-pass": [q.task for q in self.qualities if q.none_pass],
            "suspicious": [q.task for q in self.qualities if q.suspicious],
            **{group.name: list(group.tasks) for group in self.failures},
        }
        for part in self.categories:
            if part.category is not None:
                members = [t.task for t in self.tasks if t.category == part.category]
                found[_CATEGORY + part.category] = members
        return {name: tasks for name, tasks in found.items() if tasks}

    @property
    def correlations_known(self) -> bool:
        """Whether there are enough candidates to say which tasks are suspicious."""
        return self.candidates >= ENOUGH_CANDIDATES


def explain(run: "Run", first: str | None = None, second: str | None = None) -> Explanation:
    """Return why *first* and *second* differ; of a run with two candidates, they need not be named."""
    plan = run.plan
    names = _pair(plan, first, second)
    totals, redactor = list(run.totals()), redactor_of(plan)
    parts = gap(totals, *names)
    pair = _tested(run.summary().pairwise, names)
    return Explanation(
        run=run.id,
        first=names[0],
        second=names[1],
        difference=parts.difference,
        better=None if pair is None else pair.better,
        verdict="" if pair is None else pair.verdict,
        tasks=parts.tasks,
        categories=parts.categories,
        left_out=parts.left_out,
        candidates=sum(1 for _ in plan.candidates),
        qualities=task_qualities(totals),
        failures=failure_groups(clean(failure, redactor) for failure in run.failures(names)),
    )


def _tested(pairwise: Pairwise | None, names: tuple[str, str]) -> Pair | None:
    """Return the comparison of the two as the summary of the run has it."""
    pairs = () if pairwise is None else pairwise.pairs
    return next((pair for pair in pairs if {pair.first, pair.second} == set(names)), None)


def _pair(plan: Plan, first: str | None, second: str | None) -> tuple[str, str]:
    there = [candidate.id for candidate in plan.candidates]
    if first is None or second is None:
        if len(there) != 2:
            raise UsageError(
                f"which two candidates? There are: {', '.join(there)}; write: bakeoff explain RUN A B"
                if len(there) > 2
                else "the run has one candidate: there is nothing to explain it against"
            )
        return there[0], there[1]
    for name in (first, second):
        if name not in there:
            raise UsageError(f"no candidate {name!r} in this run: {did_you_mean(name, there)}")
    if first == second:
        raise UsageError(f"{first!r} would be explained against itself; name two candidates")
    return first, second


def write_group(run: "Run", explanation: Explanation, group: str, path: Path) -> int:
    """Write the tasks of a *group* of *explanation* as a suite to *path*; return how many they are."""
    groups = explanation.groups
    if group not in groups:
        raise UsageError(f"no group {group!r} with tasks in it: {did_you_mean(group, groups)}")
    return write_tasks(run, groups[group], path, name=f"{group} of {run.id}")


def write_tasks(run: "Run", ids: Collection[str], path: Path, *, name: str) -> int:
    """Write the tasks with these *ids* as a suite that asks and scores as *run* did."""
    wanted, plan = set(ids), run.plan
    attachments = AttachmentStore(run.folder)
    tasks: Sequence[Task] = [attachments.task(t) for t in plan.tasks if t.id in wanted]
    write_suite(path, tasks, name=name)
    return len(tasks)
