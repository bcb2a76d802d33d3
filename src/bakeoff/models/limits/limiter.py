"""Where requests wait before they go out."""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from bakeoff._lib.clock import monotonic
from bakeoff.core.endpoint import EndpointLimits, EndpointWait, Patience
from bakeoff.core.errors import NotRun, ProviderError
from bakeoff.core.outcome import Completion, Request
from bakeoff.models.client.retry import Strain, TryAgain
from bakeoff.models.limits.concurrency import AdaptiveConcurrency
from bakeoff.models.limits.outage import LONG_S, Failure, Outage
from bakeoff.models.limits.rate import RateLimit, RequestSpacing, TokenEstimate
from bakeoff.models.limits.rate_limit_headers import parse_rate_limit_headers

WAITING = "a wait for its turn at the endpoint"
"""What a request's `on_retry` hears while it waits; an empty text when it goes."""

STOPPING = "the run is stopping"

_SILENCE_S = 1.0
_LONGEST_CAP_S = 60.0

Try = Callable[[], Awaitable[Completion]]
Place = asyncio.Future[int]


class Limiter(Protocol):
    """Lets one try of a request through when its turn has come, and learns from how it went."""

    async def through(self, once: Try, request: Request) -> Completion:
        """Wait for a turn, then go."""
        ...

    async def rest(self, seconds: float, request: Request) -> None:
        """Wait before another try of a request; NotRun where it is not to be sent any more."""

    def heard(self, headers: Mapping[str, str]) -> None:
        """Take note of what the endpoint says about itself."""

    @property
    def given_up(self) -> str | None:
        """Why nothing is sent there any more; None where it is."""


class NoLimiter:
    """Lets everything through at once."""

    async def through(
        self,
        once: Try,
        request: Request,  # noqa: ARG002 -- nothing about it matters here
    ) -> Completion:
        """Go."""
        return await once()

    async def rest(self, seconds: float, request: Request) -> None:  # noqa: ARG002 -- as above
        """Wait."""
        await asyncio.sleep(seconds)

    def heard(self, headers: Mapping[str, str]) -> None:
        """Nothing to learn."""

    @property
    def given_up(self) -> None:
        """Never."""
        return None


OPEN = NoLimiter()


class _Sent(NamedTuple):
    """A request under way: its number at the endpoint and under adaptive concurrency, and when."""

    number: int
    admitted: int
    at: float
    request: Request


