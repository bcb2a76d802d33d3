"""Our own coding agent: think, run a command in the box, look; until there is nothing to run.

It asks for commands with function calling. A model that cannot do that writes them in a fenced
block instead, so that any model can take part.
"""

import json
import re
from dataclasses import dataclass

from bakeoff._lib.untrusted import well_formed
from bakeoff.core.boxes import Box, Command
from bakeoff.core.errors import ProviderError, UsageError
from bakeoff.core.journal import Journal
from bakeoff.core.outcome import Completion, Outcome, Request, Tool
from bakeoff.core.ports import Kit
from bakeoff.core.task import Message, Task, ToolCall

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


@dataclass(frozen=True, kw_only=True)
class Shell:
    """Runs commands in the box until it says that it is done; works with any model."""

    steps: int = 50
    command_s: float = 120.0
    most_output: int = 12_000

    async def solve(self, task: Task, kit: Kit) -> Outcome:
        """Work on *task* from the start."""
        return await self._work(task, kit)

    async def go_on(self, task: Task, kit: Kit, message: str) -> Outcome:
        """Work on after somebody said something; what was done is in the journal."""
        if kit.journal is not None:
            kit.journal.say(Message(role="user", content=message))
        return await self._work(task, kit)

    async def _work(self, task: Task, kit: Kit) -> Outcome:
        if kit.room is None or kit.journal is None or task.workspace is None:
            raise UsageError(f"agent 'shell' needs a workspace, and task {task.id!r} has none")
        journal, last = kit.journal, None
        tools: tuple[Tool, ...] = (_RUN,)
        for _ in range(self.steps):
            try:
                last = await kit.model.complete(_request(task, journal, tools, kit.rollout))
            except ProviderError as error:
                if not tools or not _refuses_tools(error):
                    raise
                tools = ()
                continue
            reply = Message(
                role="assistant",
                content=well_formed(last.text),
                reasoning=last.reasoning,
                tool_calls=last.tool_calls,
            )
            journal.say(reply)
            looked = await self._obey(reply, kit.room.box, task.workspace.start, journal)
            if looked:
                journal.say(*looked)
            elif len(journal.messages) > 1:
                return self._outcome(journal, last, last.stop_reason)
            else:  # a small model may need to be told once how to begin
                journal.say(Message(role="user", content=_NUDGE))
        return self._outcome(journal, last, f"{self.steps} steps are spent")

    async def _obey(self, reply: Message, box: Box, start: str, journal: Journal) -> list[Message]:
        """Return what came of every command in *reply*; nothing where there was none."""
        looked = []
        for call in reply.tool_calls:
            seen = await self._look(_command(call), box, start, journal)
            looked.append(Message(role="tool", content=seen, tool_call_id=call.id))
        if not looked:
            for command in _FENCED.findall(reply.content)[:1]:
                seen = await self._look(command, box, start, journal)
                looked.append(Message(role="user", content=seen))
        return looked

    async def _look(self, command: str | None, box: Box, start: str, journal: Journal) -> str:
        if command is None:
            return "There is one tool, `run`, and it takes one text: `command`."
        ran = await box.run(
            Command(
                argv=("sh", "-c", command),
                cwd=start,
                time_s=self.command_s,
                most_output=self.most_output,
            )
        )
        how = f"exit code {ran.code}" if ran.stopped is None else f"stopped: {ran.stopped}"
        seen = well_formed(f"{how}\n{ran.output}".rstrip())
        journal.print(f"$ {well_formed(command).strip()}\n{seen}\n")
        return seen

    def _outcome(self, journal: Journal, last: Completion | None, why: str | None) -> Outcome:
        return Outcome(
            answer=next((m.content for m in reversed(journal.messages) if m.content), ""),
            transcript=tuple(journal.messages),
            stop_reason=why,
            model=last.model if last else None,
            interventions=journal.interventions,
        )


def _request(task: Task, journal: Journal, tools: tuple[Tool, ...], rollout: int) -> Request:
    system = Message(role="system", content=_SYSTEM)
    return Request(
        messages=(system, *task.messages, *journal.messages),
        parameters=task.parameters,
        tools=tools,
        rollout=rollout,
    )


def _refuses_tools(error: ProviderError) -> bool:
    """Whether the endpoint says that this model cannot call tools."""
    return not error.transient and "tool" in str(error).lower()


def _command(call: ToolCall) -> str | None:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return None
    command = arguments.get("command") if isinstance(arguments, dict) else None
    return command if call.name == _RUN.name and isinstance(command, str) else None
