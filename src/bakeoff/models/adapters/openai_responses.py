"""OpenAI's Responses API.

Written to the documented wire format; not tried against the live service.

* Nothing is said about `store`, so the service's own default holds. With `store = false`, give
  `include = ["reasoning.encrypted_content"]` as well where reasoning should go on across tool
  calls: reasoning items that the service did not store and did not encrypt are left out.
* `exclude = false` asks for a summary of the reasoning.
* The API has no seed: one that is given is left out, and the completion flagged `seed_ignored`.
  It has no `stop` either; that one is sent, and the service says so, for an answer that was not
  stopped would be another answer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

import msgspec

from bakeoff._lib.sanitize import one_line, well_formed
from bakeoff.core.attachment import Attachment
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.outcome import UNKNOWN_USAGE, Completion, Request, Tool, Usage
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.values import Json
from bakeoff.models.adapters.tool_calls import ReasoningEcho, tool_call
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
    parameters_of,
    take_limit,
    take_seed,
    take_thinking,
    take_tools,
)
from bakeoff.models.client.retry import RetryableError, fault_of
from bakeoff.models.client.settings import base_url_of, endpoint, headers_of, settings_of
from bakeoff.models.limits.limiter import UNLIMITED, Limiter

Item = Mapping[str, Json]

_INCOMPLETE = {"max_output_tokens": "length", "content_filter": "content_filter"}
_LAST = frozenset({"response.completed", "response.incomplete", "response.failed"})
_TOKENS = frozenset(
    {
        "response.output_text.delta",
        "response.refusal.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
        "response.function_call_arguments.delta",
    }
)


class ResponsesDetails(msgspec.Struct):
    """Token counts in detail."""

    cached_tokens: float | None = None
    reasoning_tokens: float | None = None


class ResponsesUsageCounts(UsageFields):
    """Token counts."""

    input_tokens: float | None = None
    output_tokens: float | None = None
    input_tokens_details: ResponsesDetails | None = None
    output_tokens_details: ResponsesDetails | None = None

    def usage(self) -> Usage:
        """Return the counts as a `Usage`."""
        cached, fine = self.input_tokens_details, self.output_tokens_details
        return Usage(
            input_tokens=count(self.input_tokens),
            output_tokens=count(self.output_tokens),
            reasoning_tokens=count(fine.reasoning_tokens) if fine else None,
            cached_tokens=count(cached.cached_tokens) if cached else None,
        )


class IncompleteDetails(msgspec.Struct):
    """Why an answer ended early."""

    reason: str | None = None


class ResponsesReply(msgspec.Struct):
    """A response; the items of its output are kept as they came."""

    status: str | None = None
    output: list[dict[str, Json]] | None = None
    incomplete_details: IncompleteDetails | None = None
    model: str | None = None
    usage: ResponsesUsageCounts | None = None
    error: Json = None


class ResponsesEvent(msgspec.Struct):
    """One event of a stream; an error stands in it, or below `error`."""

    type: str = ""
    response: ResponsesReply | None = None
    output_index: int = 0
    item: dict[str, Json] | None = None
    delta: Json = None
    error: Json = None
    code: Json = None
    message: str | None = None


_replies = msgspec.json.Decoder(ResponsesReply)
_events = msgspec.json.Decoder(ResponsesEvent)


def decode(data: bytes, content_type: str = "") -> ResponsesReply:
    """Return a whole answer."""
    return json_fields.decode(data, _replies, content_type=content_type)


def decode_event(data: bytes) -> ResponsesEvent:
    """Return one event of a stream."""
    return json_fields.decode(data, _events)


def completion_of(reply: ResponsesReply) -> Completion:
    """Return the completion that is in a response."""
    if reply.error is not None or reply.status == "failed":
        raise fault_of(reply.error, "an error instead of an answer")
    if reply.status not in {None, "completed", "incomplete"}:
        raise RetryableError(
            f"the answer is not complete: its status is {one_line(reply.status or '')}"
        )
    output = reply.output or []
    refusal = _said(output, "refusal", "refusal")
    text = _said(output, "output_text", "text") or refusal
    reasoning = _reasoning_wire(output)
    items = [item for item in output if item.get("type") == "function_call"]
    calls = tuple(_call_wire(item, number) for number, item in enumerate(items))
    reason = _stop_reason(reply, refused=bool(refusal), called=bool(calls))
    if reply.status != "incomplete" and not (text or calls):
        raise RetryableError("the answer has no content")
    return Completion(
        text=text,
        reasoning=reasoning or None,
        tool_calls=calls,
        stop_reason=reason,
        model=well_formed(reply.model) if reply.model else None,
        usage=reply.usage.usage() if reply.usage else UNKNOWN_USAGE,
        flags=reply.usage.flags if reply.usage else (),
    )


def _stop_reason(reply: ResponsesReply, *, refused: bool, called: bool) -> str | None:
    if reply.status == "incomplete":
        given = reply.incomplete_details.reason if reply.incomplete_details else None
        return _INCOMPLETE.get(given or "", well_formed(given or "incomplete"))
    if called:
        return "tool_calls"
    return "refusal" if refused else "stop" if reply.status else None


def _parts(item: Item, field: str) -> Sequence[Item]:
    parts = item.get(field)
    listed = parts if isinstance(parts, list) else []
    return [part for part in listed if isinstance(part, Mapping)]


def _said(output: Sequence[Item], kind: str, field: str) -> str:
    parts = [p for item in output if item.get("type") == "message" for p in _parts(item, "content")]
    return well_formed("".join(string(p.get(field)) for p in parts if p.get("type") == kind))


def _reasoning_wire(output: Sequence[Item]) -> str:
    """Return the reasoning in full where it is given, else its summaries."""
    thoughts = [
        string(part.get("text"))
        for item in output
        if item.get("type") == "reasoning"
        for part in _parts(item, "content") or _parts(item, "summary")
    ]
    return well_formed("\n\n".join(text for text in thoughts if text))


def _call_wire(item: Item, number: int) -> ToolCall:
    key = string(item.get("call_id")) or string(item.get("id")) or f"call_{number}"
    return tool_call(key, string(item.get("name")), item.get("arguments"))


class ResponsesPieces:
    """Assembles a streamed response; *read* turns the whole into a completion."""

    def __init__(self, read: Callable[[ResponsesReply], Completion]) -> None:
        self._read = read
        self._items: list[tuple[int, dict[str, Json]]] = []
        self._reply: ResponsesReply | None = None
        self._first_token_s: float | None = None

    @property
    def finished(self) -> bool:
        """Whether the last event has arrived."""
        return self._reply is not None

    over = finished

    def take(self, event: ResponsesEvent, *, at_s: float) -> None:
        """Add one event; the last one holds the whole response."""
        if event.type == "error" or event.error is not None:
            flat: Json = {"code": event.code, "message": event.message}
            raise fault_of(flat if event.error is None else event.error, "the stream broke")
        if event.type in _TOKENS and event.delta and self._first_token_s is None:
            self._first_token_s = at_s
        if event.type == "response.output_item.done" and event.item is not None:
            self._items.append((event.output_index, event.item))
        if event.type in _LAST:
            self._reply = event.response or ResponsesReply()

    def completion(self, *, elapsed_s: float) -> Completion:
        """Return the completion; a stream without its last event was cut off."""
        if self._reply is None:
            raise RetryableError(
                "the stream ended before the answer did: no response.completed came"
            )
        items = [item for _, item in sorted(self._items, key=itemgetter(0))]
        reply = msgspec.structs.replace(self._reply, output=self._reply.output or items)
        return replace(self._read(reply), elapsed_s=elapsed_s, first_token_s=self._first_token_s)


class ResponsesSettings(EndpointClientSettings, frozen=True):
    """Request settings."""


def build(spec: ModelSpec, limiter: Limiter = UNLIMITED) -> DialectModel[ResponsesEvent]:
    """Return the model that *spec* names."""
    url = endpoint(
        base_url_of(spec, example="https://api.openai.com/v1"), version="v1", path="/responses"
    )
    settings = settings_of(spec, ResponsesSettings)
    endpoint_client = EndpointClient(HttpClient(headers_of(spec)), settings, limiter)
    return DialectModel(spec, OpenAIResponses(spec, settings, url), endpoint_client)


class OpenAIResponses:
    """OpenAI's Responses API."""

    def __init__(self, spec: ModelSpec, settings: ResponsesSettings, url: str) -> None:
        self._name = spec.name
        self._parameters = spec.parameters
        self._settings = settings
        self._url = url
        self._kept = ReasoningEcho()
        self.reader = ResponseReader(
            whole=lambda body, content_type: self._read(decode(body, content_type)),
            event=decode_event,
            pieces=lambda: ResponsesPieces(self._read),
        )

    def wire_request(self, request: Request) -> WireRequest:
        """Return *request* in the wire format."""
        parameters = parameters_of(request, self._parameters, omit=self._settings.omit)
        flags = take_seed(parameters)
        payload = self._payload(request, parameters)
        return WireRequest.of(self._url, payload, self._settings, flags)

    def _read(self, reply: ResponsesReply) -> Completion:
        completion = completion_of(reply)
        self._kept.keep(completion, reply.output or ())
        return completion

    def _payload(self, request: Request, parameters: dict[str, Json]) -> dict[str, Json]:
        stored = parameters.get("store") is not False
        payload: dict[str, Json] = {
            "model": self._name,
            "input": [i for m in request.messages for i in self._items(m, stored=stored)],
        }
        limit = take_limit(parameters)
        if limit is not None:
            payload["max_output_tokens"] = limit
        if tools := take_tools(request, parameters):
            payload["tools"] = [_tool(tool) for tool in tools]
        if reasoning := _reasoning(parameters):
            payload["reasoning"] = reasoning
        if parameters.pop("stream", self._settings.stream):
            payload["stream"] = True
        payload.update(parameters)
        if request.schema is not None:
            payload["text"] = _formatted(payload.get("text"), request.schema)
        return payload

    def _items(self, message: Message, *, stored: bool) -> Iterator[Json]:
        if message.role == "tool":
            yield {
                "type": "function_call_output",
                "call_id": message.tool_call_id or "",
                "output": message.content,
            }
            return
        kept = self._kept.of(message)
        if kept is not None:
            yield from _sendable(kept, stored=stored)
            return
        if message.content or message.attachments or not message.tool_calls:
            yield {"role": message.role, "content": _content(message)}
        yield from map(_call, message.tool_calls)


