"""The line to one endpoint: its connections, its tries, its place in the queue."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Generic, Protocol, TypeVar

from msgspec import Meta

from bakeoff._lib.clock import monotonic
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.values import Json
from bakeoff.models.client.bounded_body import LARGEST_BODY
from bakeoff.models.client.http import HttpClient
from bakeoff.models.client.json_fields import encode, plain
from bakeoff.models.client.parameters import RefusedParameters
from bakeoff.models.client.retry import RetryPolicy, with_retries
from bakeoff.models.limits.limiter import OPEN, Limiter
from bakeoff.models.limits.settings import LimitSettings

_WEEK_S = 7 * 24 * 3600.0


class EndpointClientSettings(LimitSettings, frozen=True):
    """How an endpoint is asked, and how much at most.

    `timeout_s` bounds a request with all its tries, but not its wait for a turn. Parameters that
    `omit` names are never sent, whoever gives them.
    """

    timeout_s: Annotated[float, Meta(gt=0, le=_WEEK_S)] = 600.0
    max_retries: Annotated[int, Meta(ge=0)] = 5
    retry_delay_s: Annotated[float, Meta(ge=0, le=_WEEK_S)] = 0.5
    retry_backoff: Annotated[float, Meta(ge=1)] = 2.0
    stream: bool = False
    keep_raw: bool = False
    omit: tuple[str, ...] = ()
    max_answer_mib: Annotated[int, Meta(ge=1, le=2048)] = LARGEST_BODY >> 20

    @property
    def policy(self) -> RetryPolicy:
        """How often, how soon, and by when at the latest."""
        return RetryPolicy(
            max_retries=self.max_retries,
            delay_s=self.retry_delay_s,
            backoff=self.retry_backoff,
            deadline_s=self.timeout_s,
        )


class EndpointClient:
    """Model one endpoint, again where that may help, and never past its limits."""

    def __init__(
        self, client: HttpClient, settings: EndpointClientSettings, gate: Limiter = OPEN
    ) -> None:
        self.client = client
        client.largest_body = settings.max_answer_mib << 20
        self._policy = settings.policy
        self._gate = gate
        if gate is not OPEN:
            client.on_headers = gate.heard

    async def ask(self, once: Callable[[], Awaitable[Completion]], request: Request) -> Completion:
        """Return what *once* returns, or the fault that outlived the retries."""
        completion, retries = await with_retries(
            once,
            self._policy,
            through=lambda try_once: self._gate.through(try_once, request),
            rest=lambda seconds: self._gate.rest(seconds, request),
            on_retry=request.on_retry,
            on_lost=request.on_lost,
        )
        return replace(completion, retries=retries) if retries else completion

    async def close(self) -> None:
        """Close the connections."""
        await self.client.close()


_OTHER_FIELDS = (b":", b"event:", b"id:", b"retry:")
_DONE = b"[DONE]"


class Events:
    """The data of every event, up to the end or to `[DONE]`.

    `stray` gathers the lines that belong to no event: a whole answer all the same, an error as
    the last word, or a web page.
    """

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        self._lines = lines
        self.stray: list[bytes] = []

    def __aiter__(self) -> "Events":
        return self

    async def __anext__(self) -> bytes:
        async for line in self._lines:
            event = line.strip()
            if event.startswith(b"data:"):
                data = event[5:].lstrip()
                if data == _DONE:
                    break
                return data
            if event and not event.startswith(_OTHER_FIELDS):
                self.stray.append(line)
        raise StopAsyncIteration


E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)


class StreamPieces(Protocol[E_contra]):
    """A completion in the making."""

    @property
    def finished(self) -> bool:
        """Whether no piece is missing."""

    @property
    def over(self) -> bool:
        """Whether nothing more needs to be waited for."""

    def take(self, event: E_contra, *, at_s: float) -> None:
        """Add one event of the stream, which came *at_s* after the request."""

    def completion(self, *, elapsed_s: float) -> Completion:
        """Return the whole; a stream that was cut is a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Generic[E]):
    """How a dialect's answers are read: `whole` takes a body and its content type."""

    whole: Callable[[bytes, str], Completion]
    event: Callable[[bytes], E]
    pieces: Callable[[], StreamPieces[E]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRequest:
    """What is sent, where to, and how the answer is to come."""

    url: str
    payload: dict[str, Json]
    stream: bool = False
    keep_raw: bool = False
    flags: tuple[str, ...] = ()


async def ask(
    client: HttpClient, question: WireRequest, body: bytes, reading: Reading[E]
) -> Completion:
    """Return the answer to *question*, asked once with this *body*."""
    if question.stream:
        return await _streamed(client, question, body, reading)
    began = monotonic()
    answer = await client.post(question.url, body)
    elapsed_s = monotonic() - began
    completion = reading.whole(answer.body, answer.content_type)
    raw = plain(answer.body) if question.keep_raw else None
    return completion.timed(elapsed_s, raw)


async def _streamed(
    client: HttpClient, question: WireRequest, body: bytes, reading: Reading[E]
) -> Completion:
    began = monotonic()
    pieces = reading.pieces()
    async with client.stream(question.url, body) as lines:
        events = Events(lines)
        async for data in events:
            pieces.take(reading.event(data), at_s=monotonic() - began)
            if pieces.over:
                break
        elapsed_s = monotonic() - began
    if events.stray and not pieces.finished:
        return reading.whole(b"\n".join(events.stray), "").timed(elapsed_s)
    return pieces.completion(elapsed_s=elapsed_s)


class EndpointDialect(Protocol[E]):
    """How one API wants to be asked, and how its answers are read."""

    @property
    def reading(self) -> Reading[E]:
        """How its answers are read."""

    def question(self, request: Request) -> WireRequest:
        """Return *request* as it goes over the wire."""


class DialectModel(Generic[E]):
    """Model one model of one endpoint."""

    def __init__(self, spec: ModelSpec, dialect: EndpointDialect[E], line: EndpointClient) -> None:
        self._dialect = dialect
        self._line = line
        self._refused = RefusedParameters(spec.full_name)

    @property
    def notes(self) -> Sequence[str]:
        """What a person should know of how the model was asked."""
        return self._refused.notes

    async def complete(self, request: Request) -> Completion:
        """Return the answer, or the fault that outlived the retries."""
        question, reading = self._dialect.question(request), self._dialect.reading

        def send(payload: dict[str, Json]) -> Awaitable[Completion]:
            body = encode(payload)
            return self._line.ask(lambda: ask(self._line.client, question, body, reading), request)

        completion = await self._refused.ask(question.payload, send)
        if question.flags:
            return replace(completion, flags=(*completion.flags, *question.flags))
        return completion

    async def close(self) -> None:
        """Close the connections."""
        await self._line.close()
