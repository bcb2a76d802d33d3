"""An agent that blocks, in processes of its own: the others go on, and a limit can end it."""

from collections.abc import Sequence

from bakeoff.core.errors import AgentError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.task import Task
from bakeoff.workers.process import WorkerPool
from bakeoff.workers.wire import Begin, Broke, Left, Solve


class BlockingAgent:
    """Gives each task to a process that is free, or to a new one.

    It has the models of the kit and nothing else of it.
    """

    def __init__(self, program: Sequence[str], begin: Begin) -> None:
        self._name = begin.agent
        self._pool = WorkerPool(program, begin, fault=AgentError)

    async def solve(self, task: Task, kit: Context) -> Outcome:
        """Let a process solve the task."""
        order = Solve(task=task, rollout=kit.rollout, label=kit.label, roles=tuple(kit.roles))
        hears = kit.journal.print if kit.journal is not None else None
        reply = await self._pool.work(order, kit, hears=hears)
        if isinstance(reply, Left):
            return reply.outcome
        what = f"agent {self._name!r}"
        if isinstance(reply, Broke):
            raise AgentError(f"{what}: {reply.message}", traceback=reply.traceback)
        raise AgentError(f"{what}: it graded instead of solving")

    async def close(self) -> None:
        """End every process."""
        await self._pool.close()
