"""The agent `shell`: a model that runs commands in the box until it says that it is done."""

import re
from dataclasses import dataclass
from functools import partial

from bakeoff._lib.sanitize import well_formed
from bakeoff.agents.one_tool import OneTool
from bakeoff.agents.task_fit import workspace_of
from bakeoff.core.errors import SandboxError
from bakeoff.core.journal import Journal
from bakeoff.core.outcome import Outcome, Tool
from bakeoff.core.ports import Context
from bakeoff.core.sandbox import Box, Command
from bakeoff.core.task import Message, Task

_SYSTEM = """\
You work in a folder of files, with a shell. Solve the task that you are given by running commands.

Call the tool `run` with a command. If you cannot call tools, write the command in a block:
```sh
the command
```
Each command starts anew in the same folder: `cd` and variables do not last, files do. You are told
its exit code and what it printed. What the task leaves open is yours to decide. When it is done, say
so in one or two sentences without a command."""
_NUDGE = "I found no command in that. Write one in a ```sh block, or say that you are done."
_RUN = Tool(
    name="run",
    description="Run a shell command in the folder of the task and return what it printed.",
    parameters={
        "type": "object",
        "properties": {"command": {"type": "string", "description": "for sh -c"}},
        "required": ["command"],
    },
)
_FENCED = re.compile(r"^```(?:sh|bash|shell|console)[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_COMMANDS = OneTool(system=_SYSTEM, tool=_RUN, argument="command", fenced=_FENCED, nudge=_NUDGE)


@dataclass(frozen=True, kw_only=True)
class Shell:
    """Runs commands in the box until the model says that it is done; works with any model."""

    steps: int = 50
    command_s: float = 120.0
    most_output: int = 12_000
    system_prompt: str | None = None

    def check(self, task: Task) -> None:
        """Refuse a task without files to work on."""
        workspace_of(task, "shell")

    async def solve(self, task: Task, context: Context) -> Outcome:
        """Work on *task* from the start."""
        return await self._work(task, context)

    async def resume(self, task: Task, context: Context, message: str) -> Outcome:
        """Continue with *message*; earlier work is in the journal."""
        if context.journal is not None:
            context.journal.add_messages(Message(role="user", content=message))
        return await self._work(task, context)

    async def _work(self, task: Task, context: Context) -> Outcome:
        workspace = workspace_of(task, "shell")
        if context.workspace is None or context.journal is None:
            raise SandboxError("agent 'shell' was given no box to work in")
        journal = context.journal
        run_tool = partial(self._run_command, context.workspace.box, workspace.start, journal)
        ended = await _COMMANDS.with_system_prompt(self.system_prompt).use(
            task, context, journal, run_tool, steps=self.steps
        )
        return Outcome(
            answer=next((m.content for m in reversed(journal.messages) if m.content), ""),
            transcript=tuple(journal.messages),
            stop_reason=ended.why,
            model=ended.last.model if ended.last else None,
            interventions=journal.interventions,
        )

    async def _run_command(self, box: Box, start: str, journal: Journal, command: str) -> str:
        ran = await box.run(
            Command(
                argv=("sh", "-c", command),
                cwd=start,
                time_s=self.command_s,
                most_output=self.most_output,
            )
        )
        how = f"exit code {ran.code}" if ran.stopped is None else f"stopped: {ran.stopped}"
        output = well_formed(f"{how}\n{ran.output}".rstrip())
        journal.write_log(f"$ {command.strip()}\n{output}\n")
        return output
