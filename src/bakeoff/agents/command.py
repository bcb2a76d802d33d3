"""Agents that are programs: any command, and the named ones, each with its declaration."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from bakeoff.agents import programs
from bakeoff.agents.installed import Installed, find
from bakeoff.agents.program_run import Call, instruction_of, run
from bakeoff.agents.programs import Program
from bakeoff.agents.task_fit import workspace_of
from bakeoff.core.boxes import Mount
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.task import Task

_SHELL_ONLY = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"})
_GATEWAY = {
    "OPENAI_BASE_URL": "{gateway}/v1",
    "OPENAI_API_BASE": "{gateway}/v1",
    "OPENAI_API_KEY": "{token}",
    "ANTHROPIC_BASE_URL": "{gateway}",
    "ANTHROPIC_AUTH_TOKEN": "{token}",
    "BAKEOFF_GATEWAY": "{gateway}",
    "BAKEOFF_TOKEN": "{token}",
    "BAKEOFF_MODEL": "{model}",
    "BAKEOFF_INSTRUCTION_FILE": "{instruction_file}",
}


@dataclass(frozen=True, kw_only=True)
class CommandAgent:
    """Any program that is in the box, or among the paths that `mounted` shows there as they are here.

    `command` is its words, or one text that is split into words as a shell would; no shell runs.
    The instruction comes on its standard input and in the fields `{instruction}` and
    `{instruction_file}`; the gateway in `{gateway}`, `{token}`, `{model}` and in variables that the
    libraries of OpenAI and Anthropic read.
    """

    command: str | tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    mounted: tuple[str, ...] = ()
    needs_gateway: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self._words:
            raise UsageError("agent 'command': `command` is empty; it is the program to run")
        if isinstance(self.command, str) and _SHELL_ONLY & set(self._words):
            raise UsageError(
                f"agent 'command': {self.command!r} needs a shell; "
                'write command = ["sh", "-c", "..."], with "$BAKEOFF_INSTRUCTION_FILE" in it'
            )

    @property
    def _words(self) -> tuple[str, ...]:
        if not isinstance(self.command, str):
            return self.command
        try:
            return tuple(shlex.split(self.command))
        except ValueError as error:
            raise UsageError(f"agent 'command': {self.command!r}: {error}") from error

    def mounts(self) -> tuple[Mount, ...]:
        """Return what the box is to be shown of the host."""
        for path in self.mounted:
            if not Path(path).is_absolute() or not Path(path).exists():
                raise UsageError(f"agent 'command': there is no absolute path {path!r} to mount")
        return tuple(Mount(source=path, target=path) for path in self.mounted)

    def version(self) -> None:
        """Nobody knows the version of any program."""

    def check(self, task: Task) -> None:
        """Refuse a task without files to work on."""
        workspace_of(task, "command")

    async def solve(self, task: Task, kit: Context) -> Outcome:
        """Run the program once."""
        return await self.go_on(task, kit, instruction_of(task))

    async def go_on(self, task: Task, kit: Context, message: str) -> Outcome:
        """Run it again in the same room, with another instruction."""
        call = Call(
            name="command",
            argv=self._words,
            instruction=message,
            environment={**_GATEWAY, **self.environment},
            asks=False,
        )
        return await run(call, task, kit)


@dataclass(frozen=True, kw_only=True)
class NamedProgram:
    """One of the coding agents that Bakeoff knows by name; `args` go after its own arguments."""

    executable: str | None = None
    args: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    program: ClassVar[Program]
    needs_gateway: ClassVar[bool] = True

    @cached_property
    def _installed(self) -> Installed:
        return find(self.program, self.executable)

    def mounts(self) -> tuple[Mount, ...]:
        """Return what the box is to be shown of the host; a usage error where it is missing."""
        return self._installed.mounts

    def version(self) -> str | None:
        """Return the version that is installed."""
        return self._installed.version

    def check(self, task: Task) -> None:
        """Refuse a task without files to work on."""
        workspace_of(task, self.program.name)

    async def solve(self, task: Task, kit: Context) -> Outcome:
        """Give it the task."""
        return await self._run(self.program.first, instruction_of(task), task, kit)

    async def go_on(self, task: Task, kit: Context, message: str) -> Outcome:
        """Go on with its session; where it keeps none, begin one that knows the task."""
        if self.program.again is not None:
            return await self._run(self.program.again, message, task, kit)
        told = f"{instruction_of(task)}\n\n{message}"
        return await self._run(self.program.first, told, task, kit)

    async def _run(
        self, arguments: tuple[str, ...], instruction: str, task: Task, kit: Context
    ) -> Outcome:
        program = self.program
        call = Call(
            name=program.name,
            argv=(*self._installed.words, *_placed(arguments, self.args)),
            instruction=instruction,
            environment={**program.environment, **self.environment},
            files=program.files,
            litter=program.litter,
            final=program.final,
            version=self.version(),
        )
        return await run(call, task, kit)


def _placed(arguments: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Return *more* before the last argument, which some programs want to be the last."""
    return (*arguments[:-1], *more, *arguments[-1:])


class Aider(NamedProgram):
    """Aider."""

    program = programs.AIDER


class ClaudeCode(NamedProgram):
    """Claude Code."""

    program = programs.CLAUDE_CODE


class Codex(NamedProgram):
    """OpenAI's Codex."""

    program = programs.CODEX


class Continue(NamedProgram):
    """Continue's `cn`."""

    program = programs.CONTINUE


class GeminiCli(NamedProgram):
    """Gemini CLI."""

    program = programs.GEMINI_CLI


class MiniSweAgent(NamedProgram):
    """mini-swe-agent."""

    program = programs.MINI_SWE_AGENT


class OpenCode(NamedProgram):
    """opencode."""

    program = programs.OPENCODE


class QwenCode(NamedProgram):
    """Qwen Code."""

    program = programs.QWEN_CODE
