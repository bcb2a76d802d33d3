"""The agent `code-session`: a model that runs Python in a persistent session in the box."""

import asyncio
import json
import re
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

from bakeoff._lib.sanitize import well_formed
from bakeoff._lib.value_object import value_object
from bakeoff.agents.shell import OneTool
from bakeoff.agents.task_fit import workspace_of
from bakeoff.core.errors import SandboxError
from bakeoff.core.outcome import Journal, Outcome, Tool
from bakeoff.core.ports import Context
from bakeoff.core.sandbox import Box, Command, CommandResult
from bakeoff.core.task import Message, Task

_DRIVER = Path(__file__).with_name("driver.py")
_GRACE_S = 5.0  # for the driver to interrupt a cell itself and report it
_WRITE_S = 60.0
_MAX_DRIVER_OUTPUT = 100_000  # of the driver's output, which is processed as it arrives
_MAX_LINE = 4_000_000
_NO_PYTHON = (126, 127)


@value_object
class CellResult:
    """The result of one cell; `error` is None where it ran to its end."""

    output: str
    error: str | None = None

    def shown(self) -> str:
        """Return it as text for the model."""
        parts = [part.rstrip() for part in (self.output, self.error or "") if part.strip()]
        return well_formed("\n".join(parts)) or "(it printed nothing)"


@value_object
class SessionSettings:
    """The time limit and output limit of a cell, and the Python that runs it."""

    cell_s: float = 120.0
    most_output: int = 12_000
    python: str = "python3"


class CodeSession:
    """Runs cells in *box*, one after another, in *start*; variables persist between them."""

    def __init__(self, box: Box, start: str, settings: SessionSettings) -> None:
        self._box = box
        self._start = start
        self._settings = settings
        self._driver: _Driver | None = None
        self.cells = 0

    async def run(self, code: str) -> CellResult:
        """Run one cell; where the session dies, the next cell starts a new one."""
        self.cells += 1
        if self._driver is None:
            self._driver = _Driver(self._box, self._start, self._settings, first=self.cells == 1)
        driver = self._driver
        try:
            return await driver.run(code)
        except _SessionEndedError as error:
            self._driver = None
            await driver.close()
            return CellResult(output=error.output, error=f"{error}; all variables are gone")

    async def close(self) -> None:
        """End the session with all its processes."""
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.close()


class _SessionEndedError(Exception):
    def __init__(self, why: str, output: str = "") -> None:
        super().__init__(why)
        self.output = output


