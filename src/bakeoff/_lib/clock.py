"""The time, asked for in one place, and deadlines that share one timer per event loop."""

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from time import perf_counter, time
from types import TracebackType
from weakref import WeakKeyDictionary

monotonic = perf_counter
"""Seconds for durations; never goes back."""

timestamp = time
"""Seconds since 1970, for a moment that is stored."""


def now() -> datetime:
    """Return the current moment, aware and in UTC."""
    return datetime.now(UTC)


def stamp(moment: datetime) -> str:
    """Return *moment* as text that sorts by time and is safe in a file name."""
    return moment.strftime("%Y%m%d-%H%M%S")


class _DeadlineTimer:
    """The open deadlines of the running loop, which it does not keep alive."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = 0.0
        self.open: set[until] = set()

    def add(self, deadline: "until", when: float) -> None:
        self.open.add(deadline)
        if self._timer is None or when < self._fires_at:
            self._set(when)

    def _set(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._fire)
        self._fires_at = when  # uvloop's handle of a moment that has passed does not know it

    def _fire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for deadline in [d for d in self.open if d.when <= now]:
            self.open.discard(deadline)
            deadline.expire()
        if self.open and (when := min(d.when for d in self.open)) < math.inf:
            self._set(when)


_timers: WeakKeyDictionary[asyncio.AbstractEventLoop, _DeadlineTimer] = WeakKeyDictionary()


def _timer_of(loop: asyncio.AbstractEventLoop) -> _DeadlineTimer:
    timer = _timers.get(loop)
    if timer is None:
        timer = _timers[loop] = _DeadlineTimer()
    return timer


class until:  # noqa: N801 -- reads as a word at its place: `with until(when)`
    """Raises TimeoutError where the block is not done by *when*, a moment of the loop's clock."""

    __slots__ = ("_before", "_expired", "_left_s", "_task", "_timer", "when")

    def __init__(self, when: float) -> None:
        self.when = when
        self._expired = False

    def __enter__(self) -> "until":
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a task that it can cut short")
        self._task, self._before = task, task.cancelling()
        self._timer = timer = _timer_of(asyncio.get_running_loop())
        timer.add(self, self.when)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._expired:
            self._timer.open.discard(self)
        elif self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def belongs_to(self, task: "asyncio.Task[object] | None") -> bool:
        """Whether it would cut *task* short."""
        return self._task is task

    def pause(self) -> None:
        """Stop the clock until `resume`."""
        self._left_s = self.when - asyncio.get_running_loop().time()
        self.when = math.inf

    def resume(self) -> None:
        """Go on with the time that was left; called as often as `backoff_delay`."""
        self.when = asyncio.get_running_loop().time() + self._left_s
        if self in self._timer.open:
            self._timer.add(self, self.when)

    def expire(self) -> None:
        """Cancel the block; called by the timer."""
        self._expired = True
        self._task.cancel()


_UNLIMITED: nullcontext[None] = nullcontext()


def within(seconds: float | None) -> "until | nullcontext[None]":
    """Return a deadline *seconds* from now; None is no deadline."""
    if seconds is None:
        return _UNLIMITED
    return until(asyncio.get_running_loop().time() + seconds)


@contextmanager
def paused_deadlines() -> Iterator[None]:
    """Pause the deadlines of this task within the block: it waits for something out of its control."""
    timer, task = _timers.get(asyncio.get_running_loop()), asyncio.current_task()
    standing = [d for d in timer.open if d.belongs_to(task)] if timer is not None else []
    for deadline in standing:
        deadline.pause()
    try:
        yield
    finally:
        for deadline in standing:
            deadline.resume()
