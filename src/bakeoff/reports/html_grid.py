"""Tasks by candidates: where each of them did well."""

from collections.abc import Iterator, Mapping

from bakeoff.reports import in_words
from bakeoff.reports.findings import Findings
from bakeoff.reports.html_page import Column, framed, named, quiet, row
from bakeoff.reports.html_text import esc
from bakeoff.reports.selection import Selection
from bakeoff.stats.by_task import TaskSummary

_LONGEST_ID = 80


def grid(findings: Findings, shown: Selection) -> Iterator[str]:
    """Yield a row for each task there is room for; those told in full are links to it."""
    yield "<h2>Tasks</h2>"
    yield quiet(_how_many(findings, shown))
    columns = (Column("Task", "name"), *(Column(name, "cell") for name in findings.candidates))
    told = {task.id: number for number, task in enumerate(shown.told)}
    yield from framed(columns, _rows(findings, shown, columns, told), kind="grid")


def _how_many(findings: Findings, shown: Selection) -> str:
    many = len(findings.tasks)
    told = "The mean of each task, and how many of its scored rollouts passed"
    if len(shown.rows) == many:
        return f"{told}: {in_words.counted(many, 'task')}, in the order of the plan."
    return (
        f"{told}: {len(shown.rows):,} of {many:,} tasks, those on which the candidates differ most, "
        "then those that broke. All are in the figures and in the other forms."
    )


def anchor(number: int) -> str:
    """Return where on the page the task with this *number* is told in full."""
    return f"task-{number}"


def _rows(
    findings: Findings, shown: Selection, columns: tuple[Column, ...], told: Mapping[str, int]
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
        return f'<span class="mark none">{in_words.UNKNOWN}</span>'
    if one.mean is None:
        kind, told = _without_a_score(one, missing)
        return f'<span class="mark {kind}">{esc(told)}</span>'
    several = f" <small>{one.passed} of {one.scored}</small>" if one.scored > 1 else ""
    broke = f" <small>{in_words.counted(one.faulted, 'fault')}</small>" if one.faulted else ""
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
