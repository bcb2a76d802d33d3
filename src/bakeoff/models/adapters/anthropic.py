"""Anthropic's Messages API.

Written to the documented wire format; not tried against the live service.

* A schema goes out as `output_config.format`, not as a forced tool: that would shut out the
  task's own tools, and thinking. Models without structured outputs answer it with HTTP 400.
* `effort` becomes `output_config.effort`. Thinking is the model's own default unless the
  parameter `thinking` says otherwise; `exclude` then says whether it is shown.
* The API has no seed: one that is given is left out, and the completion flagged `seed_ignored`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Annotated

import msgspec
from msgspec import Meta

from bakeoff._lib.sanitize import well_formed
from bakeoff.core.attachment import Attachment
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import UNKNOWN_USAGE, Completion, Request, Tool, Usage
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.values import Json
from bakeoff.models.adapters.tool_calls import ReasoningEcho, arguments_of, tool_call
from bakeoff.models.client import json_fields
from bakeoff.models.client.endpoint import (
    DialectModel,
    EndpointClient,
    EndpointClientSettings,
    ResponseReader,
    WireRequest,
)
from bakeoff.models.client.http import HttpClient
from bakeoff.models.client.json_fields import UsageFields, count, string
from bakeoff.models.client.parameters import (
    ThinkingBudget,
    parameters_of,
    take_limit,
    take_seed,
    take_stops,
    take_thinking,
    take_tools,
)
from bakeoff.models.client.retry import RetryableError, fault_of
from bakeoff.models.client.settings import base_url_of, endpoint, headers_of, settings_of
from bakeoff.models.limits.limiter import UNLIMITED, Limiter

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
    """Token counts in detail."""

    thinking_tokens: float | None = None


class AnthropicUsageCounts(UsageFields):
    """Token counts; `input_tokens` holds neither what the cache gave nor what went into it."""

    input_tokens: float | None = None
    output_tokens: float | None = None
    cache_creation_input_tokens: float | None = None
    cache_read_input_tokens: float | None = None
    output_tokens_details: OutputDetails | None = None

    def usage(self) -> Usage:
        """Return the counts as a `Usage`."""
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

    def updated(self, later: "AnthropicUsageCounts") -> "AnthropicUsageCounts":
        """Return these counts updated by *later*; they are cumulative."""
        given = {f: v for f in self.__struct_fields__ if (v := getattr(later, f)) is not None}
        given["unreadable"] = self.unreadable or later.unreadable
        return msgspec.structs.replace(self, **given)


class AnthropicReply(msgspec.Struct):
    """A message, or an error instead of one; `content` is kept as it came."""

    content: list[dict[str, Json]] | None = None
    stop_reason: str | None = None
    model: str | None = None
    usage: AnthropicUsageCounts | None = None
    error: Json = None


class AnthropicEvent(msgspec.Struct):
    """One event of a stream."""

    type: str = ""
    index: int = 0
    message: AnthropicReply | None = None
    content_block: dict[str, Json] | None = None
    delta: dict[str, Json] | None = None
    usage: AnthropicUsageCounts | None = None
    error: Json = None


_replies = msgspec.json.Decoder(AnthropicReply)
_events = msgspec.json.Decoder(AnthropicEvent)


def decode(data: bytes, content_type: str = "") -> AnthropicReply:
    """Return a whole answer."""
    return json_fields.decode(data, _replies, content_type=content_type)


def decode_event(data: bytes) -> AnthropicEvent:
    """Return one event of a stream."""
    return json_fields.decode(data, _events)


def completion_of(reply: AnthropicReply) -> Completion:
    """Return the completion that is in a message."""
    if reply.error is not None:
        raise fault_of(reply.error, "an error instead of an answer")
    if reply.content is None:
        raise RetryableError("the answer has no content")
    if reply.stop_reason is None:
        raise RetryableError("the answer is not complete: its stop_reason is null")
    text = _joined(reply.content, "text")
    reasoning = _joined(reply.content, "thinking")
    blocks = [block for block in reply.content if block.get("type") == "tool_use"]
    calls = tuple(_call_wire(block, number) for number, block in enumerate(blocks))
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


def _call_wire(block: Mapping[str, Json], number: int = 0) -> ToolCall:
    key = string(block.get("id")) or f"call_{number}"
    return tool_call(key, string(block.get("name")), block.get("input"))


class Draft:
    """A content block that is still being streamed."""

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


class AnthropicPieces:
    """Assembles a streamed message; *read* turns the whole into a completion."""

    def __init__(self, read: Callable[[AnthropicReply], Completion]) -> None:
        self._read = read
        self._model: str | None = None
        self._usage = AnthropicUsageCounts()
        self._stop_reason: str | None = None
        self._drafts: list[tuple[int, Draft]] = []
        self._latest: dict[int, Draft] = {}
        self._first_token_s: float | None = None
        self.over = False

    @property
    def finished(self) -> bool:
        """Whether the last event has arrived."""
        return self.over

    def take(self, event: AnthropicEvent, *, at_s: float) -> None:
        """Add one event; unknown kinds are ignored, as the API documents."""
        if event.error is not None or event.type == "error":
            raise fault_of(event.error, "the stream broke")
        if event.message is not None:
            self._model = event.message.model
            self._usage = self._usage.updated(event.message.usage or AnthropicUsageCounts())
        if event.usage is not None:
            self._usage = self._usage.updated(event.usage)
        if event.content_block is not None:
            self._latest[event.index] = Draft(event.content_block)
            self._drafts.append((event.index, self._latest[event.index]))
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
        if index not in self._latest:
            raise RetryableError("the stream holds a piece of a block that never began")
        self._latest[index].add(field, piece)
        if self._first_token_s is None and field != "signature":
            self._first_token_s = at_s

    def completion(self, *, elapsed_s: float) -> Completion:
        """Return the completion; a stream without its last event was cut off."""
        if not self.over:
            raise RetryableError("the stream ended before the answer did: no message_stop came")
        reply = AnthropicReply(
            content=[draft.block() for _, draft in sorted(self._drafts, key=itemgetter(0))],
            stop_reason=self._stop_reason,
            model=self._model,
            usage=self._usage,
        )
        return replace(self._read(reply), elapsed_s=elapsed_s, first_token_s=self._first_token_s)


def sendable(content: Iterable[Mapping[str, Json]]) -> list[Mapping[str, Json]]:
    """Return the content of an answer as it is sent back: no empty texts, inputs as objects."""
    blocks = [b for b in content if b.get("type") != "text" or string(b.get("text")).strip()]
    return [
        {**b, "input": arguments_of(_call_wire(b))}
        if b.get("type") == "tool_use" and not isinstance(b.get("input"), Mapping)
        else b
        for b in blocks
    ]


_SYSTEM = frozenset({"system", "developer"})
_TOOL_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


class AnthropicSettings(EndpointClientSettings, frozen=True):
    """Request settings; the API requires a limit on the length of an answer."""

    max_tokens: Annotated[int, Meta(ge=1)] = 4096
    anthropic_version: str = "2023-06-01"


def build(spec: ModelSpec, limiter: Limiter = UNLIMITED) -> DialectModel[AnthropicEvent]:
    """Return the model that *spec* names."""
    url = endpoint(
        base_url_of(spec, example="https://api.anthropic.com"), version="v1", path="/messages"
    )
    settings = settings_of(spec, AnthropicSettings)
    version = {"anthropic-version": settings.anthropic_version}
    headers = headers_of(spec, key="x-api-key", scheme="", also=version)
    endpoint_client = EndpointClient(HttpClient(headers), settings, limiter)
    return DialectModel(spec, Anthropic(spec, settings, url), endpoint_client)


class Anthropic:
    """Anthropic's Messages API."""

    def __init__(self, spec: ModelSpec, settings: AnthropicSettings, url: str) -> None:
        self._name = spec.name
        self._parameters = spec.parameters
        self._settings = settings
        self._url = url
        self._kept = ReasoningEcho()
        self.reader = ResponseReader(
            whole=lambda body, content_type: self._read(decode(body, content_type)),
            event=decode_event,
            pieces=lambda: AnthropicPieces(self._read),
        )

    def wire_request(self, request: Request) -> WireRequest:
        """Return *request* in the wire format."""
        parameters = parameters_of(request, self._parameters, omit=self._settings.omit)
        flags = take_seed(parameters)
        payload = self._payload(request, parameters)
        return WireRequest.of(self._url, payload, self._settings, flags)

    def _read(self, reply: AnthropicReply) -> Completion:
        completion = completion_of(reply)
        self._kept.keep(completion, sendable(reply.content or ()))
        return completion

    def _payload(self, request: Request, parameters: dict[str, Json]) -> dict[str, Json]:
        payload: dict[str, Json] = {"model": self._name}
        payload["max_tokens"] = take_limit(parameters) or self._settings.max_tokens
        if system := [m.content for m in request.messages if m.role in _SYSTEM]:
            payload["system"] = "\n\n".join(system)
        payload["messages"] = list(self._turns(request.messages))
        if stops := take_stops(parameters):
            payload["stop_sequences"] = stops
        if tools := take_tools(request, parameters):
            payload["tools"] = [_tool(tool) for tool in tools]
        thinking = take_thinking(parameters)
        if parameters.pop("stream", self._settings.stream):
            payload["stream"] = True
        payload.update(parameters)
        _choose_tools(payload)
        _configure(payload, thinking, request.schema)
        return payload

    def _turns(self, messages: Sequence[Message]) -> Iterator[dict[str, Json]]:
        """Yield the turns of a conversation; results of tools that ran together stay together."""
        results: list[Json] = []
        for message in messages:
            if message.role in _SYSTEM:
                continue
            if message.role == "tool":
                results.append(_result(message))
                continue
            if results:
                yield {"role": "user", "content": results}
                results = []
            yield {"role": message.role, "content": self._content(message)}
        if results:
            yield {"role": "user", "content": results}

    def _content(self, message: Message) -> Json:
        if message.attachments:
            return [_part(part) for part in message.parts()]
        kept = self._kept.of(message)
        if kept is not None or not message.tool_calls:
            return message.content if kept is None else kept
        said: list[Json] = [{"type": "text", "text": message.content}] if message.content else []
        return [*said, *map(_call, message.tool_calls)]


