"""Things that are dear to make and shared while they are needed: made once, kept for a while."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from bakeoff._lib.process import uncancelled

T = TypeVar("T")


class Shelf(Generic[T]):
    """Makes a thing when somebody first wants it; at most *spare* that nobody wants are kept."""

    def __init__(self, *, spare: int, discard: Callable[[T], Awaitable[None]]) -> None:
        self._spare = spare
        self._discard = discard
        self._made: OrderedDict[str, asyncio.Task[T]] = OrderedDict()
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def lend(self, key: str, make: Callable[[], Awaitable[T]]) -> AsyncIterator[T]:
        """Lend the thing called *key*; whoever comes first makes it, and the others wait."""
        task = self._made.get(key)
        if task is None:
            task = self._made[key] = asyncio.ensure_future(_made(make))
        self._made.move_to_end(key)
        self._users[key] = self._users.get(key, 0) + 1
        try:
            # one who is cancelled while waiting must not spoil it for the others
            yield await asyncio.shield(task)
        finally:
            self._users[key] -= 1
            await uncancelled(self._tidy())

    async def close(self) -> None:
        """Give everything away."""
        self._spare = 0
        for task in self._made.values():
            task.cancel()
        await self._tidy()

    async def _tidy(self) -> None:
        """Discard what could not be made, and what is neither wanted nor among the spare."""
        idle = [key for key in self._made if not self._users.get(key)]
        failed = [key for key in idle if self._made[key].done() and _failed(self._made[key])]
        spare = [key for key in idle if key not in failed]
        for key in (*failed, *spare[: max(0, len(spare) - self._spare)]):
            if self._users.get(key) or key not in self._made:
                continue  # while another was discarded, somebody took it, or threw it away
            task = self._made.pop(key)
            self._users.pop(key, None)
            task.cancel()
            await asyncio.wait({task})
            if not _failed(task):
                await self._discard(task.result())


async def _made(make: Callable[[], Awaitable[T]]) -> T:
    return await make()


def _failed(task: "asyncio.Task[T]") -> bool:
    return task.cancelled() or task.exception() is not None
