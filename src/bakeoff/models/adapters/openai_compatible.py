"""Every server that speaks OpenAI's chat or completions API."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from bakeoff._lib.sanitize import well_formed
from bakeoff._lib.value_object import value_object
from bakeoff.core.attachment import Attachment
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import UNKNOWN_USAGE, Completion, Request, Usage
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.values import Json
from bakeoff.models.adapters.tool_calls import CallDrafts, function_tool, tool_call
from bakeoff.models.client import json_fields
from bakeoff.models.client.endpoint import (
    DialectModel,
    EndpointClient,
    EndpointClientSettings,
    ResponseReader,
    WireRequest,
)
from bakeoff.models.client.http import HttpClient
from bakeoff.models.client.json_fields import UsageFields, count
from bakeoff.models.client.parameters import parameters_of
from bakeoff.models.client.retry import RetryableError, error_text, fault_of
from bakeoff.models.client.settings import base_url_of, headers_of, settings_of
from bakeoff.models.limits.limiter import UNLIMITED, Limiter

__all__ = ["ChatPieces", "ChatReply", "decode", "error_text", "whole"]


class ChatDetails(msgspec.Struct):
    """Token counts in detail."""

    reasoning_tokens: float | None = None
    cached_tokens: float | None = None


class ChatUsageCounts(UsageFields):
    """Token counts; `cost` is what some providers bill."""

    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    completion_tokens_details: ChatDetails | None = None
    prompt_tokens_details: ChatDetails | None = None
    cost: float | None = None

    def usage(self) -> Usage:
        """Return the counts as a `Usage`."""
        fine, cached = self.completion_tokens_details, self.prompt_tokens_details
        cost = self.cost
        return Usage(
            input_tokens=count(self.prompt_tokens),
            output_tokens=count(self.completion_tokens),
            reasoning_tokens=count(fine.reasoning_tokens) if fine else None,
            cached_tokens=count(cached.cached_tokens) if cached else None,
            cost_usd=cost if cost is not None and 0 <= cost < math.inf else None,
        )


class CalledFunction(msgspec.Struct):
    """What a call asks for; some servers send the arguments as data instead of text."""

    name: str | None = None
    arguments: Json = None


class CallPart(msgspec.Struct):
    """A tool call, or a piece of one."""

    index: int | None = None
    id: str | None = None
    function: CalledFunction | None = None

    def call(self, position: int) -> ToolCall:
        """Return the call that came in one piece; some servers give no ids."""
        function = self.function or CalledFunction()
        return tool_call(self.id or f"call_{position}", function.name or "", function.arguments)


class ChatPart(msgspec.Struct):
    """A message, or a piece of one."""

    content: str | list[dict[str, Json] | str] | None = None
    reasoning_content: str | None = None
    reasoning: Json = None
    refusal: str | None = None
    tool_calls: list[CallPart] | None = None

    @property
    def text(self) -> str | None:
        """The text of the content; None if there is no content."""
        content = self.content
        if isinstance(content, list):
            content = "".join(_text_of(piece) for piece in content)
        return content or self.refusal or content

    @property
    def thought(self) -> str | None:
        """The reasoning, under any of the names that servers use."""
        other = self.reasoning
        return self.reasoning_content or (other if isinstance(other, str) else None)


def _text_of(piece: Mapping[str, Json] | str) -> str:
    text = piece if isinstance(piece, str) else piece.get("text")
    return text if isinstance(text, str) else ""


class ChatChoice(msgspec.Struct):
    """One answer: whole (`message`, `text`) or a piece (`delta`)."""

    index: int | None = 0
    message: ChatPart | None = None
    delta: ChatPart | None = None
    text: str | None = None
    finish_reason: str | UnsetType | None = UNSET
    error: Json = None

    @property
    def part(self) -> ChatPart:
        """The message, under any of the names that servers use."""
        return self.message or self.delta or ChatPart(content=self.text)

    def check(self) -> None:
        """Raise if the server reports that it broke off."""
        if self.error is not None or self.finish_reason == "error":
            raise fault_of(self.error, "the server broke off its answer")


class ChatReply(msgspec.Struct):
    """A whole answer, or one event of a stream."""

    choices: list[ChatChoice] | None = None
    model: str | None = None
    usage: ChatUsageCounts | None = None
    error: Json = None


_decoder = msgspec.json.Decoder(ChatReply)


def decode(data: bytes, content_type: str = "") -> ChatReply:
    """Return *data* as a reply; anything that is not one is a fault that shows how it begins."""
    return json_fields.decode(data, _decoder, content_type=content_type)


def whole(reply: ChatReply) -> Completion:
    """Return the completion that came in one piece."""
    if reply.error is not None:
        raise fault_of(reply.error, "an error instead of an answer")
    if not reply.choices:
        raise RetryableError("the answer has no choices")
    choice = reply.choices[0]
    choice.check()
    part, stop_reason = choice.part, choice.finish_reason
    if stop_reason is None:  # said to be null, which is how Ollama ends an answer it had to cut
        raise RetryableError("the answer is not complete: its finish_reason is null")
    thought, text = part.thought, part.text
    if text is None and not (thought or part.tool_calls or stop_reason in _MAY_SAY_NOTHING):
        raise RetryableError("the answer has no content (null)")
    return Completion(
        text=well_formed(text or ""),
        reasoning=well_formed(thought) if thought else None,
        tool_calls=tuple(call.call(n) for n, call in enumerate(part.tool_calls))
        if part.tool_calls
        else (),
        stop_reason="refusal" if part.refusal else _reason(stop_reason),
        model=well_formed(reply.model) if reply.model else None,
        usage=reply.usage.usage() if reply.usage else UNKNOWN_USAGE,
        flags=reply.usage.flags if reply.usage else (),
    )


_MAY_SAY_NOTHING = frozenset({"length", "content_filter"})


def _reason(reason: str | UnsetType) -> str | None:
    return None if reason is UNSET else well_formed(reason)


class ChatPieces:
    """Assembles a streamed completion."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls = CallDrafts()
        self._stop_reason: str | None = None
        self._refused = False
        self._model: str | None = None
        self._usage = UNKNOWN_USAGE
        self._flags: tuple[str, ...] = ()
        self.first_token_s: float | None = None

    @property
    def finished(self) -> bool:
        """Whether the server gave a stop reason."""
        return self._stop_reason is not None

    @property
    def over(self) -> bool:
        """Always False: the usage comes last."""
        return False

    def take(self, event: ChatReply, *, at_s: float) -> None:
        """Add one event of the stream, which came *at_s* after the request."""
        if event.error is not None:
            raise fault_of(event.error, "the stream broke")
        self._model = event.model or self._model
        if event.usage is not None:
            self._usage, self._flags = event.usage.usage(), event.usage.flags
        for choice in event.choices or ():
            if not choice.index:  # with `n`, further choices come in between
                self._add(choice, at_s)

    def _add(self, choice: ChatChoice, at_s: float) -> None:
        choice.check()
        part = choice.part
        text, thought = part.text, part.thought
        if text:
            self._text.append(text)
        if thought:
            self._reasoning.append(thought)
        for piece in part.tool_calls or ():
            self._add_call(piece)
        if self.first_token_s is None and (text or thought or part.tool_calls):
            self.first_token_s = at_s
        self._refused = self._refused or bool(part.refusal)
        if choice.finish_reason:
            self._stop_reason = choice.finish_reason

    def _add_call(self, piece: CallPart) -> None:
        function = piece.function or CalledFunction()
        self._calls.add(
            index=piece.index,
            key=piece.id or "",
            name=function.name or "",
            arguments=function.arguments,
        )

    def completion(self, *, elapsed_s: float) -> Completion:
        """Return the completion; a stream without a stop reason was cut off."""
        if self._stop_reason is None:
            raise RetryableError("the stream ended before the answer did: no finish_reason came")
        reasoning = well_formed("".join(self._reasoning))
        return Completion(
            text=well_formed("".join(self._text)),
            reasoning=reasoning or None,
            tool_calls=self._calls.calls(),
            stop_reason="refusal" if self._refused else well_formed(self._stop_reason),
            model=well_formed(self._model) if self._model else None,
            usage=self._usage,
            elapsed_s=elapsed_s,
            first_token_s=self.first_token_s,
            flags=self._flags,
        )


