"""The agent `human`: a person works in a shell in the box, or changes files in a folder."""

import asyncio
import fcntl
import os
import shlex
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from bakeoff._lib.sanitize import for_terminal
from bakeoff.agents.programs.output import instruction_of
from bakeoff.agents.task_fit import workspace_of
from bakeoff.core.errors import SandboxError, UsageError
from bakeoff.core.outcome import Journal, Outcome
from bakeoff.core.ports import Context
from bakeoff.core.sandbox import Box, Command, OpenWorkspace
from bakeoff.core.task import Message, Task

_POLL_S = 0.2
_BUSY_S = 0.2
_CWD_MARKER = "\x1e"  # precedes the working directory in the output


@dataclass(frozen=True, kw_only=True)
class Human:
    """Lets the person at the terminal solve the task.

    With `wait_for = "shell"` each line is run in the box; `cd` persists, full-screen programs do not
    work. With `"folder"` it prints the path of the files, and waits for Enter or for a file with the
    folder's name plus `.done`.
    """

    wait_for: Literal["shell", "folder"] = "shell"
    needs_model: ClassVar[bool] = False

    def check(self, task: Task) -> None:
        """Refuse a task without files to work on."""
        workspace_of(task, "human")

    async def solve(self, task: Task, context: Context) -> Outcome:
        """Show the task and wait until the person is done."""
        return await self.resume(task, context, instruction_of(task))

    async def resume(self, task: Task, context: Context, message: str) -> Outcome:
        """Show *message*, and let the person continue."""
        workspace = workspace_of(task, "human")
        if context.workspace is None:
            raise SandboxError("agent 'human' was given no box to work in")
        journal = context.journal or Journal()
        async with _terminal() as terminal:
            terminal.write(f"\n--- {task.id}\n{for_terminal(message)}\n---\n")
            if self.wait_for == "folder":
                await _wait_for_folder(terminal, context.workspace)
            else:
                await _shell(terminal, context.workspace.box, workspace.start, journal)
        return Outcome(
            answer="",
            transcript=tuple(journal.messages),
            stop_reason="done",
            log=journal.log,
            interventions=journal.interventions,
        )


class _Terminal:
    """The controlling terminal, read without a thread, which could not be stopped."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pending = b""

    def write(self, text: str) -> None:
        os.write(self._fd, text.encode("utf-8", errors="replace"))

    async def line(self) -> str | None:
        """Return the next line of input; None at its end (Ctrl-D)."""
        while b"\n" not in self._pending:
            await self._readable()
            chunk = os.read(self._fd, 4096)
            if not chunk:
                return None
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode("utf-8", errors="replace")

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._fd, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._fd)


@asynccontextmanager
async def _terminal() -> AsyncIterator[_Terminal]:
    """Hold the terminal exclusively, for one trial at a time."""
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError("agent 'human' needs a terminal, and there is none here") from error
    try:
        lock = os.open(os.ttyname(fd), os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            await _locked(lock)
            termios.tcflush(fd, termios.TCIFLUSH)  # input from before the prompt
            yield _Terminal(fd)
        finally:
            os.close(lock)
    finally:
        os.close(fd)


async def _locked(fd: int) -> None:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await asyncio.sleep(_BUSY_S)
        else:
            return


async def _wait_for_folder(terminal: _Terminal, workspace: OpenWorkspace) -> None:
    if workspace.folder is None:
        raise UsageError("agent 'human': this box has no folder to be changed; use its shell")
    done_file = Path(f"{workspace.folder}.done")
    terminal.write(
        f"Change the files in {workspace.folder}\nThen press Enter, or make {done_file}\n"
    )
    entered = asyncio.ensure_future(terminal.line())
    try:
        while not entered.done() and not _remove_if_there(done_file):
            await asyncio.wait({entered}, timeout=_POLL_S)
        if entered.done():
            entered.result()  # raises where the terminal is gone
    finally:
        entered.cancel()
        await asyncio.wait({entered})  # it must release the terminal before that is closed


def _remove_if_there(done_file: Path) -> bool:
    """Remove the file; return whether it existed."""
    try:
        done_file.unlink()
    except FileNotFoundError:
        return False
    return True


async def _shell(terminal: _Terminal, box: Box, start: str, journal: Journal) -> None:
    """Run line after line in the box until `exit` or Ctrl-D."""
    terminal.write("A shell in the box; `exit` when you are done.\n")
    cwd = start
    while True:
        terminal.write(f"{cwd} $ ")
        line = await terminal.line()
        if line is None or line.strip() in {"exit", "logout"}:
            return
        if not line.strip():
            continue
        journal.add_messages(Message(role="user", content=line))
        # the trap runs also after an `exit` in the line, so the directory is always printed
        script = f'cd {shlex.quote(cwd)}; trap \'printf "{_CWD_MARKER}%s" "$PWD"\' EXIT; {line}\n'
        ran = await box.run(Command(argv=("sh", "-c", script), cwd=start))
        output, _, new_cwd = ran.output.rpartition(_CWD_MARKER)
        output, cwd = (output, new_cwd.strip()) if new_cwd.startswith("/") else (ran.output, cwd)
        ended = "" if ran.code == 0 else f"[{ran.stopped or f'exit {ran.code}'}]\n"
        shown = f"{output}{'' if not output or output.endswith(chr(10)) else chr(10)}{ended}"
        journal.write_log(f"$ {line}\n{shown}")
        terminal.write(for_terminal(shown))
