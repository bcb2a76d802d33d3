"""A run as CSV: a line for each planned trial, for a spreadsheet or a notebook."""

from collections.abc import Iterator

from bakeoff.core.record import TrialRow
from bakeoff.reports import csv_cells
from bakeoff.reports.findings import Findings

COLUMNS = (
    "task", "category", "candidate", "rollout", "status", "score", "passed", "fault_boundary",
    "fault_transient", "attempts", "seconds", "model_seconds", "first_token_seconds", "requests",
    "input_tokens", "output_tokens", "cost_usd", "load_seconds", "flags",
)  # fmt: skip


def render(findings: Findings) -> Iterator[str]:
    """Yield line by line; no cell is a formula to a spreadsheet."""
    yield csv_cells.line(COLUMNS)
    for row in findings.trials.rows():
        yield csv_cells.line(_values(row))
    for trial in findings.missing():
        why = findings.why_missing(trial.candidate.id)
        named = trial.task.id, trial.task.category, trial.candidate.id, trial.rollout, why
        yield csv_cells.line([*named, *(None for _ in COLUMNS[len(named) :])])


def _values(row: TrialRow) -> list[str | float | bool | None]:
    whether = (row.passed, row.fault_transient)  # the database has them as 0 and 1
    passed, transient = (None if value is None else bool(value) for value in whether)
    return list(row._replace(passed=passed, fault_transient=transient))
