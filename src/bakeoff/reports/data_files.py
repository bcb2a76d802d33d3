"""A run for other programs: CSV and JSON with each trial, JUnit XML for build servers.

In JUnit, a candidate is a test suite and a trial a test case: one that did not pass is a failure, a
faulted one an error; one that was not checked, not run or cancelled is skipped, never a success.
"""

import csv
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from xml.sax.saxutils import quoteattr

import msgspec

from bakeoff._lib.sanitize import for_terminal, one_line
from bakeoff.core.record import Status, TrialRecord, TrialRow
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.reports.files import expected, question, rows_with_answers
from bakeoff.reports.html.text import clipped
from bakeoff.reports.wording.decision import answer
from bakeoff.reports.wording.findings import Findings, error_of
from bakeoff.stats.head_to_head import RolloutVerdict, verdict

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


def csv_line(values: Sequence[Json], *, longest: int = _LONGEST_CELL) -> str:
    """Return *values* as one line; texts longer than *longest* are truncated."""
    out = io.StringIO()
    cells = [csv_cell(value, longest=longest) for value in values]
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


def csv_cell(value: Json, *, longest: int = _LONGEST_CELL) -> str:
    """Return *value* as single-line text; an unknown value is empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(round(value, 6))
    text = one_line(str(value), width=longest)
    return f"'{text}" if _is_formula(text) else text


def unescaped_cell(text: str) -> str:
    """Return the text that `csv_cell` made *text* of."""
    return text[1:] if text.startswith("'") and _is_formula(text[1:]) else text


def _is_formula(text: str) -> bool:
    """Whether a spreadsheet might read *text* as a formula, judged by its first visible character.

    Full-width and small signs count as the plain ones; invisible characters are skipped.
    """
    if text[:1].isalnum():
        return False
    first = next((c for c in text if unicodedata.category(c) not in _UNSEEN), "")
    return unicodedata.normalize("NFKC", first)[:1] in _FORMULA


def render_csv(findings: Findings) -> Iterator[str]:
    """Yield the lines; cells are escaped so that no spreadsheet reads a formula."""
    asked = _asked(findings)
    yield _line([*COLUMNS, *(TEXTS if findings.with_text else ())])
    for row, given in rows_with_answers(findings):
        texts = [*_texts(findings, asked[row.task_id], row.candidate_id), given] if asked else []
        yield _line([*_values(row), *texts])
    for trial in findings.missing():
        why = findings.why_missing(trial.candidate.id)
        named = trial.task.id, trial.task.category, trial.candidate.id, trial.rollout, why
        unknown = (None for _ in COLUMNS[len(named) :])
        texts = [*_texts(findings, asked[trial.task.id], trial.candidate.id), None] if asked else []
        yield _line([*named, *unknown, *texts])


_Texts = tuple[str, str | None]


def _asked(findings: Findings) -> Mapping[str, _Texts | Task]:
    """Return question and expected answer by task; empty if the report has no texts.

    Where the question depends on the candidate, the task is there instead.
    """
    if not findings.with_text:
        return {}
    if findings.prompts:
        return {task.id: task for task in findings.tasks}
    return {task.id: (question(task), expected(task)) for task in findings.tasks}


def _texts(findings: Findings, known: _Texts | Task, candidate: str) -> _Texts:
    if isinstance(known, Task):
        return question(findings.as_asked(candidate, known)), expected(known)
    return known


def _line(values: Sequence[Json]) -> str:
    return csv_line(values, longest=_LONGEST_TEXT)


def _values(row: TrialRow) -> list[str | float | bool | None]:
    whether = (row.passed, row.fault_transient)  # the database has them as 0 and 1
    passed, transient = (None if value is None else bool(value) for value in whether)
    return list(row._replace(passed=passed, fault_transient=transient))


# --- JSON -----------------------------------------------------------------------------------------


def render_json(findings: Findings) -> Iterator[str]:
    """Yield one object, part by part; what is unknown is null."""
    headline = answer(findings.summary)
    head = {
        "run": findings.called,
        "made_at": findings.made_at,
        "running": findings.running,
        "standing": findings.standing,
        "manifest": findings.manifest,
        "answer": {"text": headline.text, "why": headline.why, "decided": headline.decided},
        "summary": findings.summary,
    }
    yield "{\n"
    for name, value in head.items():
        yield f" {_json_text(name)}: {_json_text(value)},\n"
    if findings.with_text:
        yield ' "questions": ['
        yield from _json_list(_json_questions(findings))
        yield "],\n"
    yield ' "tasks": ['
    yield from _json_list(findings.by_task)
    yield '],\n "trials": ['
    yield from _json_list(_json_trials(findings))
    yield "]\n}\n"


def _json_questions(findings: Findings) -> Iterator[object]:
    """Yield what each task asks and expects, once."""
    for task in findings.tasks:
        yield {"task_id": task.id, "question": question(task), "expected": task.target}


def _json_trials(findings: Findings) -> Iterator[object]:
    for row, reply in rows_with_answers(findings):
        data = row._asdict()
        if findings.with_text:
            data["answer"] = reply
        for name in ("passed", "fault_transient"):  # the database has them as 0 and 1
            data[name] = None if data[name] is None else bool(data[name])
        yield data
    for trial in findings.missing():
        yield {
            "task_id": trial.task.id,
            "category": trial.task.category,
            "candidate_id": trial.candidate.id,
            "rollout": trial.rollout,
            "status": findings.why_missing(trial.candidate.id).replace(" ", "_"),
        }


def _json_list(values: Iterable[object]) -> Iterator[str]:
    between = "\n  "
    for value in values:
        yield between + _json_text(value)
        between = ",\n  "


def _json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


# --- JUnit XML ------------------------------------------------------------------------------------


_NOT_XML = re.compile("[\ufffe\uffff]")
_LONGEST_XML_TEXT = 4_000
_ELEMENTS = {
    RolloutVerdict.FAILED: "failure",
    RolloutVerdict.TIMED_OUT: "failure",
    RolloutVerdict.ERROR: "error",
    RolloutVerdict.UNCHECKED: "skipped",
    RolloutVerdict.CANCELLED: "skipped",
}


def render_junit(findings: Findings) -> Iterator[str]:
    """Yield the file part by part."""
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    counts = _counts(findings)
    yield f"<testsuites{_attributes(name=findings.called, **_count_attributes(sum(counts.values(), Counter())))}>\n"
    for candidate in findings.candidates:
        yield f" <testsuite{_attributes(name=candidate, **_count_attributes(counts[candidate]))}>\n"
        for record in findings.trials.records(candidate=candidate):
            yield _case(record, with_text=findings.with_text)
        for trial in findings.missing(candidate):
            skipped = f"<skipped{_attributes(message=findings.why_missing(candidate))}/>"
            yield _in_case(trial.task.id, candidate, trial.rollout, skipped)
        yield " </testsuite>\n"
    yield "</testsuites>\n"


def _counts(findings: Findings) -> dict[str, Counter[str]]:
    """Return the number of elements of each kind by candidate."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in findings.candidates}
    for row in findings.trials.rows():
        counts[row.candidate_id][_kind(row)] += 1
    for candidate in findings.summary.candidates:
        buckets = candidate.total.buckets
        counts[candidate.candidate]["skipped"] += buckets.not_run + buckets.not_needed
    return counts


