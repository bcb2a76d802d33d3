"""A process with a person's own agent or scorers in it: `python -m bakeoff.worker FD`, started by a run."""

import asyncio
import itertools
import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from inspect import isawaitable
from pathlib import Path
from queue import SimpleQueue

from bakeoff import registry
from bakeoff._lib.tracebacks import traceback_text
from bakeoff.agents.function import to_outcome
from bakeoff.core.errors import ProviderError, ScorerError
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.task import Task
from bakeoff.scorers.function import FunctionScorer
from bakeoff.workers.wire import (
    Begin,
    Broke,
    FromWorker,
    Grade,
    Graded,
    Left,
    ModelAnswer,
    ModelCall,
    ProcessReady,
    Solve,
    encode_message,
    read_message,
    to_worker,
)

Call = Callable[[Task, Context], object]


class _RefusedError(ProviderError):
    """A question got no answer; the run knows why by its number."""

    number = 0


class _RunConnection:
    """The connection to the run: tasks come in, model requests and outcomes go out.

    When the run is gone, so is this process with all it started, whatever it is doing.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._numbers = itertools.count(1)
        self._pending: dict[int, Future[Completion]] = {}
        self._sending = threading.Lock()
        self.orders: SimpleQueue[Begin | Solve | Grade] = SimpleQueue()
        threading.Thread(target=self._listen, daemon=True, name="line").start()

    def send(self, message: FromWorker) -> None:
        with self._sending:
            self._socket.sendall(encode_message(message))

    def ask(self, request: Request, role: str | None) -> Future[Completion]:
        number = next(self._numbers)
        answer = self._pending[number] = Future()
        self.send(ModelCall.of(request, number, role))
        return answer

    def _listen(self) -> None:
        try:
            with self._socket.makefile("rb") as wire:
                while (data := read_message(wire)) is not None:
                    self._take(data)
        finally:
            os.killpg(os.getpgid(0), signal.SIGKILL)

    def _take(self, data: bytes) -> None:
        message = to_worker(data)
        if isinstance(message, Begin | Solve | Grade):
            self.orders.put(message)
            return
        pending = self._pending.pop(message.number)
        if not pending.set_running_or_notify_cancel():
            return  # the agent did not wait for it
        if isinstance(message, ModelAnswer):
            pending.set_result(message.completion)
            return
        refused = _RefusedError(
            message.message,
            transient=message.transient,
            billable=message.billable,
            status=message.status,
        )
        refused.number = message.number
        pending.set_exception(refused)


class _RemoteModel:
    """A model on the other side of the line; several threads or tasks may ask at once."""

    def __init__(self, connection: _RunConnection, role: str | None = None) -> None:
        self._connection = connection
        self._role = role

    async def complete(self, request: Request) -> Completion:
        return await asyncio.wrap_future(self._connection.ask(request, self._role))


def main() -> None:
    """Carry out one order after another until the run is gone."""
    connection = _RunConnection(int(sys.argv[1]))
    begin = connection.orders.get()
    assert isinstance(begin, Begin)  # noqa: S101 -- the first word of a run
    sys.path[:] = begin.path
    folders = [Path(folder) for folder in begin.folders]
    call = None if begin.agent is None else _call(begin, begin.agent, folders)
    graders = _Graders(folders)
    for scorer in begin.scorers:
        registry.find(
            "scorers", scorer, folders=folders
        )  # imported now, not within a trial's time limit
    connection.send(ProcessReady())
    while True:
        order = connection.orders.get()
        if isinstance(order, Solve) and call is not None:
            connection.send(_solved(call, order, connection))
        elif isinstance(order, Grade):
            connection.send(graders.graded(order, connection))


class _Graders:
    """The scorers of this process, each built once, and the loop in which async ones run."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._built: dict[tuple[str, str], object] = {}
        self._runner = asyncio.Runner()

    def graded(self, order: Grade, connection: _RunConnection) -> Graded | Broke:
        """Grade as *order* says; an exception is sent to the run."""
        try:
            return Graded(self._score(order, connection))
        except Exception as error:  # noqa: BLE001 -- sent to the run
            if isinstance(error, ScorerError):  # it says what is wrong in full
                return Broke(message=str(error))
            return _broke(error)

    def _score(self, order: Grade, connection: _RunConnection) -> Score:
        scorer = self._scorer(order)
        if order.given is not None and isinstance(scorer, FunctionScorer):
            return scorer.to_score(self._done(scorer.call(order.given)))
        context = Context(
            model=_RemoteModel(connection),
            roles={role: _RemoteModel(connection, role) for role in order.roles},
            rollout=order.rollout,
        )
        verdict = self._done(scorer.score(order.task, order.outcome, context))  # type: ignore[attr-defined]
        if not isinstance(verdict, Score):
            raise ScorerError(f"it gave {type(verdict).__name__}; give a Score")
        return verdict

    def _done(self, result: object) -> object:
        """Return *result*, awaited where that is needed."""
        return self._runner.run(_awaited(result)) if isawaitable(result) else result

    def _scorer(self, order: Grade) -> object:
        key = order.scorer, json.dumps(order.settings, sort_keys=True)
        if key not in self._built:
            part = registry.find("scorers", order.scorer, folders=self._folders)
            built = registry.build(part, order.settings, what=f"scorer {order.scorer!r}")
            if not hasattr(built, "score"):
                assert callable(built)  # noqa: S101 -- the run has looked
                built = FunctionScorer(built, settings=order.settings)
            self._built[key] = built
        return self._built[key]


def _call(begin: Begin, agent: str, folders: Sequence[Path]) -> Call:
    part = registry.find("agents", agent, folders=folders)
    built = registry.build(part, begin.settings, what=f"agent {agent!r}")
    if hasattr(built, "solve"):
        solve: Call = built.solve
        return solve
    assert callable(built)  # noqa: S101 -- the run has looked
    return lambda task, context: built(task, context.model, **begin.settings)


def _solved(call: Call, order: Solve, connection: _RunConnection) -> Left | Broke:
    context = Context(
        model=_RemoteModel(connection),
        roles={role: _RemoteModel(connection, role) for role in order.roles},
        rollout=order.rollout,
        label=order.label,
    )
    try:
        answer = call(order.task, context)
        return Left(to_outcome(asyncio.run(_awaited(answer)) if isawaitable(answer) else answer))
    except Exception as error:  # noqa: BLE001 -- sent to the run
        traceback.print_exc()
        return _broke(error)


def _broke(error: Exception) -> Broke:
    message = f"{type(error).__name__}: {error}"
    if isinstance(error, _RefusedError):
        return Broke(message=message, number=error.number)
    return Broke(message=message, traceback=traceback_text(error))


async def _awaited(answer: Awaitable[object]) -> object:
    return await answer


if __name__ == "__main__":
    main()