class _Driver:
    """One run of the driver in the box."""

    def __init__(self, box: Box, start: str, settings: SessionSettings, *, first: bool) -> None:
        self._box = box
        self._start = start
        self._settings = settings
        self._first = first
        self._token = secrets.token_hex(16)
        self._folder = f"~/.bakeoff-session/{secrets.token_hex(6)}"
        self._number = 0
        self._buffer = bytearray()
        self._cells: asyncio.Queue[Mapping[str, object]] = asyncio.Queue()
        self._running = asyncio.ensure_future(self._box.run(self._command()))

    def _command(self) -> Command:
        limits = json.dumps(
            {"cell_s": self._settings.cell_s, "most_output": self._settings.most_output}
        )
        source = _DRIVER.read_text(encoding="utf-8")
        arguments = ("-u", "-c", source, self._token, self._folder, limits)
        return Command(
            argv=(self._settings.python, *arguments),
            cwd=self._start,
            on_output=self._on_output,
            most_output=_MAX_DRIVER_OUTPUT,
        )

    def _on_output(self, chunk: bytes) -> None:
        self._buffer += chunk
        *lines, rest = bytes(self._buffer).split(b"\n")
        self._buffer = bytearray(rest[-_MAX_LINE:])
        for line in lines:
            _, separator, record = line.partition(self._token.encode())
            if separator:
                try:
                    self._cells.put_nowait(json.loads(record))
                except ValueError:
                    continue  # a cell wrote into the driver's output

    async def run(self, code: str) -> CellResult:
        self._number += 1
        await self._write_cell(code)
        waiting = asyncio.ensure_future(self._cells.get())
        try:
            await asyncio.wait(
                {waiting, self._running},
                timeout=self._settings.cell_s + _GRACE_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if waiting.done():
                return _cell(waiting.result())
        finally:
            waiting.cancel()
        if self._running.done():
            raise self._ended(self._running.result())
        raise _SessionEndedError(
            f"the cell took longer than {self._settings.cell_s:g} s and could not be interrupted: "
            "the session was ended"
        )

    async def _write_cell(self, code: str) -> None:
        """Write the cell atomically to where the driver looks for it."""
        folder = shlex.quote(self._folder.removeprefix("~/"))
        script = (
            f'cd "$HOME" && mkdir -p {folder} && cd {folder} '
            f"&& cat > part && mv part {self._number}.py"
        )
        written = Command(
            argv=("sh", "-c", script),
            stdin=code.encode("utf-8", "replace"),
            time_s=_WRITE_S,
        )
        ran = await self._box.run(written)
        if ran.code != 0:
            reason = ran.stopped or ran.output.strip() or f"exit {ran.code}"
            raise _SessionEndedError(f"the session cannot be reached: {reason}")

    def _ended(self, ran: CommandResult) -> _SessionEndedError:
        if ran.code in _NO_PYTHON and self._number == 1 and self._first:
            raise SandboxError(
                f"{self._settings.python!r} could not be started in the box: {ran.output.strip()}"
            )
        how = ran.stopped or f"exit code {ran.code}"
        return _SessionEndedError(f"the session ended ({how})", ran.output[-2000:])

    async def close(self) -> None:
        self._running.cancel()
        await asyncio.wait({self._running})
        if not self._running.cancelled():
            self._running.exception()  # it is over, however it ended


def _cell(record: Mapping[str, object]) -> CellResult:
    output, error = record.get("output"), record.get("error")
    return CellResult(
        output=output if isinstance(output, str) else "",
        error=error if isinstance(error, str) else None,
    )


_SYSTEM = """\
You can run Python. Call the tool `run_code`; if you cannot call tools, write the code in a block:
```python
the code
```
It runs in a session that lasts: variables and imports stay. You are told what it printed, and the \
value of its last line. When you have what you need, answer in plain words without code."""
_RUN_CODE = Tool(
    name="run_code",
    description="Run Python code in a session that lasts, and return what it printed.",
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string"}},
        "required": ["code"],
    },
)
_FENCED = re.compile(r"^```(?:python|py)[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_CODE = OneTool(system=_SYSTEM, tool=_RUN_CODE, argument="code", fenced=_FENCED)


@dataclass(frozen=True, kw_only=True)
class CodeSessionAgent:
    """Answers after running Python, at most `steps` cells for each message."""

    steps: int = 20
    cell_s: float = 120.0
    most_output: int = 12_000
    python: str = "python3"
    system_prompt: str | None = None
    _sessions: WeakKeyDictionary[Journal, CodeSession] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def check(self, task: Task) -> None:
        """Refuse a task without files to work on."""
        workspace_of(task, "code-session")

    async def solve(self, task: Task, context: Context) -> Outcome:
        """Answer the first message."""
        return await self._answer(task, context)

    async def resume(self, task: Task, context: Context, message: str) -> Outcome:
        """Answer another message, in the same session."""
        if context.journal is not None:
            context.journal.add_messages(Message(role="user", content=message))
        return await self._answer(task, context)

    async def release(self, context: Context) -> None:
        """End the session."""
        session = self._sessions.pop(context.journal, None) if context.journal is not None else None
        if session is not None:
            await session.close()

    async def _answer(self, task: Task, context: Context) -> Outcome:
        session, journal = self._session(task, context)

        async def run_tool(code: str) -> str:
            return (await session.run(code)).shown()

        ended = await _CODE.with_system_prompt(self.system_prompt).use(
            task, context, journal, run_tool, steps=self.steps
        )
        return Outcome(
            answer=ended.last.text if ended.last else "",
            transcript=tuple(journal.messages),
            stop_reason=ended.why,
            model=ended.last.model if ended.last else None,
            notes={"code_cells": session.cells},
        )

    def _session(self, task: Task, context: Context) -> tuple[CodeSession, Journal]:
        workspace = workspace_of(task, "code-session")
        if context.workspace is None or context.journal is None:
            raise SandboxError("agent 'code-session' was given no box to work in")
        session = self._sessions.get(context.journal)
        if session is None:
            settings = SessionSettings(
                cell_s=self.cell_s, most_output=self.most_output, python=self.python
            )
            session = CodeSession(context.workspace.box, workspace.start, settings)
            self._sessions[context.journal] = session
        return session, context.journal