def _kind(row: TrialRow) -> str:
    """Return the element kind of a row; it matches that of its record."""
    if row.status == Status.FAULTED:
        return "error"
    if row.passed:
        return "passed"
    is_known = row.passed is not None or row.status == Status.LIMITED
    return "failure" if is_known and row.status != Status.CANCELLED else "skipped"


def _count_attributes(count: Counter[str]) -> dict[str, object]:
    return {
        "tests": count.total(),
        "failures": count["failure"],
        "errors": count["error"],
        "skipped": count["skipped"],
    }


def _case(record: TrialRecord, *, with_text: bool) -> str:
    result = verdict(record.attempt)
    inside = ""
    if (element := _ELEMENTS.get(result)) is not None:
        error = (error_of(record.attempt) if with_text else None) or result.value
        attributes = _attributes(message=one_line(error, width=300), type=result.value)
        outcome = record.attempt.outcome if with_text else None
        answer = outcome.answer if outcome else ""
        inside = (
            f"<{element}{attributes}>{_xml_text(clipped(answer, _LONGEST_XML_TEXT))}</{element}>"
        )
    return _in_case(
        record.task_id, record.candidate_id, record.rollout, inside, record.attempt.elapsed_s
    )


def _in_case(task: str, candidate: str, rollout: int, inside: str, seconds: float = 0.0) -> str:
    attributes = _attributes(name=f"{task}#{rollout}", classname=candidate, time=f"{seconds:.3f}")
    return f"  <testcase{attributes}>{inside}</testcase>\n"


def _attributes(**given: object) -> str:
    return "".join(f" {name}={quoteattr(_plain(str(value)))}" for name, value in given.items())


def _xml_text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", escape(for_terminal(text)))


def _plain(text: str) -> str:
    return _NOT_XML.sub("\ufffd", for_terminal(text))
