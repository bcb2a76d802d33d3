"""The trials of the tasks that tell most, in full: what was asked, said, changed and checked."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from bakeoff.core.record import TrialRecord
from bakeoff.core.task import Task
from bakeoff.reports.html.page import Column, framed, named, opening, quiet, row
from bakeoff.reports.html.text import chip, clipped, code, conversation, diff, esc
from bakeoff.reports.selection import ReportSelection
from bakeoff.reports.wording import phrases
from bakeoff.reports.wording.findings import Check, Evidence, Findings, evidence_of
from bakeoff.stats.by_task import TaskSummary
from bakeoff.stats.head_to_head import RolloutFigures, figures

_SHORT = 2  # messages that need no click
_LONG = 4_000


def evidence(left: Evidence, *, alone: bool) -> str:
    """Return all of it; the changes of a rollout that is *alone* are open."""
    return "".join(_parts(left, alone=alone))


def _parts(left: Evidence, *, alone: bool) -> Iterator[str]:
    if left.phases:
        yield quiet(" · ".join(f"{name} {phrases.seconds(s)}" for name, s in left.phases.items()))
    if left.error:
        yield f'<p class="fault">{esc(clipped(left.error, _LONG))}</p>'
    for check in left.checks:
        yield _check(check)
    if left.patch:
        yield opening("Changes", diff(left.patch), is_open=alone)
    elif left.patch is not None:
        yield quiet("Nothing was changed.")
    if left.left_out:
        yield quiet(clipped(f"Not in the patch: {', '.join(left.left_out)}", _LONG))
    if left.transcript:
        yield _transcript(left)
    elif left.answer:
        yield code(left.answer)


def _transcript(left: Evidence) -> str:
    many = len(left.transcript)
    said = conversation(left.transcript)
    if many <= _SHORT and left.patch is None:
        return said
    return opening(f"Transcript ({phrases.counted(many, 'message')})", said)


def _check(check: Check) -> str:
    why = f": {check.explanation}" if check.explanation else ""
    output = opening("What the check printed", code(check.output)) if check.output else ""
    return quiet(clipped(f"{check.scorer} {check.value:.2f}{why}", _LONG)) + output


_LONGEST_ID = 80


def grid(findings: Findings, shown: ReportSelection) -> Iterator[str]:
    """Yield a row for each task there is room for; those told in full are links to it."""
    yield "<h2>Tasks</h2>"
    yield quiet(_how_many(findings, shown))
    columns = (Column("Task", "name"), *(Column(name, "cell") for name in findings.candidates))
    told = {task.id: number for number, task in enumerate(shown.told)}
    yield from framed(columns, _rows(findings, shown, columns, told), kind="grid")


def _how_many(findings: Findings, shown: ReportSelection) -> str:
    many = len(findings.tasks)
    told = "The mean of each task, and how many of its scored rollouts passed"
    if len(shown.rows) == many:
        return f"{told}: {phrases.counted(many, 'task')}, in the order of the plan."
    return (
        f"{told}: {len(shown.rows):,} of {many:,} tasks, those on which the candidates differ most, "
        "then those that broke. All are in the figures and in the other forms."
    )


def anchor(number: int) -> str:
    """Return where on the page the task with this *number* is told in full."""
    return f"task-{number}"


def _rows(
    findings: Findings, shown: ReportSelection, columns: tuple[Column, ...], told: Mapping[str, int]
) -> Iterator[str]:
    nothing: Mapping[str, TaskSummary] = {}
    for task in shown.rows:
        mine = findings.cells.get(task.id, nothing)
        name = named(task.id, width=_LONGEST_ID)
        if task.id in told and any(cell.recorded for cell in mine.values()):
            name = f'<a href="#{anchor(told[task.id])}">{name}</a>'
        cells = [cell(mine.get(c), findings.why_missing(c)) for c in findings.candidates]
        yield row(columns, [name, *cells])


def cell(one: TaskSummary | None, missing: str) -> str:
    """Return what came of a task for one candidate; *missing* says why there may be nothing."""
    if one is None:
        return f'<span class="mark none">{phrases.UNKNOWN}</span>'
    if one.mean is None:
        kind, told = _without_a_score(one, missing)
        return f'<span class="mark {kind}">{esc(told)}</span>'
    several = f" <small>{one.passed} of {one.scored}</small>" if one.scored > 1 else ""
    broke = f" <small>{phrases.counted(one.faulted, 'fault')}</small>" if one.faulted else ""
    return f'<span class="mark {_shade(one.mean)}">{one.mean:.2f}{several}{broke}</span>'


def _without_a_score(one: TaskSummary, missing: str) -> tuple[str, str]:
    if one.faulted:
        return "broken", "fault"
    return "none", "no score" if one.recorded else missing


def _shade(mean: float) -> str:
    """Return the colour of a score: all, most, some or nothing of it."""
    if mean >= 1:
        return "all"
    return "most" if mean >= 0.5 else "some" if mean > 0 else "zero"


_MOST_EVIDENCE = 10_000_000
_MOST_CHIPS = 8


def trials(findings: Findings, shown: ReportSelection) -> Iterator[str]:
    """Yield a part to open for each task, until the page is long enough."""
    yield "<h2>Trials</h2>"
    yield quiet(_how_much(findings, shown))
    told = {task.id: (number, task) for number, task in enumerate(shown.told)}
    records = findings.trials.records(tasks=list(told), rollouts=shown.rollouts)
    room, alone = _MOST_EVIDENCE, len(findings.candidates) * findings.plan.rollouts == 1
    for task_id, mine in groupby(records, key=lambda record: record.task_id):
        number, task = told[task_id]
        yield f'{_head(findings, task)}<div class="inside" id="{anchor(number)}">'
        for said in _said(task, mine, alone=alone):
            if room <= 0:
                yield quiet(f"This page is long enough; {_how_to_see(findings)}")
                break
            room -= len(said)
            yield said
        yield "</div></details>"


def _said(task: Task, records: Iterable[TrialRecord], *, alone: bool) -> Iterator[str]:
    yield _asked(task)
    for record in records:
        yield _trial(record, alone=alone)


def _how_much(findings: Findings, shown: ReportSelection) -> str:
    if len(shown.told) == len(findings.tasks) and shown.rollouts == findings.plan.rollouts:
        return "Every trial with what was said, changed and checked."
    first = (
        f", {shown.rollouts} rollouts of each" if shown.rollouts < findings.plan.rollouts else ""
    )
    return (
        f"{phrases.counted(len(shown.told), 'task')} that tell most{first}; {_how_to_see(findings)}"
    )


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
    took = figures(record.rollout, record.attempt)
    return (
        f'<details class="rollout"{" open" if alone else ""}><summary>{named(record.candidate_id)} '
        f"<small>{_which(took)}</small> {chip(took.verdict.value, [took])} "
        f'<span class="quiet">{esc(_in_short(took))}</span></summary>'
        f"{evidence(evidence_of(record), alone=alone)}</details>"
    )


def _which(took: RolloutFigures) -> str:
    again = f", attempt {took.attempts}" if took.attempts > 1 else ""
    return f"rollout {took.rollout}{again}"


def _in_short(took: RolloutFigures) -> str:
    score = "" if took.score is None else f"score {took.score:.2f} · "
    return score + phrases.seconds(took.seconds)
