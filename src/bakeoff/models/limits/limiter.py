"""Limiters: the queue, semaphore and rate limit that a request passes before it is sent."""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from bakeoff._lib.clock import monotonic
from bakeoff.core.candidate import EndpointLimits, EndpointState, EndpointWait, Patience
from bakeoff.core.errors import NotRun, ProviderError
from bakeoff.core.outcome import Completion, Wait
from bakeoff.models.client.retry import RetryableError
from bakeoff.models.limits.concurrency import AdaptiveConcurrency
from bakeoff.models.limits.outage import CircuitBreaker
from bakeoff.models.limits.queued import QueuedRequest
from bakeoff.models.limits.rate import RateLimit, RequestSpacing, TokenEstimate
from bakeoff.models.limits.rate_limit_headers import RateLimitHeaders, parse_rate_limit_headers
from bakeoff.models.limits.refusals import Refusals, SentRequest, Traffic

WAITING = "a wait for its turn at the endpoint"
"""What a request's `on_retry` is called with while it waits; an empty text when it is sent."""

STOPPING = "the run is stopping"

_LONGEST_CAP_S = 60.0

Try = Callable[[], Awaitable[Completion]]
Slot = asyncio.Future[tuple[int, float]]  # the number of a request, and when it was admitted


class Limiter(Protocol):
    """Sends one try of a request when its turn comes, and adapts to how it went."""

    async def send(self, once: Try, request: QueuedRequest) -> Completion:
        """Wait for a slot, then send."""
        ...

    async def wait_before_retry(self, seconds: float, request: QueuedRequest) -> None:
        """Wait before another try of a request; NotRun if it must not be sent any more."""

    def on_headers(self, headers: Mapping[str, str]) -> None:
        """Adapt to the rate limit headers of a response."""

    @property
    def given_up(self) -> str | None:
        """Why nothing is sent there any more; None while it is."""


class NoLimiter:
    """Sends everything at once."""

    async def send(
        self,
        once: Try,
        request: QueuedRequest,  # noqa: ARG002 -- nothing about it matters here
    ) -> Completion:
        """Send."""
        return await once()

    async def wait_before_retry(self, seconds: float, request: QueuedRequest) -> None:  # noqa: ARG002 -- as above
        """Wait."""
        await asyncio.sleep(seconds)

    def on_headers(self, headers: Mapping[str, str]) -> None:
        """Do nothing."""

    @property
    def given_up(self) -> None:
        """Never."""
        return None


UNLIMITED = NoLimiter()


