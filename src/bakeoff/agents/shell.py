"""The loop of a model with one tool that takes one text: think, run, observe, repeat.

It uses function calling. A model without function calling writes the text in a fenced block
instead, so that every model can take part.
"""

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from bakeoff._lib.sanitize import well_formed
from bakeoff.agents.task_fit import workspace_of
from bakeoff.core.errors import ProviderError, SandboxError
from bakeoff.core.outcome import Completion, Journal, Outcome, Request, Tool
from bakeoff.core.ports import Context
from bakeoff.core.sandbox import Box, Command
from bakeoff.core.task import Message, Task, ToolCall

RunTool = Callable[[str], Awaitable[str]]


@dataclass(frozen=True, kw_only=True)
class LoopEnded:
    """How a loop ended: the last completion, and why it was the last."""

    last: Completion | None
    why: str | None


@dataclass(frozen=True, kw_only=True)
class OneTool:
    """A tool, the system prompt that explains it, and the pattern of a fenced block with its text.

    `nudge` is sent once to a model that starts without using the tool; without a nudge, that text is
    its answer.
    """

    system: str
    tool: Tool
    argument: str
    fenced: re.Pattern[str]
    nudge: str | None = None

    def with_system_prompt(self, system_prompt: str | None) -> "OneTool":
        """Return the same tool with *system_prompt* before its own."""
        if not system_prompt:
            return self
        return replace(self, system=f"{system_prompt}\n\n{self.system}")

    async def use(
        self, task: Task, context: Context, journal: Journal, run_tool: RunTool, *, steps: int
    ) -> LoopEnded:
        """Let the model use the tool at most *steps* times; *run_tool* runs a text and returns its output."""
        last: Completion | None = None
        tools: tuple[Tool, ...] = (self.tool,)
        for _ in range(steps):
            try:
                last = await context.model.complete(
                    self._request(task, journal, tools, context.rollout)
                )
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
            journal.add_messages(reply)
            if results := await self._run_calls(reply, run_tool):
                journal.add_messages(*results)
            elif self.nudge is None or len(journal.messages) > 1:
                return LoopEnded(last=last, why=last.stop_reason)
            else:
                journal.add_messages(Message(role="user", content=self.nudge))
        return LoopEnded(last=last, why=f"{steps} steps are spent")

    async def _run_calls(self, reply: Message, run_tool: RunTool) -> list[Message]:
        """Run every tool call or fenced block in *reply*, and return the results."""
        written = self.fenced.search(reply.content)
        if not reply.tool_calls and written is not None:
            return [Message(role="user", content=await run_tool(written[1]))]
        results = []
        for call in reply.tool_calls:
            text = self._text(call)
            output = self._usage_hint() if text is None else await run_tool(text)
            results.append(Message(role="tool", content=output, tool_call_id=call.id))
        return results

    def _text(self, call: ToolCall) -> str | None:
        try:
            arguments = json.loads(call.arguments)
        except (ValueError, RecursionError):
            return None
        text = arguments.get(self.argument) if isinstance(arguments, dict) else None
        if call.name != self.tool.name or not isinstance(text, str):
            return None
        return well_formed(
            text
        )  # no system starts a program with a lone surrogate in its arguments

    def _usage_hint(self) -> str:
        return f"There is one tool, `{self.tool.name}`, and it takes one text: `{self.argument}`."

    def _request(
        self, task: Task, journal: Journal, tools: tuple[Tool, ...], rollout: int
    ) -> Request:
        system = Message(role="system", content=self.system)
        return Request(
            messages=(system, *task.messages, *journal.messages),
            parameters=task.parameters,
            tools=tools,
            rollout=rollout,
        )


def _refuses_tools(error: ProviderError) -> bool:
    """Whether the endpoint says that this model cannot call tools."""
    return not error.transient and "tool" in str(error).lower()


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
