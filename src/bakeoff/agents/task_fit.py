"""Checks before the first request whether an agent can work on a task."""

from typing import Protocol, runtime_checkable

from bakeoff.core.errors import UsageError
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.core.workspace import Workspace

_GRADE_FILES = frozenset({"evaluation", "reward", "tests"})  # they ignore the answer


@runtime_checkable
class ChecksTasks(Protocol):
    """An agent that checks whether it can work on a task."""

    def check(self, task: Task) -> None:
        """Raise UsageError where this agent cannot work on *task*."""


def workspace_of(task: Task, agent: str) -> Workspace:
    """Return the workspace of *task*; UsageError where it has none for *agent* to work in."""
    if task.workspace is None:
        raise UsageError(
            f"agent {agent!r} works on the files of a task, and task {task.id!r} has none; leave the "
            "agent out to send prompts to the bare model"
        )
    return task.workspace


def refuse_files_only(task: Task, agent: str) -> None:
    """Raise UsageError where *task* is graded by its files alone, which *agent* cannot change."""
    if task.workspace is None or task.dialogue is not None:
        return
    counting = [scorer for scorer in task.scorers if scorer.weight]
    if counting and all(map(_grades_files, counting)):
        raise UsageError(
            f"agent {agent!r} only answers and changes no file, and task {task.id!r} is graded by "
            "its files; name an agent that works on them, such as shell"
        )


def _grades_files(scorer: ScorerSpec) -> bool:
    by_scripts = scorer.name == "rubrics" and bool(scorer.settings.get("test_scripts"))
    return by_scripts or scorer.name in _GRADE_FILES
