"""Turns at endpoints and the budget for requests of another process: a worker asks, the run decides.

The run's own limiters and its one budget see every request as if it were sent from there: each has a
task that waits in the limiter's queue, tells the worker when its turn has come, and hears how it went.
So limits, what is learned from refusals, outages and the cap hold for all workers together, also
where one of them dies.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from time import monotonic
from typing import Any

from bakeoff._lib.digest import digest
from bakeoff._lib.sanitize import well_formed
from bakeoff.core.budget import NO_BILL, Bill, Bound
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import BakeoffError, BudgetReached, NotRun, ProviderError, UsageError
from bakeoff.core.outcome import Completion, Request, Usage, Wait
from bakeoff.engine.budget import BudgetAccount
from bakeoff.executors.link import Post
from bakeoff.executors.wire import (
    Answered,
    BackOff,
    Booked,
    Dropped,
    Failed,
    Fetched,
    Granted,
    Headers,
    Held,
    Hold,
    Judged,
    Queued,
    Refused,
    Settled,
    TurnRequest,
    Unkept,
)
from bakeoff.models.client.retry import Overload, RetryableError, UnreachableError
from bakeoff.models.limits.limiter import Limiter, ModelLimiter
from bakeoff.models.limits.queued import QueuedRequest
from bakeoff.models.limits.rate_limit_headers import parse_rate_limit_headers
from bakeoff.models.limits.settings import Limiters, limiter_of

_UNKNOWN_S, _LONGEST_S = 1.0, 600.0  # how long an endpoint may be at what nobody waits for
_STALE_S = 0.5  # a turn that was heard of so much later than others is taken anew
_FAULT, _TIMEOUT, _UNREACHABLE, _RETRYABLE = "fault", "timeout", "unreachable", "retryable"


def limiter_key(model: tuple[str, str]) -> str:
    """Return the name of a limiter on the wire: an address may hold a secret."""
    return digest([*model])[:16]


# --- on the side of the run -----------------------------------------------------------------------


class _RemoteRequest:
    """A request of a worker, in the queue of a limiter; the worker hears that it waits."""

    on_wait = None

    def __init__(self, ask: TurnRequest, post: Post) -> None:
        self.begun = ask.begun
        self.prompt_tokens = ask.prompt_tokens
        self.answer_limit = ask.answer_limit
        self.question = 0  # known only where it fails
        self._call = ask.call
        self._post = post

    def on_retry(self, why: str) -> None:
        if why:
            self._post(Queued(self._call, why, outage=False))

    def on_outage(self, down: bool) -> None:  # noqa: FBT001 -- a callback
        if down:
            self._post(Queued(self._call, "", outage=True))


class RunLimiters:
    """The limiters of a run by their names on the wire, and how long answers have taken at most."""

    def __init__(self, limiters: Limiters) -> None:
        self._limiters = limiters
        self._by_key: dict[str, ModelLimiter] = {}
        self._longest_s: dict[str, float] = {}

    def find(self, key: str) -> ModelLimiter | None:
        """Return the limiter called *key*."""
        if key not in self._by_key:
            self._by_key = {limiter_key(k): each for k, each in self._limiters.known().items()}
        return self._by_key.get(key)

    def answered(self, key: str, took_s: float) -> None:
        """Note how long an answer took."""
        if took_s > self._longest_s.get(key, 0.0):
            self._longest_s[key] = took_s

    def longest_s(self, key: str) -> float:
        """Return how long the endpoint may be at a request whose worker is gone: twice what was seen."""
        return min(max(2 * self._longest_s.get(key, 0.0), _UNKNOWN_S), _LONGEST_S)


class _SentRequest:
    """A request that had its turn and is not answered yet."""

    __slots__ = ("answer", "at", "limiter", "request")

    def __init__(
        self, answer: "asyncio.Future[Completion]", limiter: str, request: _RemoteRequest
    ) -> None:
        self.answer = answer
        self.limiter = limiter
        self.request = request
        self.at = monotonic()


class TurnGiver:
    """Waits in the run's limiters for the requests of one worker."""

    def __init__(self, limiters: RunLimiters, post: Post) -> None:
        self._limiters = limiters
        self._post = post
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._sent: dict[int, _SentRequest] = {}

    @property
    def handlers(self) -> dict[type, Callable[..., None]]:
        """What to call with each message."""
        return {
            TurnRequest: self.ask,
            Answered: self.answered,
            Failed: self.failed,
            Dropped: self.dropped,
            BackOff: self.back_off,
            Headers: self.on_headers,
        }

    def ask(self, ask: TurnRequest) -> None:
        """Wait for the turn of a request."""
        self._start(ask.call, self._give(ask))

    def answered(self, message: Answered) -> None:
        """Let the limiter learn that a request was answered."""
        if (sent := self._sent.pop(message.call, None)) is not None:
            usage = Usage(
                input_tokens=message.input_tokens,
                output_tokens=message.output_tokens,
                reasoning_tokens=None,
                cached_tokens=None,
            )
            sent.answer.set_result(Completion(text="", usage=usage))
            self._limiters.answered(sent.limiter, monotonic() - sent.at)

    def failed(self, message: Failed) -> None:
        """Let the limiter learn that a request failed."""
        if (sent := self._sent.pop(message.call, None)) is not None:
            sent.request.question = message.question
            sent.answer.set_exception(_error_of(message))

    def dropped(self, message: Dropped) -> None:
        """Give the turn, or the place in the queue, to another."""
        if (task := self._tasks.get(message.call)) is not None:
            task.cancel()

    def back_off(self, message: BackOff) -> None:
        """Wait before another try of a request."""
        self._start(message.call, self._wait(message))

    def on_headers(self, message: Headers) -> None:
        """Let the limiter learn from what an endpoint said beside an answer."""
        if (limiter := self._limiters.find(message.limiter)) is not None:
            limiter.on_limits(message.limits)

    def worker_is_gone(self) -> None:
        """Give back all turns; what was sent keeps its own for as long as its endpoint may be at it."""
        for call, task in self._tasks.items():
            if (sent := self._sent.get(call)) is None:
                task.cancel()
            else:
                left_s = sent.at + self._limiters.longest_s(sent.limiter) - monotonic()
                self._loop.call_later(max(left_s, 0.0), task.cancel)

    def close(self) -> None:
        """Give back all turns."""
        for task in self._tasks.values():
            task.cancel()

    def _start(self, call: int, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[call] = task
        task.add_done_callback(lambda _: self._tasks.pop(call, None))

    async def _give(self, ask: TurnRequest) -> None:
        call, limiter = ask.call, self._limiters.find(ask.limiter)
        if limiter is None:
            self._post(Refused(call, "the run has no limiter for this endpoint", "usage"))
            return
        request = _RemoteRequest(ask, self._post)

        async def once() -> Completion:
            answer: asyncio.Future[Completion] = self._loop.create_future()
            self._sent[call] = sent = _SentRequest(answer, ask.limiter, request)
            self._post(Granted(call, sent.at, limiter.spaced))
            return await answer

        try:
            await limiter.send(once, request)
        except NotRun as error:
            self._post(_refusal(call, error))
        except (ProviderError, TimeoutError) as error:
            outage, probe = getattr(error, "outage", False), getattr(error, "probe", False)
            self._post(Judged(call, outage, probe))
        finally:
            self._sent.pop(call, None)

    async def _wait(self, message: BackOff) -> None:
        limiter = self._limiters.find(message.limiter)
        request = Request(messages=(), begun=message.begun)
        try:
            if limiter is not None:
                await limiter.wait_before_retry(message.seconds, request)
        except NotRun as error:
            self._post(_refusal(message.call, error))
        else:
            self._post(Held(message.call))


_REFUSALS: Mapping[str, type[BakeoffError]] = {
    "stop": NotRun,
    "budget": BudgetReached,
    "usage": UsageError,
}


def _refusal(call: int, error: BakeoffError) -> Refused:
    kind = next(kind for kind in ("budget", "stop", "usage") if isinstance(error, _REFUSALS[kind]))
    return Refused(call, str(error), kind)


def _error_of(message: Failed) -> ProviderError | TimeoutError:
    if message.kind == _TIMEOUT:
        return TimeoutError(message.why)
    if message.kind == _UNREACHABLE:
        return UnreachableError(message.why)
    if message.kind == _RETRYABLE:
        return RetryableError(
            message.why,
            retry_after_s=message.retry_after_s,
            overload=None if message.overload is None else Overload(message.overload),
            billable=message.billable,
            status=message.status,
        )
    return ProviderError(
        message.why,
        transient=message.transient,
        billable=message.billable,
        status=message.status,
    )


class Reservations:
    """What the requests of one worker have reserved of the run's budget.

    Where the worker is lost, that is booked as spent: nobody knows what of it was billed.
    """

    def __init__(self, post: Post) -> None:
        self._post = post
        self._held: dict[int, tuple[int, Bound, BudgetAccount]] = {}
        self._waiting: dict[int, asyncio.Task[None]] = {}

    def hold(self, message: Hold, budget: BudgetAccount) -> None:
        """Reserve for a request, as soon as that is possible."""
        task = asyncio.get_running_loop().create_task(self._hold(message, budget))
        self._waiting[message.call] = task
        task.add_done_callback(lambda _: self._waiting.pop(message.call, None))

    async def _hold(self, message: Hold, budget: BudgetAccount) -> None:
        bound = Bound(usd=message.usd, tokens=message.tokens)
        try:
            await (budget.hold_now(bound) if message.now else budget.hold(bound))
        except BakeoffError as error:
            self._post(_refusal(message.call, error))
        else:
            self._held[message.call] = message.job, bound, budget
            self._post(Held(message.call))

    def dropped(self, call: int) -> None:
        """Undo a reservation that nobody waited for."""
        if (task := self._waiting.get(call)) is not None:
            task.cancel()
        elif call in self._held:
            _, bound, budget = self._held.pop(call)
            budget.settle(bound, NO_BILL)

    def settle(self, message: Settled) -> None:
        """Release a reservation and book what the request cost."""
        bound = Bound(usd=message.usd, tokens=message.tokens)
        for call, (job, held, budget) in self._held.items():
            if job == message.job and held == bound:
                del self._held[call]
                budget.settle(bound, message.bill)
                return

    def close(self) -> Iterator[tuple[int, Bill]]:
        """Book all that is still reserved as spent; yield each job with the bill for that."""
        for task in self._waiting.values():
            task.cancel()
        while self._held:
            _, (job, bound, budget) = self._held.popitem()
            bill = Bill(
                unsure_usd=bound.usd or 0.0,
                unsure_tokens=bound.tokens or 0,
                unpriced=1 if bound.usd is None else 0,
            )
            budget.settle(bound, bill)
            yield job, bill


# --- on the side of a worker ----------------------------------------------------------------------


class _Call:
    """A question that waits for its answer, and what its request was told meanwhile."""

    __slots__ = ("answer", "down", "queued", "request")

    def __init__(self, answer: "asyncio.Future[Any]", request: QueuedRequest | None) -> None:
        self.answer = answer
        self.request = request
        self.queued = self.down = False


class Calls:
    """The questions of a worker to the run."""

    def __init__(self, post: Post) -> None:
        self.post = post
        self._loop = asyncio.get_running_loop()
        self._last = 0
        self._open: dict[int, _Call] = {}
        self._least_delay_s = math.inf

    @property
    def handlers(self) -> dict[type, Callable[..., None]]:
        """What to call with each message."""
        return {
            Granted: self._on_granted,
            Queued: self._on_queued,
            Refused: self._on_refused,
            Judged: self._on_answer,
            Held: self._on_answer,
            Fetched: self._on_answer,
            Unkept: self._on_answer,
        }

    async def ask(self, question: Callable[[int], object]) -> Any:
        """Post a question, which is made with its number, and wait for its answer."""
        call = self._begin()
        self.post(question(call))
        return await self._answer(call)

    async def turn(self, limiter: str, request: QueuedRequest) -> int:
        """Wait for the turn of *request*; return its number."""
        while True:
            call = self._begin(request)
            self.post(
                TurnRequest(
                    call, limiter, request.begun, request.prompt_tokens, request.answer_limit
                )
            )
            in_time = await self._answer(call)
            if in_time:
                return call
            self.post(Dropped(call))  # it came so late that it is none any more

    async def judge(self, failed: Failed) -> Judged:
        """Tell how a request failed, and return what that means."""
        self._begin(call=failed.call)
        self.post(failed)
        judged: Judged = await self._answer(failed.call)
        return judged

    def _begin(self, request: QueuedRequest | None = None, *, call: int | None = None) -> int:
        if call is None:
            call = self._last = self._last + 1
        self._open[call] = _Call(self._loop.create_future(), request)
        return call

    async def _answer(self, call: int) -> Any:
        waiting = self._open[call]
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            self.post(Dropped(call))
            raise
        finally:
            del self._open[call]
            if waiting.queued and (request := waiting.request) is not None:
                if waiting.down and request.on_outage:
                    request.on_outage(False)  # noqa: FBT003 -- a callback
                if request.on_wait:
                    request.on_wait(None)
                if request.on_retry:
                    request.on_retry("")

    def _waiting(self, call: int) -> _Call | None:
        """Return who waits for the answer to *call*; None where that was cut off."""
        waiting = self._open.get(call)
        return None if waiting is None or waiting.answer.done() else waiting

    def _on_answer(self, message: Judged | Held | Fetched | Unkept) -> None:
        if (waiting := self._waiting(message.call)) is not None:
            waiting.answer.set_result(message)

    def _on_granted(self, message: Granted) -> None:
        # clocks of two machines differ: what counts is how much later than others it is heard of
        delay_s = monotonic() - message.at
        self._least_delay_s = min(self._least_delay_s, delay_s)
        late = message.spaced and delay_s - self._least_delay_s > _STALE_S
        if (waiting := self._waiting(message.call)) is not None:
            waiting.answer.set_result(not late)

    def _on_queued(self, message: Queued) -> None:
        if (waiting := self._waiting(message.call)) is None or (request := waiting.request) is None:
            return
        if message.outage and not waiting.down:
            waiting.down = True
            if request.on_outage:
                request.on_outage(True)  # noqa: FBT003 -- a callback
        if message.why and request.on_retry:
            request.on_retry(message.why)
        if not waiting.queued:
            waiting.queued = True
            if request.on_wait:
                request.on_wait(Wait.ENDPOINT)

    def _on_refused(self, message: Refused) -> None:
        if (waiting := self._waiting(message.call)) is not None:
            waiting.answer.set_exception(_REFUSALS[message.kind](message.why))


class RemoteLimiter:
    """The limiter of a model in the process of the run."""

    given_up = None  # the run starts no trial whose endpoint was given up

    def __init__(self, key: str, calls: Calls) -> None:
        self._key = key
        self._calls = calls
        self._reached = False

    async def send(
        self, once: Callable[[], Awaitable[Completion]], request: QueuedRequest
    ) -> Completion:
        """Wait for the turn of *request*, send it, and tell how it went."""
        calls = self._calls
        call = await calls.turn(self._key, request)
        try:
            completion = await once()
        except (ProviderError, TimeoutError) as error:
            judged = await calls.judge(_failed(call, error, request))
            if isinstance(error, RetryableError):
                error.outage, error.probe = judged.outage, judged.probe
            raise
        except BaseException:
            calls.post(Dropped(call))
            raise
        usage = completion.usage
        calls.post(Answered(call, usage.input_tokens, usage.output_tokens))
        return completion

    async def wait_before_retry(self, seconds: float, request: QueuedRequest) -> None:
        """Wait before another try of *request*."""
        if request.on_wait:
            request.on_wait(Wait.RETRY)
        try:
            await self._calls.ask(lambda call: BackOff(call, self._key, seconds, request.begun))
        finally:
            if request.on_wait:
                request.on_wait(None)

    def on_headers(self, headers: Mapping[str, str]) -> None:
        """Tell what *headers* say of the endpoint's limits."""
        limits = tuple(parse_rate_limit_headers(headers))
        if limits or not self._reached:
            self._reached = True
            self._calls.post(Headers(self._key, limits))


class RemoteLimiters(Limiters):
    """The limiters of a run, as one of its workers has them."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self.calls = calls
        self._remote: dict[str, RemoteLimiter] = {}

    def of(self, spec: ModelSpec) -> Limiter:
        """Return the limiter for the requests of *spec*."""
        key = limiter_key(limiter_of(spec))
        if key not in self._remote:
            self._remote[key] = RemoteLimiter(key, self.calls)
        return self._remote[key]


def _failed(call: int, error: ProviderError | TimeoutError, request: QueuedRequest) -> Failed:
    """Return what the run is told of *error*."""
    question = int(digest(repr(request.question))[:15], 16)
    if isinstance(error, TimeoutError):
        return Failed(call, _TIMEOUT, str(error), question)
    why, status = well_formed(str(error)), error.status
    if isinstance(error, UnreachableError):
        return Failed(call, _UNREACHABLE, why, question)
    if isinstance(error, RetryableError):
        return Failed(
            call,
            _RETRYABLE,
            why,
            question,
            billable=error.billable,
            status=status,
            retry_after_s=error.retry_after_s,
            overload=error.overload,
        )
    return Failed(
        call,
        _FAULT,
        why,
        question,
        transient=error.transient,
        billable=error.billable,
        status=status,
    )


class RemoteBudget:
    """The budget of the run, as one attempt in a worker has it."""

    def __init__(self, job: int, calls: Calls, *, capped: bool) -> None:
        self.capped = capped
        self._job = job
        self._calls = calls

    async def hold(self, bound: Bound) -> None:
        """Reserve *bound* for a request; wait for others if it may still fit."""
        await self._calls.ask(
            lambda call: Hold(call, self._job, bound.usd, bound.tokens, now=False)
        )

    async def hold_now(self, bound: Bound) -> None:
        """Reserve *bound* for a request that cannot wait."""
        await self._calls.ask(lambda call: Hold(call, self._job, bound.usd, bound.tokens, now=True))

    def settle(self, bound: Bound, bill: Bill) -> None:
        """Release the reservation of a request and book its cost."""
        self._calls.post(Settled(self._job, bound.usd, bound.tokens, bill))

    def book(self, bill: Bill) -> None:
        """Book what was spent before, without a reservation."""
        self._calls.post(Booked(self._job, bill))