def _content(message: Message) -> Json:
    if not message.attachments:
        return message.content
    return [_part(part) for part in message.parts()]


def _part(part: str | Attachment) -> dict[str, Json]:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    if part.is_image:
        return {"type": "input_image", "image_url": part.data_uri()}
    return {
        "type": "input_file",
        "filename": part.name or part.blob,
        "file_data": part.data_uri(),
    }


def _sendable(items: Sequence[Item], *, stored: bool) -> Iterator[Item]:
    """Yield the items of an answer; without reasoning that the service could not know again."""
    lost = [i for i in items if i.get("type") == "reasoning" and not i.get("encrypted_content")]
    if stored or not lost:
        yield from items
        return
    for item in items:
        if item.get("type") != "reasoning":
            # by its id the service would miss the reasoning that led to it
            yield {key: value for key, value in item.items() if key != "id"}


def _call(call: ToolCall) -> dict[str, Json]:
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
    }


def _tool(tool: Tool) -> dict[str, Json]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters or {"type": "object", "properties": {}},
        "strict": False,  # the default here, unlike in every other API
    }


def _reasoning(parameters: dict[str, Json]) -> dict[str, Json]:
    """Remove and return the options of reasoning, with what only this API knows."""
    given = parameters.get("reasoning")
    thinking = take_thinking(parameters)
    options = dict(given) if isinstance(given, Mapping) else {}
    options.pop("exclude", None)
    if thinking.effort is not None:
        options["effort"] = thinking.effort
    if thinking.exclude is False:
        options.setdefault("summary", "auto")
    return options


def _formatted(text: Json, schema: Mapping[str, Json]) -> dict[str, Json]:
    form: Json = {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
    return {**(text if isinstance(text, Mapping) else {}), "format": form}
