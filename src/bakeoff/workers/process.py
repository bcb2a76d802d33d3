"""Worker processes: one order at a time each, kept for the next one, killed where they are cut off."""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from bakeoff._lib.clock import paused_deadlines
from bakeoff._lib.process import Child, ProcessResult, Program, run_to_completion
from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import LimitReached, NotRun, ProviderError, TrialError
from bakeoff.core.ports import Context
from bakeoff.workers.wire import (
    HEAD,
    Begin,
    Broke,
    FromWorker,
    Grade,
    Graded,
    Left,
    ModelAnswer,
    ModelCall,
    ProcessReady,
    RequestRefused,
    Solve,
    ToWorker,
    encode_message,
    from_worker,
)

OutputListener = Callable[[str], None]
Reply = ProcessReady | Left | Graded | Broke

_PIECE = 65536
_START_S = 300.0


class WorkerPool:
    """Gives each order to a process that is free, or to a new one.

    A new one is started where none has become free within `patience_s`. A process outlives its
    order and takes another. Where an order is cut off it is killed, with all it started; where we
    are killed it ends itself.
    """

    def __init__(
        self,
        program: Sequence[str],
        begin: Begin,
        *,
        fault: type[TrialError],
        patience_s: float = 0.0,
    ) -> None:
        self._program = tuple(program)
        self._begin = begin
        self._fault = fault
        self._patience_s = patience_s
        self._idle: list[PooledProcess] = []
        self._busy = 0
        self._starting = 0
        self._waiting: deque[asyncio.Future[PooledProcess]] = deque()

    def add_scorer(self, name: str) -> None:
        """Let processes that are started from now on import this scorer before they are asked."""
        scorers = dict.fromkeys((*self._begin.scorers, name))
        self._begin = msgspec.structs.replace(self._begin, scorers=tuple(scorers))

    async def warm(self) -> None:
        """Start one process, so that the first order need not wait for it."""
        self._idle.append(await self._started())

    async def work(
        self, order: Solve | Grade, context: Context, *, on_output: OutputListener | None = None
    ) -> Reply:
        """Return what came of *order*; questions go to the models of *context*, *on_output* its prints."""
        process = await self._free()
        self._busy += 1
        try:
            reply = await process.work(order, context, on_output)
        except BaseException:
            self._busy -= 1
            await run_to_completion(process.end())
            raise
        self._busy -= 1
        self._give_back(process)
        if isinstance(reply, Broke) and (refusal := process.refusals.get(reply.number or 0)):
            raise refusal
        return reply

    async def close(self) -> None:
        """End every process."""
        while self._idle:
            await self._idle.pop().end()

    async def _free(self) -> "PooledProcess":
        """Return a process that waits for an order; one that died meanwhile does not."""
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                return process
            await process.end()
        with paused_deadlines():  # how long that takes is the machine's doing
            others = self._busy + self._starting
            if others and self._patience_s and (returned := await self._returned()):
                return returned
            return await self._started()

    async def _returned(self) -> "PooledProcess | None":
        """Return the process that becomes free next, unless that takes too long."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await asyncio.wait([waiter], timeout=self._patience_s)
            while self._starting and not waiter.done():
                await asyncio.wait([waiter], timeout=self._patience_s)
        except BaseException:
            if waiter.done():  # it came just when the wait was cut off
                self._give_back(waiter.result())
            waiter.cancel()
            raise
        if not waiter.done():
            waiter.cancel()
            return None
        process: PooledProcess = waiter.result()
        return process

    def _give_back(self, process: "PooledProcess") -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(process)
                return
        self._idle.append(process)

    async def _started(self) -> "PooledProcess":
        """Return a new process that takes orders."""
        process = PooledProcess.start(self._program, self._fault)
        self._starting += 1
        try:
            async with asyncio.timeout(_START_S):
                await process.begin(self._begin)
        except TimeoutError as error:
            await run_to_completion(process.end())
            why = f"its process was not ready within {_START_S:g} s: does an import hang?"
            raise self._fault(why) from error
        except BaseException:
            await run_to_completion(process.end())
            raise
        finally:
            self._starting -= 1
        return process


class PooledProcess:
    """One process and the line to it; where it ends in the middle of an order, that is a fault."""

    def __init__(self, child: Child, line: socket.socket, fault: type[TrialError]) -> None:
        self._child = child
        self._line = line
        self._fault = fault
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[ProcessResult] = asyncio.ensure_future(child.end())
        self._on_output: OutputListener | None = None
        self._unread = bytearray()
        self.refusals: dict[int, Exception] = {}

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended by itself."""
        return not self._ended.done()

    @classmethod
    def start(cls, program: Sequence[str], fault: type[TrialError]) -> "PooledProcess":
        """Start *program* with the descriptor of its end of the socket."""
        parent_end, child_end = socket.socketpair()
        parent_end.settimeout(0)
        process: PooledProcess | None = None

        def on_output(piece: bytes) -> None:
            if process is not None:
                process.prints(piece)

        with child_end:
            fd = child_end.fileno()
            process = cls(
                Child(
                    Program(
                        argv=(*program, str(fd)),
                        environment=dict(os.environ),
                        cwd=str(Path.cwd()),
                        on_output=on_output,
                        pass_fds=(fd,),
                    )
                ),
                parent_end,
                fault,
            )
        return process

    def prints(self, piece: bytes) -> None:
        """Pass on what it prints while it works on an order."""
        if self._on_output is not None:
            self._on_output(piece.decode(errors="replace"))

    async def begin(self, begin: Begin) -> None:
        """Tell it what it is for, and wait until it takes orders."""
        await self.send(begin)
        await self._receive()

    async def send(self, message: ToWorker) -> None:
        """Send *message*; one that cannot be sent is missed where an answer is waited for."""
        with suppress(OSError):
            await self._loop.sock_sendall(self._line, encode_message(message))

    async def work(
        self, order: Solve | Grade, context: Context, on_output: OutputListener | None
    ) -> Reply:
        """Return what came of *order*; questions are answered meanwhile."""
        self._on_output = on_output
        self.refusals.clear()
        try:
            await self.send(order)
            message = await self._receive()
            if isinstance(message, ModelCall):
                message = await self._answering(message, context)
            if on_output is not None:
                await self._printed()
            return message
        finally:
            self._on_output = None

    async def _answering(self, ask: ModelCall, context: Context) -> Reply:
        """Answer *ask* and those that come while it is answered; return the reply behind them."""
        answering = {asyncio.ensure_future(self._answer(ask, context))}
        hearing = asyncio.ensure_future(self._receive())
        try:
            while True:
                waiting: set[asyncio.Future[Any]] = {hearing, *answering}
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for answered in {a for a in answering if a.done()}:
                    answering.discard(answered)
                    answered.result()  # a limit that ran out ends all this
                if not hearing.done():
                    continue
                message = hearing.result()
                if not isinstance(message, ModelCall):
                    return message
                answering.add(asyncio.ensure_future(self._answer(message, context)))
                hearing = asyncio.ensure_future(self._receive())
        finally:
            await _left_alone({hearing, *answering})

    async def _printed(self) -> None:
        """Hear what it printed before its last word: that came another way."""
        for _ in range(2):
            await asyncio.sleep(0)

    async def _answer(self, ask: ModelCall, context: Context) -> None:
        model = context.model if ask.role is None else context.roles[ask.role]
        try:
            completion = await model.complete(ask.request())
        except (LimitReached, NotRun):
            raise
        except Exception as error:  # noqa: BLE001 -- sent to the worker, which may go on
            self.refusals[ask.number] = error
            await self.send(
                RequestRefused(
                    number=ask.number,
                    message=str(error),
                    transient=isinstance(error, TrialError) and error.transient,
                    billable=isinstance(error, ProviderError) and error.billable,
                    status=error.status if isinstance(error, ProviderError) else None,
                )
            )
        else:
            await self.send(ModelAnswer(number=ask.number, completion=completion))

    async def _receive(self) -> FromWorker:
        """Return the next message; what came with it is kept for the one after."""
        while True:
            if len(self._unread) >= HEAD.size:
                (size,) = HEAD.unpack_from(self._unread)
                end = HEAD.size + size
                if len(self._unread) >= end:
                    data = bytes(self._unread[HEAD.size : end])
                    del self._unread[:end]
                    return from_worker(data)
            try:
                piece = await self._loop.sock_recv(self._line, _PIECE)
            except OSError:
                piece = b""
            if not piece:
                raise self._fault(f"its process ended: {_how(await self._ended)}")
            self._unread += piece

    async def end(self) -> None:
        """Kill it, with all it started."""
        self._child.kill("it is no longer needed")
        await asyncio.wait([self._ended])
        self._line.close()


async def _left_alone(waiting: set[asyncio.Future[Any]]) -> None:
    """Cancel a task that is no longer needed, and await its end."""
    for future in waiting:
        future.cancel()
    await asyncio.wait(waiting)
    for future in waiting:
        if not future.cancelled():
            future.exception()  # retrieved, so that asyncio does not warn


def _how(ended: ProcessResult) -> str:
    last = ended.output.rstrip().rpartition("\n")[2]
    return f"exit code {ended.code}" + (f"; its output: {one_line(last)}" if last else "")