ApiType = Literal["chat", "completions"]

_SUFFIXES: tuple[tuple[str, ApiType], ...] = (
    ("/chat/completions", "chat"),
    ("/completions", "completions"),
)
_REASONING_OPTIONS = ("effort", "exclude")
_READER = ResponseReader(
    whole=lambda body, content_type: whole(decode(body, content_type)),
    event=decode,
    pieces=ChatPieces,
)


class ChatSettings(EndpointClientSettings, frozen=True):
    """Request settings: which API of the endpoint, and its names for our parameters."""

    api_type: ApiType | None = None
    rename: dict[str, str] = msgspec.field(default_factory=dict)


@value_object
class Endpoint:
    """The address of a server, and the API that its URL names, if any."""

    root: str
    query: str = ""
    api_type: ApiType | None = None

    @classmethod
    def of(cls, url: str) -> "Endpoint":
        """Read a base URL, or the full URL of either API; a query stays at the end."""
        path, mark, query = url.strip().partition("?")
        bare = path.rstrip("/")
        for suffix, kind in _SUFFIXES:
            if bare.endswith(suffix):
                return cls(root=bare.removesuffix(suffix), query=mark + query, api_type=kind)
        return cls(root=bare, query=mark + query)

    def url(self, kind: ApiType) -> str:
        """Return the full URL of one API."""
        return f"{self.root}/{'chat/' if kind == 'chat' else ''}completions{self.query}"


