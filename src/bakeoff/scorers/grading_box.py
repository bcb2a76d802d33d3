"""Shared by scorers that grade a change: opening a grading workspace, running checks, messages."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import PurePosixPath

from bakeoff._lib.sanitize import for_terminal, one_line
from bakeoff.core.errors import SandboxError, ScorerError, UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.sandbox import Command, CommandResult, GradingSpec, GradingWorkspace
from bakeoff.core.task import Task
from bakeoff.core.workspace import Workspace

MAX_OUTPUT = 200_000
_LAST_LINES = 12


def workspace_of(task: Task, scorer: str) -> Workspace:
    """Return the workspace of *task*; UsageError where it has none to grade."""
    if task.workspace is None:
        raise UsageError(
            f"task {task.id!r}: scorer {scorer!r} grades what was changed in a workspace, and the "
            "task has none; give it files, or choose another scorer",
            task=task.id,
        )
    return task.workspace


def open_grading_workspace(
    task: Task,
    outcome: Outcome,
    context: Context,
    *,
    scorer: str,
    spec: GradingSpec = GradingSpec(),  # noqa: B008 -- frozen
) -> AbstractAsyncContextManager[GradingWorkspace]:
    """Open a grading workspace with the change of *outcome*, and nothing else of it."""
    if context.workspaces is None:
        raise ScorerError(f"scorer {scorer!r} has no sandbox to grade in")
    label = f"{context.label} {scorer}".strip()
    return context.workspaces.open_for_grading(task, outcome.change, label=label, spec=spec)


class CheckError(ScorerError):
    """The check gave no verdict, through its own fault or that of the checked change."""


class CheckTimeoutError(CheckError):
    """The check did not end in time."""

    @classmethod
    def after(cls, time_s: float, output: str, *, scorer: str) -> "CheckTimeoutError":
        """Return the error for a check that printed *output* until its time limit."""
        return cls(
            f"scorer {scorer!r}: the check did not end within {time_s:g} s; {last_lines(output)}"
        )


Check = Callable[[Outcome], Awaitable[Score]]


async def check_change(
    check: Check,
    outcome: Outcome,
    *,
    scorer: str,
    control: Callable[[], Awaitable[object]] | None = None,
) -> Score:
    """Return the verdict of *check*; 0 where the change is the reason that it gives none.

    Otherwise a change that breaks its own check would be left out of the mean, and breaking it would
    pay. A check that times out is always blamed on the change, because the unrepaired task may hang
    too. Where a check cannot run, or its box breaks twice, it is run without the change; a *control*
    is run instead, whatever happened. If that fails too, it is a fault.
    """
    try:
        return await _check_with_retry(check, outcome)
    except (CheckError, SandboxError) as error:
        if outcome.change is None or not outcome.change.files:
            raise
        if control or not isinstance(error, CheckTimeoutError):
            try:
                await (control() if control else check(replace(outcome, change=None)))
            except (CheckError, SandboxError):
                raise error from None
        is_box = isinstance(error, SandboxError)
        broke = "the change breaks the box that it is graded in: " if is_box else ""
        return Score(scorer=scorer, value=0.0, explanation=f"{broke}{error}")


async def _check_with_retry(check: Check, outcome: Outcome) -> Score:
    """Check once more where the box broke, because sandboxes can fail by themselves."""
    try:
        return await check(outcome)
    except SandboxError:
        return await check(outcome)


async def run_check(grading: GradingWorkspace, command: Command, *, scorer: str) -> CommandResult:
    """Run *command*; CheckTimeoutError where it reached its time limit."""
    ran = await grading.box.run(command)
    if ran.stopped and command.time_s is not None and ran.elapsed_s >= command.time_s:
        raise CheckTimeoutError.after(command.time_s, ran.output, scorer=scorer)
    return ran


def last_lines(output: str) -> str:
    """Return the last lines of a command's output, as one line for a message."""
    lines = [line for line in for_terminal(output).splitlines() if line.strip()]
    text = " / ".join(one_line(line) for line in lines[-_LAST_LINES:])
    return f"its last output: {text}" if text else "it printed nothing"


def truncate(output: str, most: int = MAX_OUTPUT) -> str:
    """Return *output*, shortened to its beginning and end where it is long."""
    if len(output) <= most:
        return output
    half = most // 2
    return f"{output[:half]}\n[... {len(output) - most} characters left out ...]\n{output[-half:]}"


def path_from_root(workspace: Workspace, path: str) -> str:
    """Convert a path relative to the agent's working directory to one relative to the root."""
    plain = PurePosixPath("/", workspace.workdir, path)
    return str(plain).lstrip("/")


def is_inside(path: str) -> bool:
    """Whether a path is relative and does not contain `..`."""
    return bool(path) and not path.startswith("/") and ".." not in PurePosixPath(path).parts
