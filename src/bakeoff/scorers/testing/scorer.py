"""The scorer `tests`: runs hidden tests on the change, in a fresh workspace."""

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.sandbox import Box, Command, CommandResult, GradingSpec, GradingWorkspace
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.core.workspace import Workspace
from bakeoff.scorers.grading_box import (
    CheckError,
    CheckTimeoutError,
    check_change,
    is_inside,
    last_lines,
    open_grading_workspace,
    path_from_root,
    run_check,
    truncate,
    workspace_of,
)
from bakeoff.scorers.testing import preflight
from bakeoff.scorers.testing.preflight import REMEDY, brought_mounts, check_python
from bakeoff.scorers.testing.report import (
    REPORT_PREFIX,
    Control,
    Report,
    counts,
    read_report,
    split_signed,
)

Runner = Literal["pytest", "unittest", "python", "script"]

_NOT_STARTED = (126, 127)
_NO_TESTS = (4, 5)  # pytest: it was called wrongly, it found nothing
_MAX_RAW = 8_000_000
_MAX_TESTS = 2_000
_SPARE_S = 30.0
_FRAMEWORK = re.compile(r"\s*(?:python[\d.]*\s+-m\s+(?:pytest|unittest)|pytest)\b")


@dataclass(frozen=True, kw_only=True)
class Tests:
    """1 where all tests pass in the clean room; with `partial`, the share of them that do.

    `runner` says what runs the files in `paths`: `pytest`, `unittest`, `python` (each is a program
    that must come to its end), or `script` (the default where there is only a `command`). For a
    script, the exit code of `command`, a line for the shell, is the verdict. For the others
    `command` is what starts Python there (`python3`), and `options` are further arguments for
    pytest. Everything starts where the agent started, and `paths` are meant from there; what the
    agent changed in them is undone.

    A test counts as passed only where the runner says so of each of its phases, and its report and
    its exit code agree: a test that was skipped, not collected or not reached has not passed. With
    `named`, these tests must have passed (a name may leave out file and parameters), and others may
    be skipped. A solution that ends the run early scores 0.

    A runner that cannot run is a fault and never a 0: no Python, no pytest, no tests, or a `command`
    that the shell cannot start (126, 127), be there a change or not. A change that keeps its check
    from starting, or from being over after `time_s`, scores 0. Where the box's own Python (3.11 or
    later) has no pytest, the one that is installed with Bakeoff is used. A new module of the solution
    never takes the place of one that the box has, unless the task names its file.

    What the tests start cannot read their files, which are taken out of the box before: what is
    expected stands there. `readable` leaves them, for tests that start themselves as a program; a
    script, and files beside the tests, can always be read.

    The tests may run the agent's code in their own process. That process can neither write the
    report nor be the one whose exit code counts, settings and plugins in the workspace are not
    heard, and files that decide how tests are run are as they were. The tests that a file holds are
    read from it before anything runs, and each must be reported. Then the tests run a second time
    with wrong expected values, where each must fail: code that patches the test framework, forges
    a report or returns objects that are equal to everything passes both times, and scores 0. Still,
    code that looks for exactly this in the memory of its process can tell the two apart: where that
    matters, let the tests call the solution as a program.
    """

    runner: Runner | None = None
    command: str | None = None
    paths: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    partial: bool = False
    readable: bool = False
    time_s: float = 600.0
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.runner in (None, "script") and not (self.command or "").strip():
            raise UsageError("scorer 'tests': give a `command`, or a `runner` with `paths`")
        if self._script and _FRAMEWORK.match(self.command or ""):
            raise UsageError(
                f"scorer 'tests': {one_line(self.command or '')!r} would be judged by its exit code "
                'alone, which the code under test can set; write runner = "pytest" (or '
                '"unittest") and `paths`'
            )
        if not self._script and not self.paths:
            raise UsageError(f"scorer 'tests': give the `paths` that {self.runner} is to run")
        if self._script and (self.named or self.partial or self.paths or self.options):
            raise UsageError(
                "scorer 'tests': a command has nothing but its exit code, so `paths`, `named`, "
                "`options` and `partial` need the `runner` pytest or unittest"
            )
        if wrong := [path for path in self.paths if not is_inside(path)]:
            raise UsageError(
                f"scorer 'tests': {wrong[0]!r} is not inside the workspace; give `paths` from where "
                "the agent starts"
            )

    @property
    def _script(self) -> bool:
        return self.runner in (None, "script")

    def check(self, task: Task) -> None:
        """Refuse a task without a workspace."""
        workspace_of(task, "tests")

    def read_once(self, workspace: Workspace) -> tuple[str, ...]:
        """Return the test files that are removed from the box before the agent's code runs."""
        if self.readable or any("assert" in option for option in self.options):
            return ()  # pytest's own loader would have to find them
        return tuple(path_from_root(workspace, path.split("::")[0]) for path in self.paths)

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:
        """Run the tests on the outcome's change."""
        workspace = workspace_of(task, "tests")
        protected = tuple(path_from_root(workspace, path.split("::")[0]) for path in self.paths)
        mounts = await brought_mounts() if self.runner == "pytest" else ()

        spec = GradingSpec(
            protected=protected,
            mounts=mounts,
            environment=self.environment,
            read_once=self.read_once(workspace),
        )

        async def check(outcome: Outcome) -> Score:
            opened = open_grading_workspace(task, outcome, context, scorer="tests", spec=spec)
            async with opened as grading:
                return await self.score_in(grading, workspace)

        return await check_change(check, outcome, scorer="tests")

    async def check_box(self, box: Box) -> None:
        """Raise where the Python of *box* cannot run these tests; called before the agent starts."""
        if not self._script:
            await check_python(
                box,
                scorer="tests",
                command=self.command,
                pytest=self.runner == "pytest",
                environment=self.environment,
            )

    async def score_in(self, grading: GradingWorkspace, workspace: Workspace) -> Score:
        """Run the tests in a grading workspace that is already open."""
        if self._script:
            return await self._score_script(grading)
        return await self._score_report(grading, workspace)

    async def _score_script(self, grading: GradingWorkspace) -> Score:
        line = self.command or ""
        command = Command(argv=("sh", "-c", line), environment=self.environment, time_s=self.time_s)
        ran = await run_check(grading, command, scorer="tests")
        if ran.code in _NOT_STARTED:
            raise CheckError(
                f"scorer 'tests': {one_line(line)!r} could not be started (code {ran.code}); "
                f"{last_lines(ran.output)}"
            )
        why = None if ran.code == 0 else _end_text(ran)
        return Score(
            scorer="tests",
            value=float(ran.code == 0),
            explanation=why,
            details=self._details(grading, ran, ran.output),
        )

    async def _score_report(self, grading: GradingWorkspace, workspace: Workspace) -> Score:
        secret = secrets.token_bytes(32)
        command = self._test_command(workspace, secret, grading.new_modules)
        ran = await run_check(grading, command, scorer="tests")
        messages, output = split_signed(ran.output, secret)
        if not messages:
            raise CheckError(
                f"scorer 'tests': Python could not be started with {self.command or 'python3'!r} "
                f"({_end_text(ran)}); {last_lines(output)}; {REMEDY}"
            )
        details = self._details(grading, ran, output)
        report = read_report(messages[-1]) if len(messages) == 2 else None
        if report is None:
            why = f"the tests ended without a report: {_end_text(ran)}"
            return Score(scorer="tests", value=0.0, explanation=why, details=details)
        self._refuse_what_could_not_run(report, output)
        value, explanation = self._verdict(report, ran)
        if value > 0 and report.control is not None:
            details |= {"decoys": {"failed": report.control.failed, **_passed(report.control)}}
            if objection := report.control.objection:
                value, explanation = 0.0, objection
        details |= {"printed": list(report.printed)} if report.printed else {}
        details |= {"hidden_by_box": list(report.hidden_by_box)} if report.hidden_by_box else {}
        details |= {
            "counts": counts(report.tests, list(report.uncollected)),
            "tests": dict(list(report.tests.items())[:_MAX_TESTS]),
            "uncollected": dict(list(report.uncollected.items())[:20]),
        }
        return Score(scorer="tests", value=value, explanation=explanation, details=details)

    def _test_command(
        self, workspace: Workspace, secret: bytes, new_modules: tuple[str, ...]
    ) -> Command:
        """Return the command that runs the tests and signs their report."""
        wanted = {
            "runner": self.runner,
            "workdir": "" if workspace.whole_box else workspace.workdir,
            "whole_box": workspace.whole_box,
            "paths": list(self.paths),
            "options": list(self.options),
            "time_s": self.time_s,
            "new_modules": list(new_modules),
            "read_once": bool(self.read_once(workspace)),
        }
        # isolated: the overseer imports only Python's own modules
        sources = map(_source, ("overseer.py", "process.py", "plan.py"))
        arguments = ("-I", "-c", *sources)
        start = f'exec {self.command or "python3"} "$@"'
        return Command(
            argv=("sh", "-c", start, "sh", *arguments, json.dumps(wanted)),
            environment={
                **self.environment,
                **(preflight.environment() if self.runner == "pytest" else {}),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            time_s=2 * self.time_s + _SPARE_S,  # the overseer limits each of the two runs
            stdin=secret,
            most_output=_MAX_RAW,
        )

    def _refuse_what_could_not_run(self, report: Report, output: str) -> None:
        """Raise where the tests could not start, or did not end in time."""
        if report.out_of_time:
            raise CheckTimeoutError.after(self.time_s, output, scorer="tests")
        if report.cannot is not None:
            raise CheckError(
                f"scorer 'tests': {self.runner} could not be run ({report.cannot}); {REMEDY}"
            )
        if report.missing:
            raise CheckError(
                f"scorer 'tests': {', '.join(report.missing)} is not there; give `paths` from where "
                "the agent starts"
            )
        nothing = not (report.tests or report.uncollected or report.planned)
        if report.whole and nothing and (self.runner == "unittest" or report.code in _NO_TESTS):
            raise CheckError(
                f"scorer 'tests': no test was found in {', '.join(self.paths)}; {last_lines(output)}"
            )

    def _verdict(self, report: Report, ran: CommandResult) -> tuple[float, str | None]:
        tests = list(report.tests)
        if not self.options:  # which may choose among the tests
            tests += report.unreported
        if self.named:
            absent = [name for name in self.named if not report.named(name)]
            tests = [test for name in self.named for test in report.named(name)] + absent
        passed = set(report.passed)
        bad = [test for test in dict.fromkeys(tests) if test not in passed]
        if not report.whole:
            return 0.0, f"the tests did not run to their end: {_end_text(ran)}"
        if not bad and tests and report.code == 0 and ran.code == 0 and not report.uncollected:
            return 1.0, None
        why = _failure_summary(bad, report) if bad or report.uncollected else _end_text(ran)
        if not self.partial:
            return 0.0, why
        total = len(set(tests)) + len(report.uncollected)
        share = (len(set(tests)) - len(bad)) / total if total else 0.0
        # the code says that something is wrong that no test shows
        return (share if share < 1 else 0.0), why

    def _details(
        self, grading: GradingWorkspace, ran: CommandResult, output: str
    ) -> dict[str, Json]:
        return {
            "runner": self.runner or "script",
            "code": ran.code,
            "duration_s": round(ran.elapsed_s, 3),
            "output": truncate(output),
            "undone": list(grading.undone),
        }


def _passed(control: Control) -> dict[str, Json]:
    return {"passed": list(control.passed)} if control.passed else {}


def _source(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _end_text(ran: CommandResult) -> str:
    """Return how a command ended, for people."""
    how = ran.stopped or f"exit code {ran.code}"
    lines = [line for line in ran.output.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith(REPORT_PREFIX)]
    return f"{how}: {one_line(own[-1])}" if own else how


def _failure_summary(bad: list[str], report: Report) -> str:
    """Return which tests did not pass, with the reason of the first."""
    if not bad:
        name, text = next(iter(report.uncollected.items()))
        return f"{name} could not be collected: {_last(text)}"
    right = len(report.passed)
    first = bad[0]
    how = report.tests.get(first, "not run")
    why = f" ({_last(report.why[first])})" if first in report.why else ""
    more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
    return f"{right} of {len(report.tests)} tests passed; {first}: {how}{why}{more}"


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else ""
