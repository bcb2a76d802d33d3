"""An endpoint and its clients in simulated time: minutes pass in milliseconds, always alike.

The limiter and the retries are the real ones. A simulation cannot hang: where nothing is scheduled
any more, or after an hour of its time, it raises.
"""

import asyncio
import itertools
import random
import selectors
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from bakeoff.core.candidate import Patience
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.task import Message
from bakeoff.models.client.retry import Overload, RetryableError, RetryPolicy, with_retries
from bakeoff.models.limits.limiter import EndpointLimiter

T = TypeVar("T")
_LONGEST_S = 3600.0
_WAY_S = 0.0005  # from a client to the server, and back


class _Clock(selectors.SelectSelector):
    """Does not wait for its timeout but lets the time pass."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or self.now > _LONGEST_S:
            raise RuntimeError(f"nothing would ever happen again after {self.now:.1f} s")
        self.now += max(timeout, 0.0)
        return []


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = _Clock()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


def simulate(main: Coroutine[Any, Any, T]) -> T:
    """Run *main* in simulated time."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main)


def time_s() -> float:
    """Return the simulated time."""
    return asyncio.get_running_loop().time()


@dataclass
class Endpoint:
    """A server: what it refuses, fails and lets wait, and what it has seen.

    `refused`, `failed`, `reset` and `cut` are shares of requests. More than `per_second` in any
    second and more than `places` at once are refused, more than `workers` at once wait. It refuses
    everything while `shut` says so of the time.
    """

    latency: Callable[[random.Random], float] = lambda _: 0.05
    refused: float = 0.0
    failed: float = 0.0
    reset: float = 0.0
    cut: float = 0.0
    retry_after_s: float | None = None
    status: int = 429
    per_second: int | None = None
    places: int | None = None
    workers: int = 10**9
    shut: Callable[[float], bool] = lambda _: False
    seed: int = 1
    answers: list[float] = field(default_factory=list)
    refusals: list[float] = field(default_factory=list)
    peak: int = 0

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._window: deque[float] = deque()
        self._under_way = 0
        self._at_work = asyncio.Semaphore(self.workers)

    async def answer(self) -> Completion:
        """Answer one request, or raise what a client makes of the answer."""
        await asyncio.sleep(_WAY_S)
        number = self._chance.random()
        if self._refuses(time_s()) or number < self.refused:
            self.refusals.append(time_s())
            await asyncio.sleep(_WAY_S)
            overload = Overload.RATE if self.status == 429 else Overload.LOAD
            raise _fault("refused", retry_after_s=self.retry_after_s, overload=overload)
        self._under_way += 1
        self.peak = max(self.peak, self._under_way)
        try:
            async with self._at_work:
                await asyncio.sleep(self.latency(self._chance))
        finally:
            self._under_way -= 1
        self._maybe_fail(number - self.refused)
        self.answers.append(time_s())
        await asyncio.sleep(_WAY_S)
        return Completion(text="ok")

    def _maybe_fail(self, number: float) -> None:
        for share, billable in ((self.failed, False), (self.reset, True), (self.cut, True)):
            if 0 <= number < share:
                raise _fault("failed", billable=billable)
            number -= share

    def _refuses(self, now: float) -> bool:
        if self.shut(now) or (self.places is not None and self._under_way >= self.places):
            return True
        if self.per_second is None:
            return False
        while self._window and self._window[0] <= now - 1:
            self._window.popleft()
        if len(self._window) >= self.per_second:
            return True
        self._window.append(now)
        return False

    def per_second_in(self, since: float, until: float) -> float:
        """Return how many it answered per second between two moments."""
        return sum(since <= at < until for at in self.answers) / (until - since)


def _fault(text: str, *, billable: bool = False, **rest: Any) -> RetryableError:
    return RetryableError(text, billable=billable, **rest)


@dataclass
class Result:
    """How long it took until all were answered, and what the server and the limiter have seen."""

    took_s: float
    server: Endpoint
    faults: int = 0
    limits: list[tuple[float, float]] = field(default_factory=list)
    limiter: EndpointLimiter | None = None

    @property
    def rate(self) -> float:
        """Answers per second, over all."""
        return len(self.server.answers) / self.took_s


async def _all(count: int, workers: int, once: Callable[[int], Awaitable[None]]) -> float:
    numbers, began = iter(range(count)), time_s()

    async def work() -> None:
        for number in numbers:
            await once(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(work())
    return time_s() - began


def with_limiter(server: Endpoint, count: int, *, workers: int = 64, **policy: Any) -> Result:
    """Ask *count* times by so many workers, through a limiter and with retries."""

    async def main() -> Result:
        limiter = EndpointLimiter(clock=asyncio.get_running_loop().time, patience=Patience())
        result, chance = Result(0.0, server, limiter=limiter), random.Random(server.seed)
        retries = RetryPolicy(**policy)
        limiter.on_headers({})  # the server is there

        async def ask(number: int) -> None:
            request = Request(messages=(Message(role="user", content=str(number)),))
            try:
                await with_retries(
                    server.answer,
                    retries,
                    send=lambda once: limiter.send(once, request),
                    sleep=lambda seconds: limiter.wait_before_retry(seconds, request),
                    jitter=chance.random,
                )
            except Exception:  # noqa: BLE001 -- counted, and the test says how many there may be
                result.faults += 1
            if not result.limits or result.limits[-1][1] != limiter.concurrency_limit:
                result.limits.append((time_s(), limiter.concurrency_limit))

        result.took_s = await _all(count, workers, ask)
        return result

    random.seed(server.seed)  # the circuit breaker's jitter
    return simulate(main())


def minimal(server: Endpoint, count: int, *, workers: int = 64) -> Result:
    """Ask *count* times with retries and nothing else: as fast as such a server can be asked."""

    async def main() -> Result:
        chance = random.Random(server.seed)

        async def ask(_: int) -> None:
            for retries in itertools.count():
                try:
                    await server.answer()
                except RetryableError as error:
                    delay_s = error.retry_after_s or min(0.1 * 2**retries, 10)
                    await asyncio.sleep(delay_s * chance.uniform(1, 1.25))
                else:
                    return

        return Result(await _all(count, workers, ask), server)

    return simulate(main())


def again(server: Endpoint) -> Endpoint:
    """Return the same server as if it had just been started."""
    return replace(server, answers=[], refusals=[], peak=0)
