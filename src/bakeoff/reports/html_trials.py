"""The trials of the tasks that tell most, in full: what was asked, said, changed and checked."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from bakeoff.core.record import TrialRecord
from bakeoff.core.task import Task
from bakeoff.reports import in_words
from bakeoff.reports.evidence import evidence_of
from bakeoff.reports.findings import Findings
from bakeoff.reports.html_evidence import evidence
from bakeoff.reports.html_grid import anchor, cell
from bakeoff.reports.html_page import named, quiet
from bakeoff.reports.html_text import chip, code, conversation, esc
from bakeoff.reports.selection import Selection
from bakeoff.stats.head_to_head import RolloutFigures, figures

_MOST_EVIDENCE = 10_000_000
_MOST_CHIPS = 8


def trials(findings: Findings, shown: Selection) -> Iterator[str]:
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


def _how_much(findings: Findings, shown: Selection) -> str:
    if len(shown.told) == len(findings.tasks) and shown.rollouts == findings.plan.rollouts:
        return "Every trial with what was said, changed and checked."
    first = (
        f", {shown.rollouts} rollouts of each" if shown.rollouts < findings.plan.rollouts else ""
    )
    return f"{in_words.counted(len(shown.told), 'task')} that tell most{first}; {_how_to_see(findings)}"


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
    return score + in_words.seconds(took.seconds)
