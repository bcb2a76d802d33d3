"""The task grid, and the trials of the most informative tasks in full."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from itertools import groupby

from bakeoff.core.record import TrialRecord
from bakeoff.core.task import Task
from bakeoff.reports.html.page import Column, framed, named, opening, quiet, row
from bakeoff.reports.html.text import chip, clipped, code, conversation, diff, esc
from bakeoff.reports.wording import phrases
from bakeoff.reports.wording.findings import Check, Evidence, Findings, evidence_of
from bakeoff.stats.by_task import TaskSummary
from bakeoff.stats.head_to_head import RolloutFigures, figures

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
    return ReportSelection(
        rows=_most_informative(findings, rows),
        detailed=_most_informative(findings, max(MOST_TRIALS // (candidates * rollouts), 1)),
        rollouts=rollouts,
    )


def _most_informative(findings: Findings, most: int) -> tuple[Task, ...]:
    if len(findings.tasks) <= most:
        return tuple(findings.tasks)
    cells = findings.cells
    by_worth = nsmallest(
        most,
        enumerate(findings.tasks),
        key=lambda numbered: informativeness(cells.get(numbered[1].id, {}).values()),
    )
    return tuple(task for _, task in sorted(by_worth, key=lambda numbered: numbered[0]))


_SHORT = 2  # messages that need no click
_LONG = 4_000
_LONGEST_ID = 80
_MOST_EVIDENCE = 10_000_000
_MOST_CHIPS = 8


def evidence_html(evidence: Evidence, *, alone: bool) -> str:
    """Return the evidence as HTML; the changes are expanded if the rollout is *alone*."""
    return "".join(_parts(evidence, alone=alone))


def _parts(evidence: Evidence, *, alone: bool) -> Iterator[str]:
    if evidence.phases:
        yield quiet(
            " · ".join(f"{name} {phrases.seconds(s)}" for name, s in evidence.phases.items())
        )
    if evidence.error:
        yield f'<p class="fault">{esc(clipped(evidence.error, _LONG))}</p>'
    for check in evidence.checks:
        yield _check(check)
    if evidence.patch:
        yield opening("Changes", diff(evidence.patch), is_open=alone)
    elif evidence.patch is not None:
        yield quiet("Nothing was changed.")
    if evidence.left_out:
        yield quiet(clipped(f"Not in the patch: {', '.join(evidence.left_out)}", _LONG))
    if evidence.transcript:
        yield _transcript(evidence)
    elif evidence.answer:
        yield code(evidence.answer)


def _transcript(evidence: Evidence) -> str:
    many = len(evidence.transcript)
    messages = conversation(evidence.transcript)
    if many <= _SHORT and evidence.patch is None:
        return messages
    return opening(f"Transcript ({phrases.counted(many, 'message')})", messages)


def _check(check: Check) -> str:
    why = f": {check.explanation}" if check.explanation else ""
    output = opening("What the check printed", code(check.output)) if check.output else ""
    return quiet(clipped(f"{check.scorer} {check.value:.2f}{why}", _LONG)) + output


def grid(findings: Findings, shown: ReportSelection) -> Iterator[str]:
    """Yield the grid of tasks; tasks shown in full are links."""
    yield "<h2>Tasks</h2>"
    yield quiet(_how_many(findings, shown))
    columns = (Column("Task", "name"), *(Column(name, "cell") for name in findings.candidates))
    numbers = {task.id: number for number, task in enumerate(shown.detailed)}
    yield from framed(columns, _rows(findings, shown, columns, numbers), kind="grid")


def _how_many(findings: Findings, shown: ReportSelection) -> str:
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


def _rows(
    findings: Findings,
    shown: ReportSelection,
    columns: tuple[Column, ...],
    numbers: Mapping[str, int],
) -> Iterator[str]:
    nothing: Mapping[str, TaskSummary] = {}
    for task in shown.rows:
        cells = findings.cells.get(task.id, nothing)
        name = named(task.id, width=_LONGEST_ID)
        if task.id in numbers and any(cell.recorded for cell in cells.values()):
            name = f'<a href="#{anchor(numbers[task.id])}">{name}</a>'
        marks = [cell(cells.get(c), findings.why_missing(c)) for c in findings.candidates]
        yield row(columns, [name, *marks])


def cell(summary: TaskSummary | None, missing: str) -> str:
    """Return the result of a task for one candidate; *missing* is the reason if there is none."""
    if summary is None:
        return f'<span class="mark none">{phrases.UNKNOWN}</span>'
    if summary.mean is None:
        kind, text = _without_a_score(summary, missing)
        return f'<span class="mark {kind}">{esc(text)}</span>'
    several = f" <small>{summary.passed} of {summary.scored}</small>" if summary.scored > 1 else ""
    broke = (
        f" <small>{phrases.counted(summary.faulted, 'fault')}</small>" if summary.faulted else ""
    )
    return f'<span class="mark {_shade(summary.mean)}">{summary.mean:.2f}{several}{broke}</span>'


def _without_a_score(summary: TaskSummary, missing: str) -> tuple[str, str]:
    if summary.faulted:
        return "broken", "fault"
    return "none", "no score" if summary.recorded else missing


def _shade(mean: float) -> str:
    """Return the style class of a score: all, most, some or zero."""
    if mean >= 1:
        return "all"
    return "most" if mean >= 0.5 else "some" if mean > 0 else "zero"


def trials(findings: Findings, shown: ReportSelection) -> Iterator[str]:
    """Yield an expandable section per task, up to the size limit of the page."""
    yield "<h2>Trials</h2>"
    yield quiet(_how_much(findings, shown))
    tasks = {task.id: (number, task) for number, task in enumerate(shown.detailed)}
    records = findings.trials.records(tasks=list(tasks), rollouts=shown.rollouts)
    remaining, alone = _MOST_EVIDENCE, len(findings.candidates) * findings.plan.rollouts == 1
    for task_id, task_records in groupby(records, key=lambda record: record.task_id):
        number, task = tasks[task_id]
        yield f'{_head(findings, task)}<div class="inside" id="{anchor(number)}">'
        for html in _trial_parts(task, task_records, alone=alone):
            if remaining <= 0:
                yield quiet(f"This page is at its size limit; {_how_to_see(findings)}")
                break
            remaining -= len(html)
            yield html
        yield "</div></details>"


def _trial_parts(task: Task, records: Iterable[TrialRecord], *, alone: bool) -> Iterator[str]:
    yield _asked(task)
    for record in records:
        yield _trial(record, alone=alone)


def _how_much(findings: Findings, shown: ReportSelection) -> str:
    if len(shown.detailed) == len(findings.tasks) and shown.rollouts == findings.plan.rollouts:
        return "Every trial with its transcript, changes and checks."
    first = (
        f", {shown.rollouts} rollouts of each" if shown.rollouts < findings.plan.rollouts else ""
    )
    return f"{phrases.counted(len(shown.detailed), 'task')}, the most informative{first}; {_how_to_see(findings)}"


def _how_to_see(findings: Findings) -> str:
    return f"any other trial: {findings.command('show', 'TASK')}"


def _head(findings: Findings, task: Task) -> str:
    cells = findings.cells.get(task.id, {})
    names = [name for name in findings.candidates if name in cells]
    marks = "".join(cell(cells[name], findings.why_missing(name)) for name in names[:_MOST_CHIPS])
    marks += f"<small>and {more:,} more</small>" if (more := len(names) - _MOST_CHIPS) > 0 else ""
    called = f'<span class="quiet">{named(task.name)}</span>' if task.name else ""
    return (
        f'<details class="card model trial"><summary><h3>{named(task.id)}</h3>{marks}{called}'
        "</summary>"
    )


def _asked(task: Task) -> str:
    target = "" if task.target is None else f"<h4>Expected</h4>{code(str(task.target), 2_000)}"
    asked = f"<h4>Asked</h4>{conversation(task.messages)}" if task.messages else ""
    text = "" if task.prompt is None else f"<h4>Asked of a completions API</h4>{code(task.prompt)}"
    return f"{asked}{text}{target}"


def _trial(record: TrialRecord, *, alone: bool) -> str:
    rollout = figures(record.rollout, record.attempt)
    return (
        f'<details class="rollout"{" open" if alone else ""}><summary>{named(record.candidate_id)} '
        f"<small>{_which(rollout)}</small> {chip(rollout.verdict.value, [rollout])} "
        f'<span class="quiet">{esc(_in_short(rollout))}</span></summary>'
        f"{evidence_html(evidence_of(record), alone=alone)}</details>"
    )


def _which(rollout: RolloutFigures) -> str:
    again = f", attempt {rollout.attempts}" if rollout.attempts > 1 else ""
    return f"rollout {rollout.rollout}{again}"


def _in_short(rollout: RolloutFigures) -> str:
    score = "" if rollout.score is None else f"score {rollout.score:.2f} · "
    return score + phrases.seconds(rollout.seconds)
