"""What a gate came to, for people, pull requests and pipelines."""

from collections.abc import Iterator, Sequence
from typing import Protocol
from xml.sax.saxutils import quoteattr

from bakeoff._lib.sanitize import one_line
from bakeoff.reports.markdown import cell, table
from bakeoff.stats.gate import GateCheck, GateState

_WIDE = 500
_MARKS = {GateState.PASSED: "✅", GateState.FAILED: "❌", GateState.NOT_SHOWN: "❔"}
_ANNOTATIONS = {GateState.FAILED: "error", GateState.NOT_SHOWN: "warning"}
_HEADLINES = {
    GateState.PASSED: "passed",
    GateState.FAILED: "failed",
    GateState.NOT_SHOWN: "not shown: too few tasks to be sure",
}
COMMENT_MARK = "<!-- bakeoff gate -->"
"""The first line of a comment, by which a later one finds it and takes its place."""


class GateResult(Protocol):
    """What the reports need to know of a gate."""

    @property
    def run(self) -> str:
        """The run that was checked."""

    @property
    def baseline(self) -> str | None:
        """What it was compared with."""

    @property
    def checks(self) -> Sequence[GateCheck]:
        """Every check."""

    @property
    def notes(self) -> Sequence[str]:
        """What else is not the same."""

    @property
    def state(self) -> GateState:
        """The worst of all checks."""


def headline(gate: GateResult) -> str:
    """Return the result in a line."""
    against = f" against {one_line(gate.baseline)}" if gate.baseline else ""
    return f"gate {_HEADLINES[gate.state]}: {one_line(gate.run)}{against}"


def lines(gate: GateResult) -> Iterator[str]:
    """Yield the checks and notes as plain lines."""
    for check in gate.checks:
        text = f"{check.state}: {check.candidate}: {check.text}"
        yield one_line(text, width=_WIDE)
    for note in gate.notes:
        yield one_line(f"note: {note}", width=_WIDE)


def markdown(gate: GateResult) -> str:
    """Return a comment for a pull request, which is a step summary too."""
    rows = (
        [
            _MARKS[check.state],
            cell(check.candidate),
            cell(check.check),
            cell(check.text, width=_WIDE),
        ]
        for check in gate.checks
    )
    text = [COMMENT_MARK, f"### {cell(headline(gate), width=_WIDE)}", ""]
    text += [*table(("", "candidate", "check", "found"), rows), ""]
    text += [f"- {cell(note, width=_WIDE)}" for note in gate.notes]
    return "\n".join(text).rstrip("\n") + "\n"


def junit(gate: GateResult) -> str:
    """Return the checks as JUnit cases; what was not shown is skipped."""
    counts = {state: sum(check.state is state for check in gate.checks) for state in GateState}
    numbers = (
        f"tests={_quoted(len(gate.checks))} failures={_quoted(counts[GateState.FAILED])} "
        f'errors="0" skipped={_quoted(counts[GateState.NOT_SHOWN])}'
    )
    cases = "".join(_case(check) for check in gate.checks)
    name = _quoted(f"bakeoff gate {gate.run}")
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<testsuites name={name} {numbers}>\n <testsuite name={name} {numbers}>\n"
        f"{cases} </testsuite>\n</testsuites>\n"
    )


def _case(check: GateCheck) -> str:
    head = f"  <testcase name={_quoted(check.check)} classname={_quoted(check.candidate)}"
    element = {GateState.FAILED: "failure", GateState.NOT_SHOWN: "skipped"}.get(check.state)
    if element is None:
        return f"{head}/>\n"
    return f"{head}><{element} message={_quoted(check.text)}/></testcase>\n"


def _quoted(value: object) -> str:
    return quoteattr(one_line(str(value), width=_WIDE))


def annotations(gate: GateResult) -> Iterator[str]:
    """Yield the workflow commands that mark a run of GitHub Actions."""
    for check in gate.checks:
        if (kind := _ANNOTATIONS.get(check.state)) is not None:
            title = _escaped(f"{check.candidate}: {check.check}").replace(",", "%2C")
            yield f"::{kind} title={title.replace(':', '%3A')}::{_escaped(check.text)}"


def _escaped(text: str) -> str:
    return one_line(text, width=_WIDE).replace("%", "%25")
