"""One question over HTTP and its answer, whole or as a stream, in whichever dialect."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from bakeoff._lib.clock import monotonic
from bakeoff.core.outcome import Completion
from bakeoff.core.values import Json
from bakeoff.models.http import HttpClient
from bakeoff.models.json_wire import plain
from bakeoff.models.sse import Events

E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)


class Pieces(Protocol[E_contra]):
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
    pieces: Callable[[], Pieces[E]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is sent, where to, and how the answer is to come."""

    url: str
    payload: dict[str, Json]
    stream: bool = False
    keep_raw: bool = False
    flags: tuple[str, ...] = ()


async def ask(
    client: HttpClient, question: Question, body: bytes, reading: Reading[E]
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
    client: HttpClient, question: Question, body: bytes, reading: Reading[E]
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
