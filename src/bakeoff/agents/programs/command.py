"""Agents that are external programs: finding installed ones, any command, and the named ones."""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from bakeoff.agents.programs import catalog
from bakeoff.agents.programs.catalog import AgentProgram
from bakeoff.agents.programs.output import ProgramCall, instruction_of, run
from bakeoff.agents.task_fit import workspace_of
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.sandbox import Mount
from bakeoff.core.task import Task

_AGENT = "/opt/bakeoff/agent"
_NODE = "/opt/bakeoff/bin/node"
_SYSTEM = Path("/usr")  # every box has its own
_VERSION_S = 20.0
_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")
_PYTHON = re.compile(r"(?:^#!|^'''exec' )\s*[\"']?(/[^\s\"']*python[\w.]*)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class InstalledProgram:
    """An installed program: the argv that starts it in a box, and the mounts it needs there."""

    argv: tuple[str, ...]
    mounts: tuple[Mount, ...]
    version: str | None


def find_installed(program: AgentProgram, executable: str | None = None) -> InstalledProgram:
    """Locate *program*; UsageError with its install command where it is missing."""
    located = shutil.which(executable or program.executable)
    if located is None:
        missing = f"agent {program.name!r} is not installed; install it with: {program.install}"
        if executable is not None:
            missing = f"agent {program.name!r}: there is no program {executable!r}"
        raise UsageError(missing)
    path = Path(located).resolve()
    modules = _outermost(path, "node_modules")
    version = _version(program, path)
    if modules is not None and program.native and (native := _native(modules, program.native)):
        return _under(native.parent.parent, native, version)
    head = _file_head(path)
    if head.startswith("#!") and "node" in head.partition("\n")[0]:
        return _with_node(program, modules or _package(path), path, version)
    if interpreter := _PYTHON.search(head):
        return _with_python(program, path, Path(interpreter[1]), version)
    return _under(modules or path, path, version)


def _under(folder: Path, program: Path, version: str | None) -> InstalledProgram:
    """Return a program that needs only its folder, or itself."""
    inside = program.relative_to(folder).as_posix() if program != folder else ""
    return InstalledProgram(
        argv=(f"{_AGENT}/{inside}".rstrip("/"),),
        mounts=(Mount(source=str(folder), target=_AGENT),),
        version=version,
    )


def _with_node(
    program: AgentProgram, folder: Path, script: Path, version: str | None
) -> InstalledProgram:
    node = shutil.which("node")
    if node is None:
        raise UsageError(f"agent {program.name!r} needs node, which is not installed")
    node = str(Path(node).resolve())
    plain = _under(folder, script, version)
    return InstalledProgram(
        argv=(_NODE, *plain.argv),
        mounts=(Mount(source=node, target=_NODE), *plain.mounts),
        version=version,
    )


def _with_python(
    program: AgentProgram, script: Path, python: Path, version: str | None
) -> InstalledProgram:
    homes = _homes(python)
    if not any(script.is_relative_to(home) for home in homes):
        raise UsageError(
            f"agent {program.name!r}: {script} is not in an environment of its own, "
            f"so it cannot be shown in a box; install it with: {program.install}"
        )
    mounts = tuple(
        Mount(source=str(home), target=str(home))
        for home in sorted(homes)
        if not home.is_relative_to(_SYSTEM) and not homes & set(home.parents)
    )
    argv = (str(python), str(script))
    return InstalledProgram(argv=argv, mounts=mounts, version=version)


def _homes(python: Path) -> set[Path]:
    """Return the environment of an interpreter, and those that it links to."""
    homes = {python.parent.parent}
    while python.is_symlink():
        # not resolved: an interpreter finds its folders by this path
        python = Path(os.path.normpath(python.parent / python.readlink()))
        homes.add(python.parent.parent)
    return homes


def _outermost(path: Path, name: str) -> Path | None:
    """Return the outermost parent folder of *path* called *name*; None where there is none."""
    return next((folder for folder in reversed(path.parents) if folder.name == name), None)


def _package(path: Path) -> Path:
    """Return the folder of the package that *path* belongs to, else the file itself."""
    return next((folder for folder in path.parents if (folder / "package.json").is_file()), path)


def _native(modules: Path, pattern: str) -> Path | None:
    """Return the native program of a package, wherever the package manager put it."""
    for location in (pattern, f"*/node_modules/{pattern}", f"*/*/node_modules/{pattern}"):
        if matches := sorted(modules.glob(location)):
            return matches[0]
    return None


def _file_head(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(1024).decode("utf-8", errors="replace")


def _version(program: AgentProgram, path: Path) -> str | None:
    """Return the version from the package's metadata, else from `--version`."""
    for folder in path.parents:
        stated = _manifest(folder / "package.json")
        if stated.get("name") == program.package and "version" in stated:
            return str(stated["version"])
    stem = program.package.replace("-", "_")
    for folder in path.parent.parent.glob(f"lib/python3*/site-packages/{stem}-*.dist-info"):
        return folder.name.removesuffix(".dist-info").removeprefix(f"{stem}-")
    return _reported_version(path)


def _manifest(path: Path) -> dict[str, object]:
    """Return the content of a package.json; empty where it cannot be read."""
    try:
        stated = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return stated if isinstance(stated, dict) else {}


def _reported_version(path: Path) -> str | None:
    try:
        completed = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERSION_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(completed.stdout.decode("utf-8", errors="replace"))
    return match[0] if match else None


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
    """Any program that is in the box, or under a path of the host that `mounted` shows there.

    `command` is an argument list, or one text that is split like in a shell; no shell runs. The
    instruction comes on its standard input and in the placeholders `{instruction}` and
    `{instruction_file}`; the gateway in `{gateway}`, `{token}`, `{model}` and in the variables that
    the libraries of OpenAI and Anthropic read.
    """

    command: str | tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    mounted: tuple[str, ...] = ()
    needs_gateway: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self._argv:
            raise UsageError("agent 'command': `command` is empty; it is the program to run")
        if isinstance(self.command, str) and _SHELL_ONLY & set(self._argv):
            raise UsageError(
                f"agent 'command': {self.command!r} needs a shell; "
                'write command = ["sh", "-c", "..."], with "$BAKEOFF_INSTRUCTION_FILE" in it'
            )

    @property
    def _argv(self) -> tuple[str, ...]:
        if not isinstance(self.command, str):
            return self.command
        try:
            return tuple(shlex.split(self.command))
        except ValueError as error:
            raise UsageError(f"agent 'command': {self.command!r}: {error}") from error

    def mounts(self) -> tuple[Mount, ...]:
        """Return the mounts that the box needs."""
        for path in self.mounted:
            if not Path(path).is_absolute() or not Path(path).exists():
                raise UsageError(f"agent 'command': there is no absolute path {path!r} to mount")
        return tuple(Mount(source=path, target=path) for path in self.mounted)

    def version(self) -> None:
        """Return None: the version of an arbitrary program is unknown."""

    def check(self, task: Task) -> None:
        """Refuse a task without files to work on."""
        workspace_of(task, "command")

    async def solve(self, task: Task, context: Context) -> Outcome:
        """Run the program once."""
        return await self.resume(task, context, instruction_of(task))

    async def resume(self, task: Task, context: Context, message: str) -> Outcome:
        """Run it again in the same workspace, with *message* as the instruction."""
        call = ProgramCall(
            name="command",
            argv=self._argv,
            instruction=message,
            environment={**_GATEWAY, **self.environment},
            asks=False,
        )
        return await run(call, task, context)


@dataclass(frozen=True, kw_only=True)
class NamedProgram:
    """A coding agent of the catalog; `args` are added to its own arguments."""

    executable: str | None = None
    args: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    program: ClassVar[AgentProgram]
    needs_gateway: ClassVar[bool] = True

    @cached_property
    def _installed(self) -> InstalledProgram:
        return find_installed(self.program, self.executable)

    def mounts(self) -> tuple[Mount, ...]:
        """Return the mounts that the box needs; UsageError where the program is missing."""
        return self._installed.mounts

    def version(self) -> str | None:
        """Return the installed version."""
        return self._installed.version

    def check(self, task: Task) -> None:
        """Refuse a task without files to work on."""
        workspace_of(task, self.program.name)

    async def solve(self, task: Task, context: Context) -> Outcome:
        """Give it the task."""
        return await self._run(self.program.first, instruction_of(task), task, context)

    async def resume(self, task: Task, context: Context, message: str) -> Outcome:
        """Resume its session; where it keeps none, start a new one with the task and *message*."""
        if self.program.again is not None:
            return await self._run(self.program.again, message, task, context)
        instruction = f"{instruction_of(task)}\n\n{message}"
        return await self._run(self.program.first, instruction, task, context)

    async def _run(
        self, arguments: tuple[str, ...], instruction: str, task: Task, context: Context
    ) -> Outcome:
        program = self.program
        call = ProgramCall(
            name=program.name,
            argv=(*self._installed.argv, *_insert_arguments(arguments, self.args)),
            instruction=instruction,
            environment={**program.environment, **self.environment},
            files=program.files,
            temporary_files=program.temporary_files,
            final=program.final,
            version=self.version(),
        )
        return await run(call, task, context)


def _insert_arguments(arguments: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Insert *more* before the last argument, which some programs require to be last."""
    return (*arguments[:-1], *more, *arguments[-1:])


def _agent(class_name: str, program: AgentProgram) -> type[NamedProgram]:
    """Return the class of the agent that runs *program*."""
    return type(class_name, (NamedProgram,), {"program": program, "__doc__": f"{program.title}."})


Aider = _agent("Aider", catalog.AIDER)
ClaudeCode = _agent("ClaudeCode", catalog.CLAUDE_CODE)
Codex = _agent("Codex", catalog.CODEX)
Continue = _agent("Continue", catalog.CONTINUE)
GeminiCli = _agent("GeminiCli", catalog.GEMINI_CLI)
MiniSweAgent = _agent("MiniSweAgent", catalog.MINI_SWE_AGENT)
OpenCode = _agent("OpenCode", catalog.OPENCODE)
QwenCode = _agent("QwenCode", catalog.QWEN_CODE)