class EndpointLimiter:
    """The queue and semaphore of one endpoint; belongs to the event loop that uses it.

    First come, first served. A request is sent when there is a slot (`max_concurrency`, or the
    adaptive limit) and the rate limit allows it (`rpm`, `tpm`, learned from refusals and headers).
    While the endpoint is down, one request at a time is sent as a probe, which does not count as a
    try. After a stop only requests of attempts that have begun are sent; once the endpoint is given
    up, none. One that does not adapt keeps to its fixed limits.
    """

    def __init__(
        self,
        limits: EndpointLimits | None = None,
        *,
        name: str = "the endpoint",
        adapts: bool = True,
        patience: Patience | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.name = name
        self._adapts = adapts
        self._clock = clock
        self._patience = patience or Patience()
        self._breaker = CircuitBreaker(self._patience)
        self._number = 0
        self._closed = False  # whether some requests are rejected: stopping, or given up
        self._stopping = False
        self.given_up: str | None = None
        self.on_given_up: Callable[[str], None] | None = None
        self._backing_off: set[tuple[asyncio.Future[None], bool]] = set()
        self._estimate = TokenEstimate()
        self._in_flight = 0
        self._first_in_flight: set[int] = set()  # until something was answered
        self._queue: deque[tuple[Slot, float, QueuedRequest]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._rate_limit = RateLimit()
        self._refusals = Refusals(self._breaker, self._rate_limit)
        self._apply(limits or EndpointLimits())

    def restrict(self, limits: EndpointLimits) -> None:
        """Apply *limits* in addition."""
        self._apply(self._limits.stricter(limits))

    def _apply(self, limits: EndpointLimits) -> None:
        most = limits.max_concurrency
        adaptive = limits.adaptive and self._adapts
        self._limits = limits
        self._most = math.inf if most is None else most
        self._adaptive = AdaptiveConcurrency(most=most) if adaptive else None
        self._refusals.adaptive = self._adaptive
        self._requests = RequestSpacing(limits.rpm / 60) if limits.rpm else None
        self._tokens = RequestSpacing(limits.tpm / 60 if limits.tpm else None)

    @property
    def in_flight(self) -> int:
        """How many requests are in flight."""
        return self._in_flight

    @property
    def concurrency_limit(self) -> float:
        """How many requests may be in flight now."""
        return self._most if self._adaptive is None else self._adaptive.limit

    @property
    def rate(self) -> float | None:
        """Requests per second learned from refusals; None before the first."""
        return self._rate_limit.rate

    @property
    def spaced(self) -> bool:
        """Whether requests are sent at a rate now."""
        fixed, learned = self._requests is not None, self._rate_limit.rate is not None
        return fixed or learned or self._tokens.limited

    async def send(self, once: Try, request: QueuedRequest) -> Completion:
        """Wait for a slot, send, and adapt to the result."""
        if self._closed:
            self._check_open(begun=request.begun)
        tokens = self._estimate.of(request) if self._tokens.limited else 0.0
        now, breaker = self._clock(), self._breaker
        if (
            self._queue
            or breaker.down
            or self._in_flight >= self.concurrency_limit
            or self._wait_s(now) > 0
        ):
            sent, admitted_at = await self._wait_for_slot(request, tokens)
            now = self._clock()
        else:
            sent, admitted_at = self._acquire_semaphore(now, tokens)
        number = self._adaptive.admit() if self._adaptive else 0
        used: float | None = 0.0
        try:
            completion = await once()
            usage = completion.usage
            self._answered(number, now, usage.output_tokens)
            breaker.answered_ever = True
            if self._refusals.watching:
                answered = SentRequest(sent, number, now, request)
                self._refusals.answered(answered, self._in_flight, self._clock())
            used = self._estimate.learn(usage)
        except (ProviderError, TimeoutError) as error:
            self._learn_from(error, SentRequest(sent, number, admitted_at, request))
            raise
        finally:
            if tokens and used is not None:
                self._tokens.correct(self._clock(), used - tokens)
            self._in_flight -= 1
            self._first_in_flight.discard(sent)
            if breaker.failing:
                self._after_failure(sent)
            if self._queue:
                self._admit_waiting()
        return completion

    async def wait_before_retry(self, seconds: float, request: QueuedRequest) -> None:
        """Wait before another try of *request*; NotRun if it must not be sent any more."""
        if self._closed:
            self._check_open(begun=request.begun)
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        entry = (waiting, request.begun)
        self._backing_off.add(entry)
        timer = loop.call_later(seconds, _wake, waiting)
        if request.on_wait:
            request.on_wait(Wait.RETRY)
        try:
            await waiting
        finally:
            if request.on_wait:
                request.on_wait(None)
            timer.cancel()
            self._backing_off.discard(entry)

    def on_headers(self, headers: Mapping[str, str]) -> None:
        """Slow down to the refill rate when the headers say that little is left."""
        self.on_limits(parse_rate_limit_headers(headers))

    def on_limits(self, limits: Iterable[RateLimitHeaders]) -> None:
        """Slow down to the refill rate when *limits*, told with a response, say that little is left.

        Twice as many as now may be in flight a moment later.
        """
        self._breaker.reached = True
        for limit in limits:
            size = 1.0 if limit.unit == "requests" else self._estimate.mean
            if not limit.low and limit.remaining > 2 * self._in_flight * size:
                continue
            now = self._clock()
            until = now + min(limit.reset_s, _LONGEST_CAP_S)
            soon = self._in_flight + 2 * self._rate_limit.recent(now)
            if limit.remaining <= soon * size:
                spacing = self._rate_limit if limit.unit == "requests" else self._tokens
                spacing.cap(limit.rate, until=until)

    def _wait_s(self, now: float) -> float:
        wait_s = max(self._rate_limit.wait_s(now), self._tokens.wait_s(now))
        if self._adaptive is not None:
            wait_s = max(wait_s, self._adaptive.spacing.wait_s(now))
        if self._breaker.down:
            wait_s = max(wait_s, self._breaker.probe_at - now)
        return wait_s if self._requests is None else max(wait_s, self._requests.wait_s(now))

    def _acquire_semaphore(self, now: float, tokens: float) -> tuple[int, float]:
        """Take a slot and book the rate; return the number of the request, and *now*."""
        self._in_flight += 1
        self._number += 1
        if not self._breaker.answered_ever:
            self._first_in_flight.add(self._number)
        if self._breaker.down:
            self._breaker.probe = self._number
        self._rate_limit.sent(now)
        if self._requests is not None:
            self._requests.take(now)
        if tokens:
            self._tokens.take(now, tokens)
        if self._adaptive is not None:
            self._adaptive.spacing.take(now)
        return self._number, now

    async def _wait_for_slot(self, request: QueuedRequest, tokens: float) -> tuple[int, float]:
        """Wait in the queue until there is a slot, and take it."""
        slot: Slot = asyncio.get_running_loop().create_future()
        self._queue.append((slot, tokens, request))
        if self._breaker.down:
            self._notify_outage(slot, request)
        self._admit_waiting()
        if request.on_retry and not slot.done():
            down = self._breaker.reason if self._breaker.down else ""
            request.on_retry(f"the endpoint is down: {down}" if down else WAITING)
        if request.on_wait and not slot.done():
            request.on_wait(Wait.ENDPOINT)
        try:
            admission = await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled() and slot.exception() is None:
                self._in_flight -= 1  # it was admitted just as it was cancelled
                self._first_in_flight.discard(slot.result()[0])
                if self._breaker.down:
                    self._after_failure(slot.result()[0])
                self._admit_waiting()
            raise
        finally:
            if request.on_wait:
                request.on_wait(None)
        if request.on_retry:
            request.on_retry("")
        return admission

    def _admit_waiting(self) -> None:
        """Admit the queued requests that may be sent now, and schedule the next admission."""
        while self._queue and self._in_flight < self.concurrency_limit:
            slot, tokens, _ = self._queue[0]
            if slot.done():  # cancelled
                self._queue.popleft()
                continue
            now = self._clock()
            if self._breaker.down and self._breaker.probe is not None:
                return  # one at a time
            if (wait_s := self._wait_s(now)) > 0:
                self._schedule_admission(now, wait_s)
                return
            self._queue.popleft()
            slot.set_result(self._acquire_semaphore(now, tokens))

    def _notify_outage(self, slot: Slot, request: QueuedRequest) -> None:
        """Notify a request that it waits for an endpoint that is down, and when that ends."""
        if (tell := request.on_outage) is not None and not slot.done():
            tell(True)  # noqa: FBT003 -- a callback
            slot.add_done_callback(lambda _: tell(False))  # noqa: FBT003

    def _schedule_admission(self, now: float, wait_s: float) -> None:
        if self._timer is not None:
            if self._timer_at <= now + wait_s:
                return  # the timer fires earlier, and checks again
            self._timer.cancel()
        self._timer_at = now + wait_s
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._admit_waiting()

    def _answered(self, number: int, sent_at: float, tokens: int | None) -> None:
        if self._adaptive is None:
            return
        self._adaptive.answered(number)
        full = self._in_flight >= self._adaptive.limit
        if full or self._queue:
            now = self._clock()
            self._adaptive.measured(number, now - sent_at, tokens, now, full=full)

    def _learn_from(self, error: ProviderError | TimeoutError, sent: SentRequest) -> None:
        """Adapt to a request that failed."""
        if not isinstance(error, ProviderError):
            self._overloaded(sent.admitted)
        elif not self._adapts:
            return
        elif isinstance(error, RetryableError):
            self._note_failure(error, sent)
        elif not error.transient:
            self._rejected(error, sent)

    def _note_failure(self, error: RetryableError, sent: SentRequest) -> None:
        """Report a failure to the circuit breaker, and mark the error if it met an outage."""
        if error.billable:  # something was answered: the endpoint is up
            self._answered_badly(sent)
            return
        was_down = self._breaker.down
        traffic = Traffic(self._number, self._in_flight, self._clock())
        self._refusals.failed(error, sent, traffic)
        if self._breaker.down and not was_down:
            for slot, _, waiting in self._queue:
                self._notify_outage(slot, waiting)

    def _answered_badly(self, sent: SentRequest) -> None:
        if self._breaker.failing:
            self._refusals.answered(sent, self._in_flight, self._clock())

    def _rejected(self, error: ProviderError, sent: SentRequest) -> None:
        """Handle a permanent fault: the endpoint is up, but perhaps unusable."""
        self._answered_badly(sent)
        pending = min(self._first_in_flight, default=sent.number) < sent.number
        why = self._breaker.record_rejection(error, pending=pending)
        if self.given_up is None and why:
            self.give_up(f"{self.name}: {why}")

    def _after_failure(self, sent: int) -> None:
        """Allow the next probe, or give the endpoint up."""
        breaker = self._breaker
        if breaker.probe == sent:
            breaker.probe = None
        if self._in_flight or self.given_up is not None:
            return  # requests in flight may still be answered
        if self._stopping and breaker.down:
            self.give_up(STOPPING)
        elif why := breaker.give_up_reason(self._clock()):
            self.give_up(f"{self.name}: {why}")

    def give_up(self, why: str) -> None:
        """Send nothing any more; waiting requests get NotRun."""
        self._closed, self.given_up = True, why
        self._reject_waiting(everybody=True)
        if self.on_given_up is not None and why != STOPPING:
            self.on_given_up(why)

    def stop(self) -> None:
        """Send only requests of attempts that have begun, while the endpoint is up."""
        self._closed = self._stopping = True
        if self._breaker.down and not self._in_flight and self.given_up is None:
            self.give_up(STOPPING)
        self._reject_waiting(everybody=False)

    def _check_open(self, *, begun: bool) -> None:
        if self.given_up is not None:
            raise NotRun(self.given_up)
        if not begun:
            raise NotRun(STOPPING)

    def _reject_waiting(self, *, everybody: bool) -> None:
        why = self.given_up or STOPPING
        waiting: list[tuple[asyncio.Future[Any], bool]] = [
            *((slot, request.begun) for slot, _, request in self._queue),
            *self._backing_off,
        ]
        for future, begun in waiting:
            if (everybody or not begun) and not future.done():
                future.set_exception(NotRun(why))
        self._queue = deque(entry for entry in self._queue if not entry[0].done())

    def waits(self) -> EndpointWait | None:
        """Return why requests wait here now; None if none does."""
        now, breaker = self._clock(), self._breaker
        waiting = sum(not slot.done() for slot, *_ in self._queue)
        if not waiting and not breaker.down:
            return None
        wait_s = self._wait_s(now)
        return EndpointWait(
            endpoint=self.name,
            waiting=waiting,
            under_way=self._in_flight,
            at_once=None if math.isinf(self.concurrency_limit) else int(self.concurrency_limit),
            next_s=wait_s if wait_s > 0 else None,
            down_s=now - breaker.since if breaker.down else None,
            given_up_in_s=breaker.since + self._patience.give_up_after_s - now
            if breaker.down
            else 0,
            reason=breaker.reason if breaker.down else "",
        )

    def state(self) -> EndpointState:
        """Return what it does now."""
        return EndpointState(
            endpoint=self.name,
            under_way=self._in_flight,
            waiting=sum(not slot.done() for slot, *_ in self._queue),
            at_once=None if math.isinf(self.concurrency_limit) else int(self.concurrency_limit),
            per_s=self.rate,
            reason=self.given_up or (self._breaker.reason if self._breaker.down else ""),
        )

    def _overloaded(self, number: int) -> None:
        if self._adaptive is not None:
            self._adaptive.overloaded(number, now=self._clock(), in_flight=self._in_flight)


class ModelLimiter:
    """A model's own limiter, if it has limits, in front of its endpoint's.

    In this order no request holds a slot at the endpoint while it waits for the model.
    """

    def __init__(self, endpoint: EndpointLimiter, name: str = "the model") -> None:
        self._endpoint = endpoint
        self._name = name
        self._own: EndpointLimiter | None = None

    def restrict(self, limits: EndpointLimits) -> None:
        """Apply *limits* in addition; only `adaptive` concerns the whole endpoint."""
        if not limits.adaptive:
            self._endpoint.restrict(EndpointLimits(adaptive=False))
        own = replace(limits, adaptive=True)
        if own != EndpointLimits():
            self._own = self._own or EndpointLimiter(name=self._name, adapts=False)
            self._own.restrict(own)

    def send(self, once: Try, request: QueuedRequest) -> Coroutine[Any, Any, Completion]:
        """Wait for a slot at both, then send."""
        endpoint = self._endpoint
        if self._own is None:
            return endpoint.send(once, request)
        return self._own.send(lambda: endpoint.send(once, request), request)

    async def wait_before_retry(self, seconds: float, request: QueuedRequest) -> None:
        """Wait before another try."""
        await self._endpoint.wait_before_retry(seconds, request)

    def on_headers(self, headers: Mapping[str, str]) -> None:
        """Pass the headers to the endpoint's limiter: the model's own does not adapt."""
        self._endpoint.on_headers(headers)

    def on_limits(self, limits: Iterable[RateLimitHeaders]) -> None:
        """Pass on what headers said, as `on_headers` does."""
        self._endpoint.on_limits(limits)

    @property
    def spaced(self) -> bool:
        """Whether requests are sent at a rate now."""
        return self._endpoint.spaced or (self._own is not None and self._own.spaced)

    @property
    def given_up(self) -> str | None:
        """Why nothing is sent to the endpoint any more."""
        return self._endpoint.given_up

    def close(self, why: str | None) -> None:
        """Reject requests that the endpoint would not send any more; None is a stop."""
        if self._own is not None and why is None:
            self._own.stop()
        elif self._own is not None:
            self._own.give_up(why or STOPPING)

    def waits(self) -> EndpointWait | None:
        """Return why requests wait for the model itself, now."""
        return None if self._own is None else self._own.waits()


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
