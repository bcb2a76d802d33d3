"""One event loop, N workers that pull.

A job that waits works on nothing, so another may run in its place. While it waits for its next try,
or for the disk, that is any other; while it waits for its turn at its endpoint, one of another lane:
more of its own would only join the queue. A free worker takes from the lane with the fewest at work.
So one endpoint that is slow, limited or down does not hold up the others. At most twice *parallel*
jobs of a lane have begun.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from bakeoff.core.outcome import Wait
from bakeoff.core.ports import Job, Work
from bakeoff.core.stop import Stop

_HEED_S = 0.1  # how late a pausing worker may notice that it should stop


class _Lane:
    """The jobs of one endpoint: how many have begun, and how many of them wait."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.jobs: Iterator[Job] = iter(jobs)
        self.exhausted = False
        self.begun = 0
        self.waiting = 0  # for anything
        self.replaceable = 0  # of these, not for their endpoint

    @property
    def at_work(self) -> int:
        return self.begun - self.waiting

    def may_begin(self, parallel: int) -> bool:
        return (
            not self.exhausted
            and self.begun - self.replaceable < parallel
            and self.begun < 2 * parallel
        )

    def count(self, wait: Wait | None, change: int) -> None:
        """Count one job more, or one fewer, that waits."""
        if wait is not None:
            self.waiting += change
            self.replaceable += 0 if wait is Wait.ENDPOINT else change


class LocalExecutor:
    """Runs jobs in this event loop, *parallel* at once; memory does not grow with their number."""

    def __init__(self, parallel: int, *, pause_s: float = 0.0) -> None:
        self._parallel = parallel
        self._pause_s = pause_s

    async def run(
        self,
        jobs: Iterable[Job],
        work: Work,
        stop: Stop,
        *,
        other_lanes: Sequence[Iterable[Job]] = (),
    ) -> None:
        """Work through *jobs*; once *stop* is requested, finish what is under way and return.

        *other_lanes* are jobs of other endpoints: none of them holds up another.
        """
        lanes = [_Lane(jobs), *map(_Lane, other_lanes)]
        async with asyncio.TaskGroup() as group:
            workers = _Workers(lanes, self._parallel, group, stop)
            for _ in range(self._parallel):
                group.create_task(workers.pull(work, self._pause_s))


class _Workers:
    """Workers that take jobs from lanes; one more while a job waits whose place may be taken."""

    def __init__(
        self, lanes: Sequence[_Lane], parallel: int, group: asyncio.TaskGroup, stop: Stop
    ) -> None:
        self._lanes = lanes
        self._parallel = parallel
        self._group = group
        self._stop = stop

    async def pull(self, work: Work, pause_s: float) -> None:
        """Take one job after another, while there is a place."""
        paused_s = 0.0  # between jobs: not before the first, not after the last
        while (lane := self._next_lane()) is not None:
            job = next(lane.jobs, None)
            if job is None:
                lane.exhausted = True
                continue
            lane.begun += 1
            waiting: Wait | None = None

            def on_wait(wait: Wait | None, lane: _Lane = lane) -> None:
                nonlocal waiting
                lane.count(waiting, -1)
                lane.count(wait, 1)
                waiting = wait
                if wait is not None and not self._stop.requested and self._next_lane() is not None:
                    self._group.create_task(self.pull(work, pause_s))

            try:
                if paused_s:
                    await _pause(paused_s, self._stop)
                if self._stop.requested:
                    return
                # strictly one after another means just that, also while one waits
                lends = self._parallel > 1 and not pause_s
                await work(Job(job.trial, job.attempt, on_wait) if lends else job)
            finally:
                lane.count(waiting, -1)
                waiting = None
                lane.begun -= 1
            paused_s = pause_s

    def _next_lane(self) -> _Lane | None:
        """Return the lane to take the next job from; None if there is no place or no job."""
        if len(self._lanes) == 1:
            lane = self._lanes[0]
            ready = lane.may_begin(self._parallel) and lane.at_work < self._parallel
            return lane if ready else None
        if sum(lane.at_work for lane in self._lanes) >= self._parallel:
            return None
        ready_lanes = [lane for lane in self._lanes if lane.may_begin(self._parallel)]
        return min(ready_lanes, key=lambda lane: lane.at_work, default=None)


async def _pause(seconds: float, stop: Stop) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not stop.requested and (left := end - loop.time()) > 0:  # noqa: ASYNC110 -- any thread may set it
        await asyncio.sleep(min(left, _HEED_S))
