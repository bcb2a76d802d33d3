"""The client of one endpoint: limiter, retries, server-sent events, and models in its dialect."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Generic, Protocol, TypeVar

from msgspec import Meta

from bakeoff._lib.clock import monotonic
from bakeoff._lib.value_object import value_object
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.values import Json
from bakeoff.models.client.http import LARGEST_BODY, HttpClient
from bakeoff.models.client.json_fields import encode, plain
from bakeoff.models.client.parameters import RefusedParameters
from bakeoff.models.client.retry import RetryPolicy, with_retries
from bakeoff.models.limits.limiter import UNLIMITED, Limiter
from bakeoff.models.limits.settings import LimitSettings

_WEEK_S = 7 * 24 * 3600.0


class EndpointClientSettings(LimitSettings, frozen=True):
    """How requests are sent to an endpoint, and its limits.

    `timeout_s` bounds a request with all its tries, but not its time in the queue. Parameters named
    by `omit` are never sent.
    """

    timeout_s: Annotated[float, Meta(gt=0, le=_WEEK_S)] = 600.0
    max_retries: Annotated[int, Meta(ge=0)] = 6
    retry_delay_s: Annotated[float, Meta(ge=0, le=_WEEK_S)] = 0.1
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
    """Sends requests to one endpoint, with retries and within its limits."""

    def __init__(
        self, client: HttpClient, settings: EndpointClientSettings, limiter: Limiter = UNLIMITED
    ) -> None:
        self.client = client
        client.largest_body = settings.max_answer_mib << 20
        self._policy = settings.policy
        self._limiter = limiter
        if limiter is not UNLIMITED:
            client.on_headers = limiter.on_headers

    async def send(self, once: Callable[[], Awaitable[Completion]], request: Request) -> Completion:
        """Return what *once* returns, or raise the fault that outlasted the retries."""
        completion, retries = await with_retries(
            once,
            self._policy,
            send=lambda try_once: self._limiter.send(try_once, request),
            sleep=lambda seconds: self._limiter.wait_before_retry(seconds, request),
            on_retry=request.on_retry,
            on_lost=request.on_lost,
        )
        return replace(completion, retries=retries) if retries else completion

    async def close(self) -> None:
        """Close the connections."""
        await self.client.close()


_REFUSES_CONTENT = frozenset({400, 404, 413, 415, 422})
_OTHER_FIELDS = (b":", b"event:", b"id:", b"retry:")
_DONE = b"[DONE]"


class Events:
    """The data of every server-sent event, up to the end or to `[DONE]`.

    `stray` collects the lines that belong to no event: a plain JSON answer, an error at the end, or
    a web page.
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


@contextmanager
def naming_attachments(request: Request) -> Iterator[None]:
    """Say which pictures and files *request* held where it is refused: not every model takes them."""
    try:
        yield
    except ProviderError as error:
        kinds = {a.media_type for message in request.messages for a in message.attachments}
        if not kinds or error.transient or error.status not in _REFUSES_CONTENT:
            raise
        raise ProviderError(
            f"{error}; the request held {' and '.join(sorted(kinds))}: does this model take that?",
            billable=error.billable,
            status=error.status,
        ) from error


E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)


class StreamPieces(Protocol[E_contra]):
    """A completion assembled from the events of a stream."""

    @property
    def finished(self) -> bool:
        """Whether it is complete."""

    @property
    def over(self) -> bool:
        """Whether no more events are needed."""

    def take(self, event: E_contra, *, at_s: float) -> None:
        """Add one event of the stream, received *at_s* after the request."""

    def completion(self, *, elapsed_s: float) -> Completion:
        """Return the whole; a stream that was cut is a fault."""


@value_object
class ResponseReader(Generic[E]):
    """How the responses of a dialect are parsed; `whole` takes a body and its content type."""

    whole: Callable[[bytes, str], Completion]
    event: Callable[[bytes], E]
    pieces: Callable[[], StreamPieces[E]]


@value_object
class WireRequest:
    """A request as it is sent: URL, payload, and whether the response is streamed."""

    url: str
    payload: dict[str, Json]
    stream: bool = False
    keep_raw: bool = False
    flags: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        url: str,
        payload: dict[str, Json],
        settings: EndpointClientSettings,
        flags: tuple[str, ...] = (),
    ) -> "WireRequest":
        """Return the request of a payload that says by itself whether the response is streamed."""
        stream = bool(payload.get("stream"))
        return cls(url=url, payload=payload, stream=stream, keep_raw=settings.keep_raw, flags=flags)


async def send_once(
    client: HttpClient, wire_request: WireRequest, body: bytes, reader: ResponseReader[E]
) -> Completion:
    """Return the answer to *wire_request*, asked once with this *body*."""
    if wire_request.stream:
        return await _streamed(client, wire_request, body, reader)
    began = monotonic()
    answer = await client.post(wire_request.url, body)
    elapsed_s = monotonic() - began
    completion = reader.whole(answer.body, answer.content_type)
    raw = plain(answer.body) if wire_request.keep_raw else None
    return completion.timed(elapsed_s, raw)


async def _streamed(
    client: HttpClient, wire_request: WireRequest, body: bytes, reader: ResponseReader[E]
) -> Completion:
    began = monotonic()
    pieces = reader.pieces()
    async with client.stream(wire_request.url, body) as lines:
        events = Events(lines)
        async for data in events:
            pieces.take(reader.event(data), at_s=monotonic() - began)
            if pieces.over:
                break
        elapsed_s = monotonic() - began
    if events.stray and not pieces.finished:
        return reader.whole(b"\n".join(events.stray), "").timed(elapsed_s)
    return pieces.completion(elapsed_s=elapsed_s)


class EndpointDialect(Protocol[E]):
    """How one API encodes requests and parses responses."""

    @property
    def reader(self) -> ResponseReader[E]:
        """How its responses are parsed."""

    def wire_request(self, request: Request) -> WireRequest:
        """Return *request* as it goes over the wire."""


class DialectModel(Generic[E]):
    """One model of one endpoint, called through the endpoint's dialect."""

    def __init__(self, spec: ModelSpec, dialect: EndpointDialect[E], line: EndpointClient) -> None:
        self._dialect = dialect
        self._endpoint_client = line
        self._refused = RefusedParameters(spec.full_name)

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the user about parameters that the endpoint refused."""
        return self._refused.notes

    async def complete(self, request: Request) -> Completion:
        """Return the answer, or raise the fault that outlasted the retries."""
        wire_request, reader = self._dialect.wire_request(request), self._dialect.reader

        def send(payload: dict[str, Json]) -> Awaitable[Completion]:
            body = encode(payload)
            return self._endpoint_client.send(
                lambda: send_once(self._endpoint_client.client, wire_request, body, reader), request
            )

        with naming_attachments(request):
            completion = await self._refused.send(wire_request.payload, send)
        if wire_request.flags:
            return replace(completion, flags=(*completion.flags, *wire_request.flags))
        return completion

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint_client.close()
