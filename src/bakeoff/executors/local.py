"""One event loop, N workers that pull."""

import asyncio
from collections.abc import Iterable

from bakeoff.core.ports import Job, Work
from bakeoff.core.stop import Stop

_HEED_S = 0.1  # how late a pausing worker may notice that it should stop


class LocalExecutor:
    """Runs jobs in this event loop, *parallel* at once; memory does not grow with their number."""

    def __init__(self, parallel: int, *, pause_s: float = 0.0) -> None:
        self._parallel = parallel
        self._pause_s = pause_s

    async def run(self, jobs: Iterable[Job], work: Work, stop: Stop) -> None:
        """Work through *jobs*; once *stop* is requested, finish what is under way and return."""
        source = iter(jobs)

        async def worker() -> None:
            pause_s = 0.0  # between jobs: not before the first, not after the last
            # shared iterator: a worker that is free takes what is next
            for job in source:
                if pause_s:
                    await _pause(pause_s, stop)
                if stop.requested:
                    return
                await work(job)
                pause_s = self._pause_s

        async with asyncio.TaskGroup() as group:
            for _ in range(self._parallel):
                group.create_task(worker())


async def _pause(seconds: float, stop: Stop) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not stop.requested and (left := end - loop.time()) > 0:  # noqa: ASYNC110 -- any thread may set it
        await asyncio.sleep(min(left, _HEED_S))
