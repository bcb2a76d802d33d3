"""A run as JUnit XML for build servers: a test suite per candidate, a test case per trial.

A trial that did not pass is a failure, a faulted one an error; one that was not checked, not run or
cancelled is skipped, never a success.
"""

import re
from collections import Counter
from collections.abc import Iterator
from xml.sax.saxutils import quoteattr

from bakeoff._lib.sanitize import for_terminal, one_line
from bakeoff.core.record import Status, TrialRecord, TrialRow
from bakeoff.reports.html.text import clipped, esc
from bakeoff.reports.wording.findings import Findings, error_of
from bakeoff.stats.head_to_head import RolloutVerdict, verdict

_NOT_XML = re.compile("[\ufffe\uffff]")
_LONGEST = 4_000
_ELEMENTS = {
    RolloutVerdict.FAILED: "failure",
    RolloutVerdict.TIMED_OUT: "failure",
    RolloutVerdict.ERROR: "error",
    RolloutVerdict.UNCHECKED: "skipped",
    RolloutVerdict.CANCELLED: "skipped",
}


def render(findings: Findings) -> Iterator[str]:
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
        inside = f"<{element}{attributes}>{_text(clipped(answer, _LONGEST))}</{element}>"
    return _in_case(
        record.task_id, record.candidate_id, record.rollout, inside, record.attempt.elapsed_s
    )


def _in_case(task: str, candidate: str, rollout: int, inside: str, seconds: float = 0.0) -> str:
    attributes = _attributes(name=f"{task}#{rollout}", classname=candidate, time=f"{seconds:.3f}")
    return f"  <testcase{attributes}>{inside}</testcase>\n"


def _attributes(**given: object) -> str:
    return "".join(f" {name}={quoteattr(_plain(str(value)))}" for name, value in given.items())


def _text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", esc(text))


def _plain(text: str) -> str:
    return _NOT_XML.sub("\ufffd", for_terminal(text))
