"""A Python session in the box that lasts as long as the trial.

In some boxes nothing outlives a command. So the session is one long command, a small driver; each cell
is handed to it as a file, written by a command of its own, and what came of it is read from what the
driver prints. That works in every kind of box, and nothing on the host reads what an agent wrote.
"""

import asyncio
import json
import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path

from bakeoff._lib.noun import noun
from bakeoff._lib.untrusted import well_formed
from bakeoff.core.boxes import Box, Command, Ran
from bakeoff.core.errors import SandboxError

_DRIVER = Path(__file__).with_name("code_session_driver.py")
_GRACE_S = 5.0  # for the driver to interrupt a cell by itself, and to tell so
_WRITE_S = 60.0
_KEPT = 100_000  # of what the driver prints: it is heard as it comes
_MOST_LINE = 4_000_000
_NO_PYTHON = (126, 127)


@noun
class Cell:
    """What came of a piece of code; `error` is None where it ran to its end."""

    output: str
    error: str | None = None

    def shown(self) -> str:
        """Return it as a model is told."""
        parts = [part.rstrip() for part in (self.output, self.error or "") if part.strip()]
        return well_formed("\n".join(parts)) or "(it printed nothing)"


@noun
class SessionSettings:
    """How long a cell may take, how much of its output is told, and which Python runs it."""

    cell_s: float = 120.0
    most_output: int = 12_000
    python: str = "python3"


class CodeSession:
    """Runs cells in *box*, one after another, in *start*; variables last from one to the next."""

    def __init__(self, box: Box, start: str, settings: SessionSettings) -> None:
        self._box = box
        self._start = start
        self._settings = settings
        self._driver: _Driver | None = None
        self.cells = 0

    async def run(self, code: str) -> Cell:
        """Run one cell. Where the session dies of it, the next one begins with a new session."""
        self.cells += 1
        if self._driver is None:
            self._driver = _Driver(self._box, self._start, self._settings, first=self.cells == 1)
        driver = self._driver
        try:
            return await driver.run(code)
        except _SessionEndedError as error:
            self._driver = None
            await driver.close()
            return Cell(output=error.output, error=f"{error}; all variables are gone")

    async def close(self) -> None:
        """End the session with all that it started."""
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
        self._word = secrets.token_hex(16)
        self._folder = f"~/.bakeoff-session/{secrets.token_hex(6)}"
        self._number = 0
        self._heard = bytearray()
        self._cells: asyncio.Queue[Mapping[str, object]] = asyncio.Queue()
        self._running = asyncio.ensure_future(self._box.run(self._command()))

    def _command(self) -> Command:
        told = json.dumps(
            {"cell_s": self._settings.cell_s, "most_output": self._settings.most_output}
        )
        source = _DRIVER.read_text(encoding="utf-8")
        words = ("-u", "-c", source, self._word, self._folder, told)
        return Command(
            argv=(self._settings.python, *words),
            cwd=self._start,
            hears=self._hear,
            most_output=_KEPT,
        )

    def _hear(self, piece: bytes) -> None:
        self._heard += piece
        *lines, rest = bytes(self._heard).split(b"\n")
        self._heard = bytearray(rest[-_MOST_LINE:])
        for line in lines:
            _, word, told = line.partition(self._word.encode())
            if word:
                try:
                    self._cells.put_nowait(json.loads(told))
                except ValueError:
                    continue  # a cell wrote into what the driver prints: its own loss

    async def run(self, code: str) -> Cell:
        self._number += 1
        await self._hand_over(code)
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

    async def _hand_over(self, code: str) -> None:
        """Write the cell where the driver looks for it, whole or not at all."""
        place = shlex.quote(self._folder.removeprefix("~/"))
        script = (
            f'cd "$HOME" && mkdir -p {place} && cd {place} '
            f"&& cat > part && mv part {self._number}.py"
        )
        written = Command(
            argv=("sh", "-c", script),
            stdin=code.encode("utf-8", "replace"),
            time_s=_WRITE_S,
        )
        ran = await self._box.run(written)
        if ran.code != 0:
            said = ran.stopped or ran.output.strip() or f"exit {ran.code}"
            raise _SessionEndedError(f"the session cannot be reached: {said}")

    def _ended(self, ran: Ran) -> _SessionEndedError:
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


def _cell(told: Mapping[str, object]) -> Cell:
    output, error = told.get("output"), told.get("error")
    return Cell(
        output=output if isinstance(output, str) else "",
        error=error if isinstance(error, str) else None,
    )
