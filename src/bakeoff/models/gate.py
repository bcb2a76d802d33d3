"""Where requests wait before they go out."""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Protocol

from bakeoff._lib.clock import monotonic
from bakeoff.core.endpoint import EndpointLimits
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import Completion, Request
from bakeoff.models.allowance import allowances
from bakeoff.models.concurrency import AdaptiveConcurrency
from bakeoff.models.pace import Pace, Spacing
from bakeoff.models.retry import Strain, TryAgain, Unreachable
from bakeoff.models.tokens import TokenEstimate

WAITING = "a wait for its turn at the endpoint"
"""What a request's `on_retry` hears while it waits; an empty text when it goes."""

_LONGEST_PAUSE_S = 60.0
_SILENCE_S = 1.0
_LONGEST_CAP_S = 60.0
_PATIENCE_S = 10.0  # with a server that nobody has reached yet: it may be starting

Try = Callable[[], Awaitable[Completion]]


class Gate(Protocol):
    """Lets one try of a request through when its turn has come, and learns from how it went."""

    async def through(self, once: Try, request: Request) -> Completion:
        """Wait for a turn, then go."""
        ...

    def heard(self, headers: Mapping[str, str]) -> None:
        """Take note of what the endpoint says about itself."""


class OpenGate:
    """Lets everything through at once."""

    async def through(
        self,
        once: Try,
        request: Request,  # noqa: ARG002 -- nothing about it matters here
    ) -> Completion:
        """Go."""
        return await once()

    def heard(self, headers: Mapping[str, str]) -> None:
        """Nothing to learn."""


OPEN = OpenGate()


