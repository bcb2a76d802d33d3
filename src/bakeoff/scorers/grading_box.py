"""What the scorers share that grade a change in a clean room: the room, commands in it, words."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TypedDict, Unpack

from bakeoff._lib.sanitize import for_terminal, one_line
from bakeoff.core.errors import SandboxError, ScorerError, UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.sandbox import Command, CommandResult, GradingWorkspace, Mount
from bakeoff.core.task import Task
from bakeoff.core.workspace import Workspace

MOST_OUTPUT = 200_000
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


class GradingOptions(TypedDict, total=False):
    """What a check wants of its room beyond the task's own files; see `Bench.clean_room`."""

    protected: tuple[str, ...]
    mounts: tuple[Mount, ...]
    texts: Mapping[str, str]
    environment: Mapping[str, str]
    read_once: tuple[str, ...]


def open_grading_workspace(
    task: Task,
    outcome: Outcome,
    context: Context,
    *,
    scorer: str,
    **options: Unpack[GradingOptions],
) -> AbstractAsyncContextManager[GradingWorkspace]:
    """Open a room with the outcome's change in it; nothing else of the outcome is looked at."""
    if context.workspaces is None:
        raise ScorerError(f"scorer {scorer!r} has no sandbox to grade in")
    label = f"{context.label} {scorer}".strip()
    return context.workspaces.open_for_grading(task, outcome.change, label=label, **options)


class CheckError(ScorerError):
    """The check gave no verdict: its fault, or that of what it checks."""


class CheckTimeoutError(CheckError):
    """The check did not come to its end in time."""

    @classmethod
    def after(cls, time_s: float, output: str, *, scorer: str) -> "CheckTimeoutError":
        """Return the error for a check that printed *output* until its time was over."""
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
    """Return what *check* says of the outcome; 0 where the change is why it gives no verdict.

    Else a change that breaks its own check would be left out of the mean, and giving up would pay.
    A check that never ends is the change's doing: without it, what was to be repaired may hang too.
    Where one cannot run, or its box breaks twice, it is tried without the change. A *control* is
    tried instead, whatever happened. If that fails too, it is a fault.
    """
    try:
        return await _checked_again(check, outcome)
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


async def _checked_again(check: Check, outcome: Outcome) -> Score:
    """Check once more where the box broke: sandboxes fail by themselves too."""
    try:
        return await check(outcome)
    except SandboxError:
        return await check(outcome)


async def run_in(room: GradingWorkspace, command: Command, *, scorer: str) -> CommandResult:
    """Run *command*; CheckTimeoutError where its time was over."""
    ran = await room.box.run(command)
    if ran.stopped and command.time_s is not None and ran.elapsed_s >= command.time_s:
        raise CheckTimeoutError.after(command.time_s, ran.output, scorer=scorer)
    return ran


def last_lines(output: str) -> str:
    """Return the end of what a command printed, as one line of a message."""
    lines = [line for line in for_terminal(output).splitlines() if line.strip()]
    said = " / ".join(one_line(line) for line in lines[-_LAST_LINES:])
    return f"it last said: {said}" if said else "it said nothing"


def shortened(output: str, most: int = MOST_OUTPUT) -> str:
    """Return *output*, or its beginning and its end where it is long."""
    if len(output) <= most:
        return output
    half = most // 2
    return f"{output[:half]}\n[... {len(output) - most} characters left out ...]\n{output[-half:]}"


def inside(workspace: Workspace, path: str) -> str:
    """Return a path that is meant from where the agent starts, as seen from the root."""
    plain = PurePosixPath("/", workspace.workdir, path)
    return str(plain).lstrip("/")


def is_inside(path: str) -> bool:
    """Whether a path stays where it is looked for."""
    return bool(path) and not path.startswith("/") and ".." not in PurePosixPath(path).parts