def _part(part: str | Attachment) -> dict[str, Json]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    source = {"type": "base64", "media_type": part.media_type, "data": part.base64()}
    if part.is_image:
        return {"type": "image", "source": source}
    return {"type": "document", "source": source, "title": part.name or part.blob}


def _call(call: ToolCall) -> dict[str, Json]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments_of(call)}


def _result(message: Message) -> dict[str, Json]:
    return {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id or "",
        "content": message.content,
    }


def _tool(tool: Tool) -> dict[str, Json]:
    schema = tool.parameters or {"type": "object", "properties": {}}
    return {"name": tool.name, "description": tool.description, "input_schema": schema}


def _choose_tools(payload: dict[str, Json]) -> None:
    choice = payload.get("tool_choice")
    if isinstance(choice, str):
        payload["tool_choice"] = {"type": _TOOL_CHOICES.get(choice, choice)}


def _configure(
    payload: dict[str, Json], thinking: ThinkingBudget, schema: Mapping[str, Json] | None
) -> None:
    """Move effort, format and thinking to where the API expects them."""
    given = payload.pop("output_config", None)
    config: dict[str, Json] = dict(given) if isinstance(given, Mapping) else {}
    if thinking.effort is not None:
        config["effort"] = thinking.effort
    if schema is not None:
        config["format"] = {"type": "json_schema", "schema": schema}
    if config:
        payload["output_config"] = config
    if thinking.max_tokens is not None:
        payload.setdefault("thinking", {"type": "enabled", "budget_tokens": thinking.max_tokens})
    shown = payload.get("thinking")
    if thinking.exclude is not None and isinstance(shown, Mapping):
        display = "omitted" if thinking.exclude else "summarized"
        payload["thinking"] = {"display": display, **shown}
