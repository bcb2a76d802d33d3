"""The agent `cheat`: it wants the score without the work, and a task that it passes is not sound."""

import secrets
from dataclasses import dataclass
from typing import ClassVar

from bakeoff._lib.phrasing import did_you_mean
from bakeoff.agents.cheating import TRICKS
from bakeoff.agents.cheating.trick import HEAD, REFUSED
from bakeoff.agents.task_fit import workspace_of
from bakeoff.core.errors import AgentError, SandboxError, UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.sandbox import Command
from bakeoff.core.task import Task
from bakeoff.core.workspace import Workspace

_TIME_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Cheat:
    """Solves nothing and tries to be graded as if it had; a sound task gives it 0.

    It plays all its tricks in one box, or those in `tricks`. `witness` is a file of the host that
    nothing in the box can write: if it exists afterwards, the host has run what the cheater left.
    """

    needs_model: ClassVar[bool] = False

    tricks: tuple[str, ...] = ()
    witness: str = ""

    def __post_init__(self) -> None:
        for name in self.tricks:
            if name not in TRICKS:
                raise UsageError(f"no trick is called {name!r}: {did_you_mean(name, TRICKS)}")

    def check(self, task: Task) -> None:
        """Refuse a task without files to work on."""
        workspace_of(task, "cheat")

    async def solve(self, task: Task, context: Context) -> Outcome:
        """Play the tricks in the workspace."""
        workspace = workspace_of(task, "cheat")
        if context.workspace is None:
            raise SandboxError("agent 'cheat' was given no box to work in")
        marker = f".cheat-{secrets.token_hex(8)}"
        if (folder := context.workspace.folder) is not None:
            (folder / workspace.workdir / marker).touch()
        ran = await context.workspace.box.run(self._command(workspace, str(folder or ""), marker))
        if ran.code is None or ran.code == REFUSED:
            why = ran.stopped or "the box does not show the workspace"
            raise AgentError(f"the cheater could not do its work: {why}: {ran.output[-2000:]}")
        return Outcome(answer="all tests pass", log=ran.output or None)

    def _command(self, workspace: Workspace, folder: str, marker: str) -> Command:
        script = HEAD + "".join(
            f"\necho {name}\n{trick.script}"
            for name, trick in TRICKS.items()
            if not self.tricks or name in self.tricks
        )
        return Command(
            argv=("sh", "-c", f"{script}\nexit 0", "sh", folder, marker, self.witness),
            cwd=workspace.start,
            time_s=_TIME_S,
        )