class EndpointGate:
    """One queue for everybody who asks one endpoint; belongs to the event loop that uses it.

    First come, first served. A request goes when there is a place for it (`max_concurrency`, or
    as many as help) and the pace lets it (`rpm`, `tpm`, what refusals and headers have taught).
    One that does not learn keeps to its limits, whatever it meets.
    """

    def __init__(
        self,
        limits: EndpointLimits | None = None,
        *,
        learns: bool = True,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._learns = learns
        self._clock = clock
        self._estimate = TokenEstimate()
        self._in_flight = 0
        self._queue: deque[tuple[asyncio.Future[None], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._silence: asyncio.TimerHandle | None = None
        self._heard_at = -math.inf
        self._reached = False
        self._silent_since = math.inf
        self._pace = Pace()
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
        self._requests = Spacing(limits.rpm / 60) if limits.rpm else None
        self._tokens = Spacing(limits.tpm / 60 if limits.tpm else None)

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
        tokens = self._estimate.of(request) if self._tokens.limited else 0.0
        now = self._clock()
        if self._queue or self._in_flight >= self.places or self._wait_s(now) > 0:
            await self._turn(request, tokens)
            now = self._clock()
        else:
            self._enter(now, tokens)
        number = self._adaptive.admit() if self._adaptive else 0
        used: float | None = 0.0
        try:
            completion = await once()
            usage = completion.usage
            self._answered(number, now, usage.output_tokens)
            used = self._estimate.learn(usage)
        except Unreachable as error:
            self._failed(error, number, now)
            if given_up := self._given_up(error):
                raise given_up from error
            raise
        except TryAgain as error:
            self._failed(error, number, now)
            raise
        except TimeoutError:
            self._overloaded(number)
            raise
        finally:
            if tokens and used is not None:
                self._tokens.correct(self._clock(), used - tokens)
            self._in_flight -= 1
            if self._queue:
                self._heard_at = self._clock()
                self._let_in()
        return completion

    def heard(self, headers: Mapping[str, str]) -> None:
        """Slow down to what comes back, where the endpoint says that little is left."""
        self._reached = True
        for allowance in allowances(headers):
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
        return wait_s if self._requests is None else max(wait_s, self._requests.wait_s(now))

    def _enter(self, now: float, tokens: float) -> None:
        self._in_flight += 1
        self._pace.sent(now)
        if self._requests is not None:
            self._requests.take(now)
        if tokens:
            self._tokens.take(now, tokens)

    async def _turn(self, request: Request, tokens: float) -> None:
        """Wait until there is a place, and take it."""
        if (pause_s := self._pace.paused_s(self._clock())) > _LONGEST_PAUSE_S:
            raise _left_alone(pause_s)
        place = asyncio.get_running_loop().create_future()
        self._queue.append((place, tokens))
        self._let_in()
        if self._silence is None and self._adaptive is not None:
            self._listen()
        if request.on_retry and not place.done():
            request.on_retry(WAITING)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it was its turn, and nobody is there
                self._in_flight -= 1
                self._let_in()
            raise
        if request.on_retry:
            request.on_retry("")

    def _let_in(self) -> None:
        """Let in whoever may go now, and come back when the next one may."""
        while self._queue and self._in_flight < self.places:
            place, tokens = self._queue[0]
            if place.done():  # cancelled
                self._queue.popleft()
                continue
            now = self._clock()
            if (wait_s := self._wait_s(now)) > 0:
                self._come_back(now, wait_s)
                return
            self._queue.popleft()
            self._enter(now, tokens)
            place.set_result(None)

    def _listen(self) -> None:
        self._silence = asyncio.get_running_loop().call_later(_SILENCE_S, self._on_silence)

    def _on_silence(self) -> None:
        """Take more at once where all places are taken and nobody has answered for a while."""
        self._silence = None
        if not self._queue or self._adaptive is None:
            return
        now = self._clock()
        if now - self._heard_at >= _SILENCE_S and self._in_flight >= self.places:
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

    def _given_up(self, error: Unreachable) -> ProviderError | None:
        """Return the fault of an endpoint that nobody has reached in this run, after some patience."""
        now = self._clock()
        self._silent_since = min(self._silent_since, now)
        if self._reached or not self._learns or now - self._silent_since < _PATIENCE_S:
            return None
        return ProviderError(f"{error}, and so it was all the time: is it running?", billable=False)

    def _answered(self, number: int, sent_at: float, tokens: int | None) -> None:
        if self._adaptive is None:
            return
        self._adaptive.answered(number)
        if self._in_flight >= self._adaptive.limit:
            now = self._clock()
            self._adaptive.measured(number, now - sent_at, tokens, now)

    def _failed(self, error: TryAgain, number: int, sent_at: float) -> None:
        if not self._learns:
            return
        now = self._clock()
        if error.strain is Strain.RATE:
            self._pace.refused(sent_at=sent_at, now=now, after_s=error.after_s)
            if self._adaptive is not None:
                self._adaptive.overloaded(number, now=now)
        elif error.strain is Strain.LOAD:
            if error.after_s:
                self._pace.pause(now + error.after_s)
            self._overloaded(number)
        if (pause_s := self._pace.paused_s(now)) > _LONGEST_PAUSE_S:
            self._send_away(pause_s)

    def _overloaded(self, number: int) -> None:
        if self._adaptive is not None:
            self._adaptive.overloaded(number, now=self._clock(), in_flight=self._in_flight)

    def _send_away(self, pause_s: float) -> None:
        """Tell everybody to come back later: their own deadlines decide whether they do."""
        while self._queue:
            place, _ = self._queue.popleft()
            if not place.done():
                place.set_exception(_left_alone(pause_s))


class ModelGate:
    """A model's own gate, where it has limits, with its endpoint's behind it.

    In this order nobody holds a place at the endpoint while waiting for the model.
    """

    def __init__(self, endpoint: EndpointGate) -> None:
        self._endpoint = endpoint
        self._own: EndpointGate | None = None

    def restrict(self, limits: EndpointLimits) -> None:
        """Keep to *limits*, too; only whether it is `adaptive` concerns the whole endpoint."""
        if not limits.adaptive:
            self._endpoint.restrict(EndpointLimits(adaptive=False))
        own = replace(limits, adaptive=True)
        if own != EndpointLimits():
            self._own = self._own or EndpointGate(learns=False)
            self._own.restrict(own)

    def through(self, once: Try, request: Request) -> Coroutine[Any, Any, Completion]:
        """Wait at both."""
        endpoint = self._endpoint
        if self._own is None:
            return endpoint.through(once, request)
        return self._own.through(lambda: endpoint.through(once, request), request)

    def heard(self, headers: Mapping[str, str]) -> None:
        """Tell the endpoint's gate: the model's own does not learn."""
        self._endpoint.heard(headers)


def _left_alone(pause_s: float) -> TryAgain:
    return TryAgain(
        f"the endpoint asked to be left alone for {pause_s:.0f} s more (Retry-After)",
        after_s=pause_s,
        billable=False,
    )
