"""A run as CSV with one line per planned trial, for a spreadsheet or a notebook."""

import csv
import io
import unicodedata
from collections.abc import Iterator, Mapping, Sequence

from bakeoff._lib.sanitize import one_line
from bakeoff.core.record import TrialRow
from bakeoff.core.values import Json
from bakeoff.reports.files import expected, question, rows_with_answers
from bakeoff.reports.wording.findings import Findings

_FORMULA = frozenset("=+-@|%\N{MINUS SIGN}")
_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Mn", "Me", "Zl", "Zp", "Zs"})
_LONGEST_CELL = 2_000
COLUMNS = (
    "task", "category", "candidate", "rollout", "status", "score", "passed", "fault_boundary",
    "fault_transient", "attempts", "seconds", "model_seconds", "first_token_seconds", "requests",
    "input_tokens", "output_tokens", "cost_usd", "load_seconds", "flags",
)  # fmt: skip
TEXTS = ("question", "expected", "answer")
_LONGEST_TEXT = 32_000  # a cell of a spreadsheet takes 32,767 characters


def line(values: Sequence[Json], *, longest: int = _LONGEST_CELL) -> str:
    """Return *values* as one line; texts longer than *longest* are truncated."""
    out = io.StringIO()
    cells = [cell(value, longest=longest) for value in values]
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


def cell(value: Json, *, longest: int = _LONGEST_CELL) -> str:
    """Return *value* as single-line text; an unknown value is empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(round(value, 6))
    text = one_line(str(value), width=longest)
    return f"'{text}" if _is_formula(text) else text


def _is_formula(text: str) -> bool:
    """Whether a spreadsheet might read *text* as a formula, judged by its first visible character.

    Full-width and small signs count as the plain ones; invisible characters are skipped.
    """
    if text[:1].isalnum():
        return False
    first = next((c for c in text if unicodedata.category(c) not in _UNSEEN), "")
    return unicodedata.normalize("NFKC", first)[:1] in _FORMULA


def render(findings: Findings) -> Iterator[str]:
    """Yield the lines; cells are escaped so that no spreadsheet reads a formula."""
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
    """Return question and expected answer by task; empty if the report has no texts."""
    if not findings.with_text:
        return {}
    return {task.id: (question(task), expected(task)) for task in findings.tasks}


def _line(values: Sequence[Json]) -> str:
    return line(values, longest=_LONGEST_TEXT)


def _values(row: TrialRow) -> list[str | float | bool | None]:
    whether = (row.passed, row.fault_transient)  # the database has them as 0 and 1
    passed, transient = (None if value is None else bool(value) for value in whether)
    return list(row._replace(passed=passed, fault_transient=transient))
