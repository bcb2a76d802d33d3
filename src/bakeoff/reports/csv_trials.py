"""A run as CSV: a line for each planned trial, for a spreadsheet or a notebook."""

from collections.abc import Iterator, Mapping, Sequence

from bakeoff.core.record import TrialRow
from bakeoff.core.values import Json
from bakeoff.reports import csv_cells
from bakeoff.reports.findings import Findings
from bakeoff.reports.texts import expected, question, rows_with_answers

COLUMNS = (
    "task", "category", "candidate", "rollout", "status", "score", "passed", "fault_boundary",
    "fault_transient", "attempts", "seconds", "model_seconds", "first_token_seconds", "requests",
    "input_tokens", "output_tokens", "cost_usd", "load_seconds", "flags",
)  # fmt: skip


TEXTS = ("question", "expected", "answer")
_LONGEST = 32_000  # a cell of a spreadsheet takes 32,767 characters


def render(findings: Findings) -> Iterator[str]:
    """Yield line by line; no cell is a formula to a spreadsheet."""
    asked = _asked(findings)
    yield _line([*COLUMNS, *(TEXTS if findings.with_text else ())])
    for row, answer in rows_with_answers(findings):
        yield _line([*_values(row), *([*asked[row.task_id], answer] if asked else [])])
    for trial in findings.missing():
        why = findings.why_missing(trial.candidate.id)
        named = trial.task.id, trial.task.category, trial.candidate.id, trial.rollout, why
        unknown = (None for _ in COLUMNS[len(named) :])
        yield _line([*named, *unknown, *([*asked[trial.task.id], None] if asked else [])])


def _asked(findings: Findings) -> Mapping[str, tuple[str, str | None]]:
    """Return question and expected answer by task; nothing where texts are not wanted."""
    if not findings.with_text:
        return {}
    return {task.id: (question(task), expected(task)) for task in findings.tasks}


def _line(values: Sequence[Json]) -> str:
    return csv_cells.line(values, longest=_LONGEST)


def _values(row: TrialRow) -> list[str | float | bool | None]:
    whether = (row.passed, row.fault_transient)  # the database has them as 0 and 1
    passed, transient = (None if value is None else bool(value) for value in whether)
    return list(row._replace(passed=passed, fault_transient=transient))
