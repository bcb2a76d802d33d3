"""A reference-counted async cache."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from bakeoff._lib.process import run_to_completion

T = TypeVar("T")


class RefCache(Generic[T]):
    """Creates a value on first use and shares it; keeps at most *max_idle* values that nobody uses."""

    def __init__(self, *, max_idle: int, discard: Callable[[T], Awaitable[None]]) -> None:
        self._max_idle = max_idle
        self._discard = discard
        self._entries: OrderedDict[str, asyncio.Task[T]] = OrderedDict()
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def acquire(self, key: str, make: Callable[[], Awaitable[T]]) -> AsyncIterator[T]:
        """Hold the value for *key*; the first caller creates it, and the others wait."""
        task = self._entries.get(key)
        if task is None:
            task = self._entries[key] = asyncio.ensure_future(_await(make))
        self._entries.move_to_end(key)
        self._users[key] = self._users.get(key, 0) + 1
        try:
            # a caller that is cancelled while it waits must not cancel the others
            yield await asyncio.shield(task)
        finally:
            self._users[key] -= 1
            await run_to_completion(self._evict())

    async def close(self) -> None:
        """Discard every value."""
        self._max_idle = 0
        for task in self._entries.values():
            task.cancel()
        await self._evict()

    async def _evict(self) -> None:
        """Discard failed values, and unused ones beyond the idle limit."""
        idle = [key for key in self._entries if not self._users.get(key)]
        failed = [key for key in idle if self._entries[key].done() and _failed(self._entries[key])]
        unused = [key for key in idle if key not in failed]
        for key in (*failed, *unused[: max(0, len(unused) - self._max_idle)]):
            if self._users.get(key) or key not in self._entries:
                continue  # taken or discarded while another one was discarded
            task = self._entries.pop(key)
            self._users.pop(key, None)
            task.cancel()
            await asyncio.wait({task})
            if not _failed(task):
                await self._discard(task.result())


async def _await(make: Callable[[], Awaitable[T]]) -> T:
    return await make()


def _failed(task: "asyncio.Task[T]") -> bool:
    return task.cancelled() or task.exception() is not None
