"""What Anthropic's Messages API says, whole or as a stream of events, made into completions."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import msgspec

from bakeoff._lib.untrusted import well_formed
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import UNKNOWN_USAGE, Completion, Usage
from bakeoff.core.task import ToolCall
from bakeoff.core.values import Json
from bakeoff.models import json_wire
from bakeoff.models.faults import fault_of
from bakeoff.models.json_wire import Counts, count, string
from bakeoff.models.retry import TryAgain
from bakeoff.models.tool_calls import arguments_of, tool_call

EMPTY = "empty"

_STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}
_DELTAS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


class OutputDetails(msgspec.Struct):
    """The finer counts."""

    thinking_tokens: float | None = None


class UsageCounts(Counts):
    """Token counts; `input_tokens` holds neither what the cache gave nor what went into it."""

    input_tokens: float | None = None
    output_tokens: float | None = None
    cache_creation_input_tokens: float | None = None
    cache_read_input_tokens: float | None = None
    output_tokens_details: OutputDetails | None = None

    def usage(self) -> Usage:
        """Return the counts as ours."""
        cached = count(self.cache_read_input_tokens)
        fresh = count(self.input_tokens)
        stored = count(self.cache_creation_input_tokens) or 0
        fine = self.output_tokens_details
        return Usage(
            input_tokens=None if fresh is None else fresh + stored + (cached or 0),
            output_tokens=count(self.output_tokens),
            reasoning_tokens=count(fine.thinking_tokens) if fine else None,
            cached_tokens=cached,
        )

    def updated(self, later: "UsageCounts") -> "UsageCounts":
        """Return these counts with those that *later* knows better; they are cumulative."""
        given = {f: v for f in self.__struct_fields__ if (v := getattr(later, f)) is not None}
        given["unreadable"] = self.unreadable or later.unreadable
        return msgspec.structs.replace(self, **given)


class Reply(msgspec.Struct):
    """A message, or an error instead of one; `content` is kept as it came."""

    content: list[dict[str, Json]] | None = None
    stop_reason: str | None = None
    model: str | None = None
    usage: UsageCounts | None = None
    error: Json = None


class Event(msgspec.Struct):
    """One event of a stream."""

    type: str = ""
    index: int = 0
    message: Reply | None = None
    content_block: dict[str, Json] | None = None
    delta: dict[str, Json] | None = None
    usage: UsageCounts | None = None
    error: Json = None


_replies = msgspec.json.Decoder(Reply)
_events = msgspec.json.Decoder(Event)


def decode(data: bytes, content_type: str = "") -> Reply:
    """Return a whole answer."""
    return json_wire.decode(data, _replies, content_type=content_type)


def decode_event(data: bytes) -> Event:
    """Return one event of a stream."""
    return json_wire.decode(data, _events)


def completion_of(reply: Reply) -> Completion:
    """Return the completion that is in a message."""
    if reply.error is not None:
        raise fault_of(reply.error, "an error instead of an answer")
    if reply.content is None:
        raise TryAgain("the answer has no content")
    if reply.stop_reason is None:
        raise TryAgain("the answer is not complete: its stop_reason is null")
    text = _joined(reply.content, "text")
    reasoning = _joined(reply.content, "thinking")
    calls = tuple(_call(b) for b in reply.content if b.get("type") == "tool_use")
    reason = _STOP_REASONS.get(reply.stop_reason, well_formed(reply.stop_reason))
    return Completion(
        text=text,
        reasoning=reasoning or None,
        tool_calls=calls,
        stop_reason=reason,
        model=well_formed(reply.model) if reply.model else None,
        usage=reply.usage.usage() if reply.usage else UNKNOWN_USAGE,
        # documented: Claude may end its turn without a word, and asking again does not help
        flags=(
            *((EMPTY,) if reason == "stop" and not (text or calls) else ()),
            *(reply.usage.flags if reply.usage else ()),
        ),
    )


def _joined(content: list[dict[str, Json]], kind: str) -> str:
    texts = [b.get(kind) for b in content if b.get("type") == kind]
    if not all(isinstance(text, str) for text in texts):
        raise ProviderError(f"an answer of the wrong shape: a block of {kind} that holds none")
    return well_formed("".join(map(string, texts)))


def _call(block: Mapping[str, Json]) -> ToolCall:
    return tool_call(string(block.get("id")), string(block.get("name")), block.get("input"))


class Draft:
    """A block of content whose pieces still come."""

    def __init__(self, start: Mapping[str, Json]) -> None:
        self._start = start
        self._pieces: dict[str, list[str]] = {}

    def add(self, field: str, piece: str) -> None:
        """Add a piece of one field."""
        self._pieces.setdefault(field, []).append(piece)

    def block(self) -> dict[str, Json]:
        """Return the block, its input still the text that was written."""
        block = dict(self._start)
        for field, pieces in self._pieces.items():
            if field == "partial_json":
                block["input"] = "".join(pieces)
            else:
                block[field] = string(block.get(field)) + "".join(pieces)
        return block


class Pieces:
    """A message that comes as a stream; *read* makes the whole into a completion."""

    def __init__(self, read: Callable[[Reply], Completion]) -> None:
        self._read = read
        self._model: str | None = None
        self._usage = UsageCounts()
        self._stop_reason: str | None = None
        self._drafts: dict[int, Draft] = {}
        self._first_token_s: float | None = None
        self.over = False

    @property
    def finished(self) -> bool:
        """Whether the last event came."""
        return self.over

    def take(self, event: Event, *, at_s: float) -> None:
        """Add one event; kinds that are not known mean nothing, as the API asks of its users."""
        if event.error is not None or event.type == "error":
            raise fault_of(event.error, "the stream broke")
        if event.message is not None:
            self._model = event.message.model
            self._usage = self._usage.updated(event.message.usage or UsageCounts())
        if event.usage is not None:
            self._usage = self._usage.updated(event.usage)
        if event.content_block is not None:
            self._drafts[event.index] = Draft(event.content_block)
            self._begin(event.content_block, at_s)
        if event.delta is not None:
            self._add(event.index, event.delta, at_s)
        self.over = self.over or event.type == "message_stop"

    def _begin(self, block: Mapping[str, Json], at_s: float) -> None:
        says = block.get("text") or block.get("thinking") or block.get("type") == "tool_use"
        if says and self._first_token_s is None:
            self._first_token_s = at_s

    def _add(self, index: int, delta: Mapping[str, Json], at_s: float) -> None:
        self._stop_reason = string(delta.get("stop_reason")) or self._stop_reason
        field = _DELTAS.get(string(delta.get("type")))
        piece = string(delta.get(field)) if field else ""
        if not field or not piece:
            return
        if index not in self._drafts:
            raise TryAgain("the stream holds a piece of a block that never began")
        self._drafts[index].add(field, piece)
        if self._first_token_s is None and field != "signature":
            self._first_token_s = at_s

    def completion(self, *, elapsed_s: float) -> Completion:
        """Return the whole; a stream without its last event was cut."""
        if not self.over:
            raise TryAgain("the stream ended before the answer did: no message_stop came")
        reply = Reply(
            content=[self._drafts[index].block() for index in sorted(self._drafts)],
            stop_reason=self._stop_reason,
            model=self._model,
            usage=self._usage,
        )
        return replace(self._read(reply), elapsed_s=elapsed_s, first_token_s=self._first_token_s)


def sendable(content: Iterable[Mapping[str, Json]]) -> list[Mapping[str, Json]]:
    """Return the content of an answer as a request takes it: no empty texts, inputs as objects."""
    blocks = [b for b in content if b.get("type") != "text" or string(b.get("text")).strip()]
    return [
        {**b, "input": arguments_of(_call(b))}
        if b.get("type") == "tool_use" and not isinstance(b.get("input"), Mapping)
        else b
        for b in blocks
    ]