def first_api(*wishes: str | None) -> ApiType:
    """Return the API that the first of *wishes* names; without any, it is chat."""
    wish = next((wish for wish in wishes if wish), "chat")
    return "completions" if wish.startswith("completion") else "chat"


def build(spec: ModelSpec, limiter: Limiter = UNLIMITED) -> DialectModel[ChatReply]:
    """Return the model that *spec* names."""
    base_url = base_url_of(spec)
    settings = settings_of(spec, ChatSettings)
    endpoint_client = EndpointClient(HttpClient(headers_of(spec)), settings, limiter)
    return DialectModel(
        spec, OpenAICompatible(spec, settings, Endpoint.of(base_url)), endpoint_client
    )


class OpenAICompatible:
    """OpenAI's chat and completions APIs, as servers everywhere speak them."""

    def __init__(self, spec: ModelSpec, settings: ChatSettings, endpoint: Endpoint) -> None:
        self._name = spec.name
        self._parameters = spec.parameters
        self._settings = settings
        self._endpoint = endpoint

    @property
    def reader(self) -> ResponseReader[ChatReply]:
        """How its answers are read."""
        return _READER

    def wire_request(self, request: Request) -> WireRequest:
        """Return *request* in the wire format."""
        kind = self._kind(request)
        payload = self._payload(request, kind)
        return WireRequest(
            url=self._endpoint.url(kind),
            payload=payload,
            stream=bool(payload.get("stream")),
            keep_raw=self._settings.keep_raw,
        )

    def _kind(self, request: Request) -> ApiType:
        return first_api(request.api_type, self._settings.api_type, self._endpoint.api_type)

    def _payload(self, request: Request, kind: ApiType) -> dict[str, Json]:
        payload: dict[str, Json] = {"model": self._name}
        if kind == "chat":
            payload["messages"] = chat_messages(request.messages)
        else:
            payload["prompt"] = (
                _as_prompt(request.messages) if request.prompt is None else request.prompt
            )
        payload.update(parameters_of(request, self._parameters, omit=self._settings.omit))
        for ours, theirs in self._settings.rename.items():
            if ours in payload:
                payload.setdefault(theirs, payload.pop(ours))
        _gather_reasoning(payload)
        if payload.pop("stream", self._settings.stream):
            payload["stream"] = True
            payload.setdefault("stream_options", {"include_usage": True})
        if request.tools:
            given = payload.get("tools")
            offered = [function_tool(tool) for tool in request.tools]
            payload["tools"] = [*(given if isinstance(given, list) else ()), *offered]
        if request.schema is not None:
            payload["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": request.schema, "strict": True},
            }
        return payload


def _gather_reasoning(payload: dict[str, Json]) -> None:
    """Move the options `effort` and `exclude` to where servers look for them."""
    options = {key: payload.pop(key) for key in _REASONING_OPTIONS if key in payload}
    if options:
        given = payload.get("reasoning")
        payload["reasoning"] = {**given, **options} if isinstance(given, Mapping) else options


def chat_messages(messages: Sequence[Message]) -> list[Json]:
    """Return *messages* as the chat API takes them."""
    return [
        {**message.wire(), "content": [_part(part) for part in message.parts()]}
        if message.attachments
        else message.wire()
        for message in messages
    ]


def _part(part: str | Attachment) -> dict[str, Json]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part.is_image:
        return {"type": "image_url", "image_url": {"url": part.data_uri()}}
    file = {"filename": part.name or part.blob, "file_data": part.data_uri()}
    return {"type": "file", "file": file}


def _as_prompt(messages: Sequence[Message]) -> str:
    """Return a conversation as one text, for an API that takes only that."""
    if any(message.attachments for message in messages):
        raise ProviderError("a completions API takes text alone: ask a chat API about files")
    if len(messages) == 1:
        return messages[0].content
    turns = [f"{m.role.capitalize()}: {m.content}" for m in messages]
    return "\n\n".join([*turns, "Assistant:"])
