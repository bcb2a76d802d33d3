"""An agent that blocks, in processes of its own: the others go on, and a limit can end it."""

import asyncio
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bakeoff._lib.process import Child, Ended, Program, uncancelled
from bakeoff._lib.untrusted import one_line
from bakeoff.agents.blocking_wire import (
    HEAD,
    Answer,
    Ask,
    Begin,
    Broke,
    FromAgent,
    Left,
    Refusal,
    Solve,
    ToAgent,
    from_agent,
    packed,
)
from bakeoff.core.errors import AgentError, BudgetReached, LimitReached, ProviderError, TrialError
from bakeoff.core.journal import Journal
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Kit
from bakeoff.core.task import Task


class BlockingAgent:
    """Gives each task to a process that is free, or to a new one.

    The process outlives its task and takes another one. Where an attempt is cut off it is killed,
    with all it started; where we are killed it ends itself. It has the models of the kit and
    nothing else of it.
    """

    def __init__(self, program: Sequence[str], begin: Begin) -> None:
        self._program = tuple(program)
        self._begin = begin
        self._idle: list[_Process] = []

    async def solve(self, task: Task, kit: Kit) -> Outcome:
        """Let a process solve the task."""
        process = await self._free()
        try:
            said = await process.solve(task, kit)
        except BaseException:
            await uncancelled(process.end())
            raise
        self._idle.append(process)
        if isinstance(said, Left):
            return said.outcome
        raise process.refusals.get(said.number or 0) or AgentError(
            f"agent {self._begin.agent!r}: {said.message}"
        )

    async def _free(self) -> "_Process":
        """Return a process that waits for a task; one that died meanwhile does not."""
        while self._idle:
            process = self._idle.pop()
            if process.lives:
                return process
            await process.end()
        process = _Process.start(self._program)
        await process.tell(self._begin)
        return process

    async def close(self) -> None:
        """End every process."""
        while self._idle:
            await self._idle.pop().end()


class _Process:
    """One process with one agent in it, and the line to it."""

    def __init__(self, child: Child, line: socket.socket) -> None:
        self._child = child
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[Ended] = asyncio.ensure_future(child.end())
        self._journal: Journal | None = None
        self.refusals: dict[int, Exception] = {}

    @property
    def lives(self) -> bool:
        """Whether it has not ended by itself."""
        return not self._ended.done()

    @classmethod
    def start(cls, program: Sequence[str]) -> "_Process":
        """Start *program*, which is told where its end of the line is."""
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        process: _Process | None = None

        def hears(piece: bytes) -> None:
            if process is not None:
                process.prints(piece)

        with theirs:
            fd = theirs.fileno()
            process = cls(
                Child(
                    Program(
                        argv=(*program, str(fd)),
                        environment=dict(os.environ),
                        cwd=str(Path.cwd()),
                        hears=hears,
                        passing=(fd,),
                    )
                ),
                ours,
            )
        return process

    def prints(self, piece: bytes) -> None:
        """Write what it prints into the journal of its task."""
        if self._journal is not None:
            self._journal.print(piece.decode(errors="replace"))

    async def tell(self, message: ToAgent) -> None:
        """Send *message*; one that cannot be sent is missed where an answer is waited for."""
        with suppress(OSError):
            await self._loop.sock_sendall(self._line, packed(message))

    async def solve(self, task: Task, kit: Kit) -> Left | Broke:
        """Return what is left of *task*; questions are answered meanwhile, several at a time."""
        self._journal = kit.journal
        self.refusals.clear()
        await self.tell(
            Solve(task=task, rollout=kit.rollout, label=kit.label, roles=tuple(kit.roles))
        )
        hearing = asyncio.ensure_future(self._hear())
        answering: set[asyncio.Future[None]] = set()
        try:
            while True:
                waiting: set[asyncio.Future[Any]] = {hearing, *answering}
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for answered in {a for a in answering if a.done()}:
                    answering.discard(answered)
                    answered.result()  # a limit that ran out ends all this
                if not hearing.done():
                    continue
                said = hearing.result()
                if not isinstance(said, Ask):
                    await self._printed()
                    return said
                answering.add(asyncio.ensure_future(self._answer(said, kit)))
                hearing = asyncio.ensure_future(self._hear())
        finally:
            self._journal = None
            await _left_alone({hearing, *answering})

    async def _printed(self) -> None:
        """Hear what it printed before its last word: that came another way."""
        for _ in range(2):
            await asyncio.sleep(0)

    async def _answer(self, ask: Ask, kit: Kit) -> None:
        asked = kit.model if ask.role is None else kit.roles[ask.role]
        try:
            completion = await asked.complete(ask.request())
        except (LimitReached, BudgetReached):
            raise
        except Exception as error:  # noqa: BLE001 -- the agent is told, and may go on without
            self.refusals[ask.number] = error
            await self.tell(
                Refusal(
                    number=ask.number,
                    message=str(error),
                    transient=isinstance(error, TrialError) and error.transient,
                    billable=isinstance(error, ProviderError) and error.billable,
                )
            )
        else:
            await self.tell(Answer(number=ask.number, completion=completion))

    async def _hear(self) -> FromAgent:
        (size,) = HEAD.unpack(await self._read(HEAD.size))
        return from_agent(await self._read(size))

    async def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = await self._loop.sock_recv(self._line, size - len(data))
            except OSError:
                piece = b""
            if not piece:
                raise AgentError(f"its process ended: {_how(await self._ended)}")
            data += piece
        return bytes(data)

    async def end(self) -> None:
        """Kill it, with all it started."""
        self._child.kill("nobody needs it any more")
        await asyncio.wait([self._ended])
        self._line.close()


async def _left_alone(waiting: set[asyncio.Future[Any]]) -> None:
    """Cancel what nobody waits for any more, and see its end."""
    for future in waiting:
        future.cancel()
    await asyncio.wait(waiting)
    for future in waiting:
        if not future.cancelled():
            future.exception()  # seen, so that nobody is warned of it


def _how(ended: Ended) -> str:
    last = ended.output.rstrip().rpartition("\n")[2]
    return f"exit code {ended.code}" + (f"; it said: {one_line(last)}" if last else "")
