"""The task grid, and the trials of the most informative tasks in full."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import groupby
from typing import TYPE_CHECKING

from bakeoff.core.lazy_tasks import outlines_of
from bakeoff.core.record import TrialRecord
from bakeoff.core.task import Task
from bakeoff.reports.html.charts import shade
from bakeoff.reports.html.templates import part
from bakeoff.reports.wording import phrases
from bakeoff.reports.wording.findings import Findings, evidence_of
from bakeoff.stats.by_task import TaskSummary
from bakeoff.stats.head_to_head import figures

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_ROWS = 1_000
MOST_CELLS = 20_000
MOST_TRIALS = 1_000
MOST_TRIALS_OF_A_TASK = 200


def informativeness(cells: Collection[TaskSummary]) -> tuple[float, ...]:
    """Return the sort key of a task from its results; the most informative task has the smallest."""
    means = [cell.mean for cell in cells if cell.mean is not None]
    return (
        not any(cell.recorded for cell in cells),
        -_spread(means),
        -sum(cell.faulted for cell in cells),
        min(means, default=1.0),
    )


def _spread(means: Collection[float]) -> float:
    """Return the difference between the best and the worst mean."""
    return max(means) - min(means) if means else 0.0


@dataclass(frozen=True, kw_only=True)
class ReportSelection:
    """The tasks of the grid, those shown in full, and how many rollouts of each."""

    rows: tuple[Task, ...]
    detailed: tuple[Task, ...]
    rollouts: int


def select(findings: Findings) -> ReportSelection:
    """Return what to show of *findings*, in the order of the plan."""
    candidates = max(len(findings.candidates), 1)
    planned = max(findings.plan.rollouts, 1)
    rollouts = min(planned, max(MOST_TRIALS_OF_A_TASK // candidates, 1))
    rows = max(min(MOST_ROWS, MOST_CELLS // candidates), 1)
    detailed = max(MOST_TRIALS // (candidates * rollouts), 1)
    numbers = _most_informative(findings, max(rows, detailed))
    tasks = {number: findings.tasks[number] for number in numbers}
    return ReportSelection(
        rows=tuple(tasks[number] for number in sorted(numbers[:rows])),
        detailed=tuple(tasks[number] for number in sorted(numbers[:detailed])),
        rollouts=rollouts,
    )


def _most_informative(findings: Findings, most: int) -> Sequence[int]:
    """Return the numbers of the tasks that tell most, those first."""
    cells = findings.cells
    by_worth = nsmallest(
        most,
        ((number, task.id) for number, task in enumerate(outlines_of(findings.tasks))),
        key=lambda numbered: informativeness(cells.get(numbered[1], {}).values()),
    )
    return [number for number, _ in by_worth]


_MOST_EVIDENCE = 10_000_000
_MOST_CHIPS = 8


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The result of a task for one candidate; `kind` is its style class."""

    kind: str
    text: str
    remarks: tuple[str, ...] = ()


def cell(summary: TaskSummary | None, missing: str) -> Cell:
    """Return the result of a task for one candidate; *missing* is the reason if there is none."""
    if summary is None:
        return Cell(kind="none", text=phrases.UNKNOWN)
    if summary.mean is None:
        if summary.faulted:
            return Cell(kind="broken", text="fault")
        return Cell(kind="none", text="no score" if summary.recorded else missing)
    remarks = [f"{summary.passed} of {summary.scored}"] if summary.scored > 1 else []
    remarks += [phrases.counted(summary.faulted, "fault")] if summary.faulted else []
    return Cell(kind=shade(summary.mean), text=f"{summary.mean:.2f}", remarks=tuple(remarks))


@dataclass(frozen=True, kw_only=True)
class GridRow:
    """A task in the grid with its cells; `anchor` is where its trials are on the page."""

    task: str
    anchor: str | None
    cells: tuple[Cell, ...]


