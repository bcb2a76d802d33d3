"""A plain Python function as an agent."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from bakeoff._lib.threads import run_in_thread
from bakeoff.core.errors import AgentError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.task import Message, Task
from bakeoff.core.values import Json
from bakeoff.workers.process import WorkerPool
from bakeoff.workers.wire import Begin, Broke, Left, Solve


class FunctionAgent:
    """Calls `function(task, model, **settings)`; it returns the answer or an Outcome.

    A blocking function is called in a thread.
    """

    def __init__(self, function: Callable[..., object], settings: Mapping[str, Json]) -> None:
        self._function = function
        self._settings = settings

    async def solve(self, task: Task, context: Context) -> Outcome:
        """Let the function solve the task."""
        call = partial(self._function, task, context.model, **self._settings)
        # a coroutine function only makes its coroutine; called here, it costs no thread
        answer = await run_in_thread(call) if is_blocking(self._function) else call()
        if inspect.isawaitable(answer):
            answer = await answer
        return to_outcome(answer)


def to_outcome(answer: object) -> Outcome:
    """Return the outcome of a function, which may return just the answer."""
    if isinstance(answer, Outcome):
        return answer
    if isinstance(answer, str):
        return Outcome(answer=answer, transcript=(Message(role="assistant", content=answer),))
    raise AgentError(f"it returned {type(answer).__name__}; return a str or an Outcome")


def is_blocking(agent: object) -> bool:
    """Whether *agent*, a function or an object that solves, is not async."""
    function = getattr(agent, "solve", agent)
    called = getattr(function, "__call__", None)  # noqa: B004 -- an object may be called too
    return not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called))


class BlockingAgent:
    """Runs each task in a free worker process, or in a new one.

    Of the context it has only the models.
    """

    def __init__(self, program: Sequence[str], begin: Begin) -> None:
        self._name = begin.agent
        self._pool = WorkerPool(program, begin, fault=AgentError)

    async def solve(self, task: Task, context: Context) -> Outcome:
        """Let a process solve the task."""
        order = Solve(
            task=task, rollout=context.rollout, label=context.label, roles=tuple(context.roles)
        )
        on_output = context.journal.write_log if context.journal is not None else None
        reply = await self._pool.work(order, context, on_output=on_output)
        if isinstance(reply, Left):
            return reply.outcome
        what = f"agent {self._name!r}"
        if isinstance(reply, Broke):
            raise AgentError(f"{what}: {reply.message}", traceback=reply.traceback)
        raise AgentError(f"{what}: it graded instead of solving")

    async def close(self) -> None:
        """End every process."""
        await self._pool.close()