class EndpointLimiter:
    """One queue for everybody who asks one endpoint; belongs to the event loop that uses it.

    First come, first served. A request goes when there is a place for it (`max_concurrency`, or
    as many as help) and the pace lets it (`rpm`, `tpm`, what refusals and headers have taught).
    While the endpoint is down, one at a time goes as a probe, and none of them spends its tries.
    After a stop only requests of attempts that have begun go; once the endpoint is given up, none.
    One that does not learn keeps to its limits, whatever it meets.
    """

    def __init__(
        self,
        limits: EndpointLimits | None = None,
        *,
        name: str = "the endpoint",
        learns: bool = True,
        patience: Patience | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.name = name
        self._learns = learns
        self._clock = clock
        self._patience = patience or Patience()
        self._outage = Outage(self._patience)
        self._number = 0
        self._closed = False  # whether it lets in less than everything: stopping, or given up
        self._stopping = False
        self.given_up: str | None = None
        self.on_given_up: Callable[[str], None] | None = None
        self._resting: set[tuple[asyncio.Future[None], bool]] = set()
        self._estimate = TokenEstimate()
        self._in_flight = 0
        self._queue: deque[tuple[Place, float, Request]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._silence: asyncio.TimerHandle | None = None
        self._heard_at = -math.inf
        self._pace = RateLimit()
        self._keep(limits or EndpointLimits())

    def restrict(self, limits: EndpointLimits) -> None:
        """Keep to *limits*, too."""
        self._keep(self._limits.stricter(limits))

    def _keep(self, limits: EndpointLimits) -> None:
        most = limits.max_concurrency
        adaptive = limits.adaptive and self._learns
        self._limits = limits
        self._most = math.inf if most is None else most
        self._adaptive = AdaptiveConcurrency(most=most) if adaptive else None
        self._requests = RequestSpacing(limits.rpm / 60) if limits.rpm else None
        self._tokens = RequestSpacing(limits.tpm / 60 if limits.tpm else None)

    @property
    def in_flight(self) -> int:
        """How many requests are under way."""
        return self._in_flight

    @property
    def places(self) -> float:
        """How many requests may be under way now."""
        return self._most if self._adaptive is None else self._adaptive.limit

    @property
    def rate(self) -> float | None:
        """Requests per second that refusals have taught; None before the first."""
        return self._pace.rate

    async def through(self, once: Try, request: Request) -> Completion:
        """Wait for a turn, then go; the way it goes is what the gate learns from."""
        if self._closed:
            self._check_open(begun=request.begun)
        tokens = self._estimate.of(request) if self._tokens.limited else 0.0
        now, outage = self._clock(), self._outage
        if self._queue or outage.down or self._in_flight >= self.places or self._wait_s(now) > 0:
            sent = await self._turn(request, tokens)
            now = self._clock()
        else:
            sent = self._enter(now, tokens)
        number = self._adaptive.admit() if self._adaptive else 0
        used: float | None = 0.0
        try:
            completion = await once()
            usage = completion.usage
            self._answered(number, now, usage.output_tokens)
            outage.answered_ever = True
            if outage.failing:
                outage.answered(sent)
            used = self._estimate.learn(usage)
        except (ProviderError, TimeoutError) as error:
            self._learn_from(error, _Sent(sent, number, now, request))
            raise
        finally:
            if tokens and used is not None:
                self._tokens.correct(self._clock(), used - tokens)
            self._in_flight -= 1
            if outage.failing:
                self._after_failure(sent)
            if self._queue:
                self._heard_at = self._clock()
                self._let_in()
        return completion

    async def rest(self, seconds: float, request: Request) -> None:
        """Wait before another try of *request*, unless it is not to be sent any more."""
        if self._closed:
            self._check_open(begun=request.begun)
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        entry = (waiting, request.begun)
        self._resting.add(entry)
        timer = loop.call_later(seconds, _wake, waiting)
        try:
            await waiting
        finally:
            timer.cancel()
            self._resting.discard(entry)

    def heard(self, headers: Mapping[str, str]) -> None:
        """Slow down to what comes back, where the endpoint says that little is left."""
        self._outage.reached = True
        for allowance in parse_rate_limit_headers(headers):
            if not allowance.low:
                continue
            now = self._clock()
            until = now + min(allowance.reset_s, _LONGEST_CAP_S)
            soon = self._in_flight + 2 * self._pace.recent(now)
            if allowance.unit == "requests" and allowance.remaining <= soon:
                self._pace.cap(allowance.rate, until=until)
            elif allowance.unit == "tokens" and allowance.remaining <= soon * self._estimate.mean:
                self._tokens.cap(allowance.rate, until=until)

    def _wait_s(self, now: float) -> float:
        wait_s = max(self._pace.wait_s(now), self._tokens.wait_s(now))
        if self._outage.down:
            wait_s = max(wait_s, self._outage.probe_at - now)
        return wait_s if self._requests is None else max(wait_s, self._requests.wait_s(now))

    def _enter(self, now: float, tokens: float) -> int:
        """Take a place, and return the number of the request."""
        self._in_flight += 1
        self._number += 1
        if self._outage.down:
            self._outage.probe = self._number
        self._pace.sent(now)
        if self._requests is not None:
            self._requests.take(now)
        if tokens:
            self._tokens.take(now, tokens)
        return self._number

    async def _turn(self, request: Request, tokens: float) -> int:
        """Wait until there is a place, and take it."""
        place: Place = asyncio.get_running_loop().create_future()
        self._queue.append((place, tokens, request))
        if self._outage.down:
            self._hold(place, request)
        self._let_in()
        if self._silence is None and self._adaptive is not None:
            self._listen()
        if request.on_retry and not place.done():
            down = self._outage.reason if self._outage.down else ""
            request.on_retry(f"the endpoint is down: {down}" if down else WAITING)
        try:
            number = await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self._in_flight -= 1  # it was its turn, and nobody is there
                if self._outage.down:
                    self._after_failure(place.result())
                self._let_in()
            raise
        if request.on_retry:
            request.on_retry("")
        return number

    def _let_in(self) -> None:
        """Let in whoever may go now, and come back when the next one may."""
        while self._queue and self._in_flight < self.places:
            place, tokens, _ = self._queue[0]
            if place.done():  # cancelled
                self._queue.popleft()
                continue
            now = self._clock()
            if self._outage.down and self._outage.probe is not None:
                return  # one at a time
            if (wait_s := self._wait_s(now)) > 0:
                self._come_back(now, wait_s)
                return
            self._queue.popleft()
            place.set_result(self._enter(now, tokens))

    def _hold(self, place: Place, request: Request) -> None:
        """Tell a request that it waits for an endpoint that is down, and when that is over."""
        if (tell := request.on_outage) is not None and not place.done():
            tell(True)  # noqa: FBT003 -- a callback
            place.add_done_callback(lambda _: tell(False))  # noqa: FBT003

    def _listen(self) -> None:
        self._silence = asyncio.get_running_loop().call_later(_SILENCE_S, self._on_silence)

    def _on_silence(self) -> None:
        """Take more at once where all places are taken and nobody has answered for a while."""
        self._silence = None
        if not self._queue or self._adaptive is None:
            return
        now = self._clock()
        silent = now - self._heard_at >= _SILENCE_S and not self._outage.down
        if silent and self._in_flight >= self.places:
            self._adaptive.unheard(now)
            self._let_in()
        self._listen()

    def _come_back(self, now: float, wait_s: float) -> None:
        if self._timer is not None:
            if self._timer_at <= now + wait_s:
                return  # it comes early, and looks again
            self._timer.cancel()
        self._timer_at = now + wait_s
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._let_in()

    def _answered(self, number: int, sent_at: float, tokens: int | None) -> None:
        if self._adaptive is None:
            return
        self._adaptive.answered(number)
        if self._in_flight >= self._adaptive.limit:
            now = self._clock()
            self._adaptive.measured(number, now - sent_at, tokens, now)

    def _learn_from(self, error: ProviderError | TimeoutError, sent: _Sent) -> None:
        """Learn from a request that was not answered as it should be."""
        if not isinstance(error, ProviderError):
            self._overloaded(sent.admitted)
        elif not self._learns:
            return
        elif isinstance(error, TryAgain):
            self._slow_down(error, sent)
            self._note_failure(error, sent)
        elif not error.transient:
            self._rejected(error, sent)

    def _slow_down(self, error: TryAgain, sent: _Sent) -> None:
        now, number = self._clock(), sent.admitted
        if self._outage.probe == sent.number or (error.after_s or 0.0) > LONG_S:
            return  # this is about an outage, and says nothing about a rate
        if error.strain is Strain.RATE:
            self._pace.refused(sent_at=sent.at, now=now, after_s=error.after_s)
            if self._adaptive is not None:
                self._adaptive.overloaded(number, now=now)
        elif error.strain is Strain.LOAD:
            if error.after_s:
                self._pace.pause(now + error.after_s)
            self._overloaded(number)

    def _note_failure(self, error: TryAgain, sent: _Sent) -> None:
        """Tell the circuit breaker, and the request whether it met an outage."""
        outage = self._outage
        if error.billable:  # something was answered: the endpoint is up
            if outage.failing:
                outage.answered(sent.number)
            return
        was_down = outage.down
        failure = Failure(error, sent.number, sent.request.messages, self._number)
        outage.failed(failure, self._clock())
        if outage.down and not was_down:
            for place, _, waiting in self._queue:
                self._hold(place, waiting)
        error.outage, error.probe = outage.down, outage.probe == sent.number

    def _rejected(self, error: ProviderError, sent: _Sent) -> None:
        """Learn from a fault that will not pass: the endpoint is up, and perhaps of no use."""
        if self._outage.failing:
            self._outage.answered(sent.number)
        if self.given_up is None and (why := self._outage.rejected(error)):
            self.give_up(f"{self.name}: {why}")

    def _after_failure(self, sent: int) -> None:
        """Let the next probe go after this one, or give the endpoint up where that is no use."""
        outage = self._outage
        if outage.probe == sent:
            outage.probe = None
        if self._in_flight or self.given_up is not None:
            return  # what is under way may still be answered
        if self._stopping and outage.down:
            self.give_up(STOPPING)
        elif why := outage.hopeless(self._clock()):
            self.give_up(f"{self.name}: {why}")

    def give_up(self, why: str) -> None:
        """Send nothing any more; whoever waits is told that it is not run."""
        self._closed, self.given_up = True, why
        self._turn_away(everybody=True)
        if self.on_given_up is not None and why != STOPPING:
            self.on_given_up(why)

    def stop(self) -> None:
        """Send nothing new: only requests of attempts that have begun, while the endpoint is up."""
        self._closed = self._stopping = True
        if self._outage.down and not self._in_flight and self.given_up is None:
            self.give_up(STOPPING)
        self._turn_away(everybody=False)

    def _check_open(self, *, begun: bool) -> None:
        if self.given_up is not None:
            raise NotRun(self.given_up)
        if not begun:
            raise NotRun(STOPPING)

    def _turn_away(self, *, everybody: bool) -> None:
        why = self.given_up or STOPPING
        waiting: list[tuple[asyncio.Future[Any], bool]] = [
            *((place, request.begun) for place, _, request in self._queue),
            *self._resting,
        ]
        for future, begun in waiting:
            if (everybody or not begun) and not future.done():
                future.set_exception(NotRun(why))
        self._queue = deque(entry for entry in self._queue if not entry[0].done())

    def waits(self) -> EndpointWait | None:
        """Return why requests wait here now; None where none does."""
        now, outage = self._clock(), self._outage
        waiting = sum(not place.done() for place, *_ in self._queue)
        if not waiting and not outage.down:
            return None
        wait_s = self._wait_s(now)
        return EndpointWait(
            endpoint=self.name,
            waiting=waiting,
            under_way=self._in_flight,
            at_once=None if math.isinf(self.places) else int(self.places),
            next_s=wait_s if wait_s > 0 else None,
            down_s=now - outage.since if outage.down else None,
            given_up_in_s=outage.since + self._patience.give_up_after_s - now if outage.down else 0,
            reason=outage.reason if outage.down else "",
        )

    def _overloaded(self, number: int) -> None:
        if self._adaptive is not None:
            self._adaptive.overloaded(number, now=self._clock(), in_flight=self._in_flight)


class ModelLimiter:
    """A model's own gate, where it has limits, with its endpoint's behind it.

    In this order nobody holds a place at the endpoint while waiting for the model.
    """

    def __init__(self, endpoint: EndpointLimiter, name: str = "the model") -> None:
        self._endpoint = endpoint
        self._name = name
        self._own: EndpointLimiter | None = None

    def restrict(self, limits: EndpointLimits) -> None:
        """Keep to *limits*, too; only whether it is `adaptive` concerns the whole endpoint."""
        if not limits.adaptive:
            self._endpoint.restrict(EndpointLimits(adaptive=False))
        own = replace(limits, adaptive=True)
        if own != EndpointLimits():
            self._own = self._own or EndpointLimiter(name=self._name, learns=False)
            self._own.restrict(own)

    def through(self, once: Try, request: Request) -> Coroutine[Any, Any, Completion]:
        """Wait at both."""
        endpoint = self._endpoint
        if self._own is None:
            return endpoint.through(once, request)
        return self._own.through(lambda: endpoint.through(once, request), request)

    async def rest(self, seconds: float, request: Request) -> None:
        """Wait between two tries."""
        await self._endpoint.rest(seconds, request)

    def heard(self, headers: Mapping[str, str]) -> None:
        """Tell the endpoint's gate: the model's own does not learn."""
        self._endpoint.heard(headers)

    @property
    def given_up(self) -> str | None:
        """Why the endpoint is not asked any more."""
        return self._endpoint.given_up

    def close(self, why: str | None) -> None:
        """Let nobody wait for the model who will not be let in by the endpoint; None is a stop."""
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