def grid(findings: Findings, shown: ReportSelection) -> Iterator[GridRow]:
    """Yield the rows of the grid; tasks shown in full have an anchor."""
    numbers = {task.id: number for number, task in enumerate(shown.detailed)}
    for task in shown.rows:
        cells = findings.cells.get(task.id, {})
        is_linked = task.id in numbers and any(found.recorded for found in cells.values())
        yield GridRow(
            task=task.id,
            anchor=anchor(numbers[task.id]) if is_linked else None,
            cells=tuple(cell(cells.get(c), findings.why_missing(c)) for c in findings.candidates),
        )


def how_many(findings: Findings, shown: ReportSelection) -> str:
    """Return which tasks the grid has."""
    many = len(findings.tasks)
    text = "The mean of each task, and how many of its scored rollouts passed"
    if len(shown.rows) == many:
        return f"{text}: {phrases.counted(many, 'task')}, in the order of the plan."
    return (
        f"{text}: {len(shown.rows):,} of {many:,} tasks, those on which the candidates differ most, "
        "then those that broke. All are in the figures and in the other formats."
    )


def anchor(number: int) -> str:
    """Return the element id of the task with this *number*."""
    return f"task-{number}"


@dataclass(frozen=True, kw_only=True)
class TaskSection:
    """A task with its cells and, one after another, its trials."""

    task: Task
    anchor: str
    cells: tuple[Cell, ...]
    more: int
    parts: "Iterator[Markup]"


def trials(findings: Findings, shown: ReportSelection) -> Iterator[TaskSection]:
    """Yield a section per task, up to the size limit of the page."""
    tasks = {task.id: (number, task) for number, task in enumerate(shown.detailed)}
    records = findings.trials.records(tasks=list(tasks), rollouts=shown.rollouts)
    room = _Room(left=_MOST_EVIDENCE)
    for task_id, task_records in groupby(records, key=lambda record: record.task_id):
        number, task = tasks[task_id]
        cells = findings.cells.get(task.id, {})
        names = [name for name in findings.candidates if name in cells]
        yield TaskSection(
            task=task,
            anchor=anchor(number),
            cells=tuple(cell(cells[n], findings.why_missing(n)) for n in names[:_MOST_CHIPS]),
            more=max(len(names) - _MOST_CHIPS, 0),
            parts=_within(room, findings, _trial_parts(findings, task, task_records)),
        )


@dataclass
class _Room:
    """How many characters the page may still grow by."""

    left: int


def _within(room: _Room, findings: Findings, parts: "Iterator[Markup]") -> "Iterator[Markup]":
    for html in parts:
        if room.left <= 0:
            text = f"This page is at its size limit; {_how_to_see(findings)}"
            yield part("components.html", "quiet", text)
            break
        room.left -= len(html)
        yield html


def _trial_parts(
    findings: Findings, task: Task, records: Iterable[TrialRecord]
) -> "Iterator[Markup]":
    alone = len(findings.candidates) * findings.plan.rollouts == 1
    if not findings.prompts:
        yield part("trial.html", "asked", task)
    yield part("trial.html", "expected", task)
    for record in records:
        asked = findings.as_asked(record.candidate_id, task) if findings.prompts else None
        rollout = figures(record.rollout, record.attempt)
        yield part("trial.html", "trial", record, rollout, evidence_of(record), asked, alone)


def how_much(findings: Findings, shown: ReportSelection) -> str:
    """Return which trials are shown in full."""
    if len(shown.detailed) == len(findings.tasks) and shown.rollouts == findings.plan.rollouts:
        return "Every trial with its transcript, changes and checks."
    first = (
        f", {shown.rollouts} rollouts of each" if shown.rollouts < findings.plan.rollouts else ""
    )
    return f"{phrases.counted(len(shown.detailed), 'task')}, the most informative{first}; {_how_to_see(findings)}"


def _how_to_see(findings: Findings) -> str:
    return f"any other trial: {findings.command('show', 'TASK')}"
