"""Google's Gemini API (`generateContent`).

Written to the documented wire format; not tried against the live service.

* Schemas go out as JSON Schema (`responseJsonSchema`, `parametersJsonSchema`), which knows more
  than the API's own subset.
* `effort` becomes `thinkingLevel`; for Gemini 2.5, which has none, the budget that Google's own
  OpenAI-compatible endpoint puts in its place. `exclude = false` asks for the thoughts.
* Parameters that stand for themselves in a request (`safetySettings`, `toolConfig`, ...) are sent
  there; every other one belongs to `generationConfig`.
* Gemini 3 wants the thought signatures of its tool calls back; see `keepsakes`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count as counter
from urllib.parse import quote

import msgspec

from bakeoff._lib.sanitize import one_line, well_formed
from bakeoff.core.attachment import Attachment
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import UNKNOWN_USAGE, Completion, Request, Tool, Usage
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.values import Json
from bakeoff.models.adapters.tool_calls import CalledNames, ReasoningEcho, arguments_of, tool_call
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
    take_stops,
    take_thinking,
    take_tools,
)
from bakeoff.models.client.retry import RetryableError, fault_of
from bakeoff.models.client.settings import (
    base_url_of,
    headers_of,
    settings_of,
    split_query,
    versioned,
)
from bakeoff.models.limits.limiter import UNLIMITED, Limiter

_OWN_ID = "bakeoff-call-"
_FILTERED = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    }
)
_BAD_CALLS = frozenset(
    {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"}
)  # the model's own mistakes: an answer, and a bad one
_MAY_SAY_NOTHING = {"MAX_TOKENS", *_FILTERED, *_BAD_CALLS}


class GeminiUsageCounts(UsageFields, rename="camel"):
    """Token counts; thoughts are counted separately from the answer."""

    prompt_token_count: float | None = None
    tool_use_prompt_token_count: float | None = None
    candidates_token_count: float | None = None
    thoughts_token_count: float | None = None
    cached_content_token_count: float | None = None

    def usage(self) -> Usage:
        """Return the counts as a `Usage`; the API leaves out a count of zero."""
        asked = count(self.prompt_token_count)
        if asked is None:
            return UNKNOWN_USAGE
        thoughts = count(self.thoughts_token_count or 0)
        said = count(self.candidates_token_count or 0)
        return Usage(
            input_tokens=asked + (count(self.tool_use_prompt_token_count) or 0),
            output_tokens=None if said is None or thoughts is None else said + thoughts,
            reasoning_tokens=thoughts,
            cached_tokens=count(self.cached_content_token_count or 0),
        )


class ReplyContent(msgspec.Struct):
    """The content of a candidate; its parts are kept unchanged."""

    parts: list[dict[str, Json]] | None = None


class ReplyCandidate(msgspec.Struct, rename="camel"):
    """One answer, or a piece of it."""

    content: ReplyContent | None = None
    finish_reason: str | None = None
    index: int | None = None

    @property
    def parts(self) -> list[dict[str, Json]]:
        """The parts of the content."""
        return (self.content.parts if self.content else None) or []


class PromptFeedback(msgspec.Struct, rename="camel"):
    """Why the API refuses the prompt."""

    block_reason: str | None = None
    block_reason_message: str | None = None


class GeminiReply(msgspec.Struct, rename="camel"):
    """A whole answer, or one event of a stream."""

    candidates: list[ReplyCandidate] | None = None
    prompt_feedback: PromptFeedback | None = None
    usage_metadata: GeminiUsageCounts | None = None
    model_version: str | None = None
    error: Json = None

    def check(self, what: str) -> None:
        """Raise if the API returned an error or refuses this prompt."""
        if self.error is not None:
            raise fault_of(self.error, what)
        blocked = self.prompt_feedback
        if blocked and blocked.block_reason:
            said = blocked.block_reason_message or blocked.block_reason
            raise ProviderError(
                f"the prompt was blocked ({one_line(blocked.block_reason)}): {one_line(said)}; "
                "`safetySettings` may allow it"
            )


_decoder = msgspec.json.Decoder(GeminiReply)


def decode(data: bytes, content_type: str = "") -> GeminiReply:
    """Return a whole answer, or one event of a stream."""
    return json_fields.decode(data, _decoder, content_type=content_type)


class Reader:
    """Turns replies into completions; a call without an id gets a number."""

    def __init__(self) -> None:
        self._numbers = counter(1)

    def completion_of(self, reply: GeminiReply) -> Completion:
        """Return the completion that is in a reply."""
        reply.check("an error instead of an answer")
        if not reply.candidates:
            raise RetryableError("the answer has no candidates")
        candidate = reply.candidates[0]
        reason = candidate.finish_reason
        if reason is None:
            raise RetryableError("the answer is not complete: it has no finishReason")
        text = _joined(candidate.parts, thought=False)
        reasoning = _joined(candidate.parts, thought=True)
        calls = tuple(self._calls(candidate.parts))
        if not (text or reasoning or calls or reason in _MAY_SAY_NOTHING):
            raise RetryableError(f"the answer has no content (finishReason {one_line(reason)!r})")
        return Completion(
            text=text,
            reasoning=reasoning or None,
            tool_calls=calls,
            stop_reason=_stop_reason(reason, calls),
            model=well_formed(reply.model_version) if reply.model_version else None,
            usage=reply.usage_metadata.usage() if reply.usage_metadata else UNKNOWN_USAGE,
            flags=reply.usage_metadata.flags if reply.usage_metadata else (),
        )

    def _calls(self, parts: Sequence[Mapping[str, Json]]) -> list[ToolCall]:
        asked = [p["functionCall"] for p in parts if isinstance(p.get("functionCall"), Mapping)]
        return [
            tool_call(
                string(call.get("id")) or f"{_OWN_ID}{next(self._numbers)}",
                string(call.get("name")),
                call.get("args"),
            )
            for call in asked
            if isinstance(call, Mapping)
        ]


def given_id(call_id: str) -> dict[str, Json]:
    """Return the id of a call if the API gave it; it does not know our own ids."""
    return {} if call_id.startswith(_OWN_ID) else {"id": call_id}


def _joined(parts: Sequence[Mapping[str, Json]], *, thought: bool) -> str:
    texts = [string(p.get("text")) for p in parts if bool(p.get("thought")) is thought]
    return well_formed("".join(texts))


def _stop_reason(reason: str, calls: tuple[ToolCall, ...]) -> str:
    if reason == "STOP":
        return "tool_calls" if calls else "stop"
    if reason == "MAX_TOKENS":
        return "length"
    return "content_filter" if reason in _FILTERED else well_formed(reason)


class GeminiPieces:
    """Assembles a streamed answer; *read* turns the whole into a completion."""

    def __init__(self, read: Callable[[GeminiReply], Completion]) -> None:
        self._read = read
        self._parts: list[dict[str, Json]] = []
        self._reason: str | None = None
        self._last = GeminiReply()
        self._first_token_s: float | None = None

    @property
    def finished(self) -> bool:
        """Whether the API gave a stop reason."""
        return self._reason is not None

    @property
    def over(self) -> bool:
        """Always False: some answers repeat their stop reason in every event."""
        return False

    def take(self, event: GeminiReply, *, at_s: float) -> None:
        """Add one partial answer."""
        event.check("the stream broke")
        self._last = GeminiReply(
            usage_metadata=event.usage_metadata or self._last.usage_metadata,
            model_version=event.model_version or self._last.model_version,
        )
        for candidate in event.candidates or ():
            if candidate.index:
                continue
            self._parts.extend(candidate.parts)
            self._reason = candidate.finish_reason or self._reason
            if candidate.parts and self._first_token_s is None:
                self._first_token_s = at_s

    def completion(self, *, elapsed_s: float) -> Completion:
        """Return the completion; a stream without a stop reason was cut off."""
        if self._reason is None:
            raise RetryableError("the stream ended before the answer did: no finishReason came")
        answer = ReplyCandidate(content=ReplyContent(parts=self._parts), finish_reason=self._reason)
        reply = msgspec.structs.replace(self._last, candidates=[answer])
        return replace(self._read(reply), elapsed_s=elapsed_s, first_token_s=self._first_token_s)


_SYSTEM = frozenset({"system", "developer"})
_VERB = re.compile(r":(?:streamG|g)enerateContent$")
_TOP_LEVEL = frozenset(
    {
        "cachedContent",
        "generationConfig",
        "labels",
        "safetySettings",
        "serviceTier",
        "store",
        "systemInstruction",
        "toolConfig",
        "tools",
    }
)
_RENAMED = {
    "top_p": "topP",
    "top_k": "topK",
    "n": "candidateCount",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
_TOOL_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_BUDGETS_2_5 = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}


class GeminiSettings(EndpointClientSettings, frozen=True):
    """Request settings."""


@dataclass(frozen=True, slots=True)
class GeminiAddress:
    """Where one model is asked; `query` stays at the end of the URL."""

    model: str
    query: str = ""

    @classmethod
    def of(cls, base_url: str, name: str) -> "GeminiAddress":
        """Read a base URL with or without a version, or the full URL of a model."""
        root, query = split_query(base_url)
        if _VERB.search(root):
            return cls(_VERB.sub("", root), query)
        path = name if "/" in name else f"models/{name}"
        return cls(f"{versioned(root, 'v1beta')}/{quote(path)}", query)

    def url(self, *, stream: bool) -> str:
        """Return the URL to ask at."""
        if not stream:
            return f"{self.model}:generateContent{self.query}"
        rest = [pair for pair in self.query.lstrip("?").split("&") if pair and pair[:4] != "alt="]
        return f"{self.model}:streamGenerateContent?{'&'.join(['alt=sse', *rest])}"


def build(spec: ModelSpec, limiter: Limiter = UNLIMITED) -> DialectModel[GeminiReply]:
    """Return the model that *spec* names."""
    base_url = base_url_of(spec, example="https://generativelanguage.googleapis.com")
    settings = settings_of(spec, GeminiSettings)
    headers = headers_of(spec, key="x-goog-api-key", scheme="")
    place = GeminiAddress.of(base_url, spec.name)
    endpoint_client = EndpointClient(HttpClient(headers), settings, limiter)
    return DialectModel(spec, Gemini(spec, settings, place), endpoint_client)


class Gemini:
    """Google's Gemini API."""

    def __init__(self, spec: ModelSpec, settings: GeminiSettings, place: GeminiAddress) -> None:
        self._name = spec.name
        self._parameters = spec.parameters
        self._settings = settings
        self._place = place
        self._kept = ReasoningEcho()
        self._reader = Reader()
        self.reader = ResponseReader(
            whole=lambda body, content_type: self._read(decode(body, content_type)),
            event=decode,
            pieces=lambda: GeminiPieces(self._read),
        )

    def wire_request(self, request: Request) -> WireRequest:
        """Return *request* in the wire format."""
        parameters = parameters_of(request, self._parameters, omit=self._settings.omit)
        stream = bool(parameters.pop("stream", self._settings.stream))
        return WireRequest(
            url=self._place.url(stream=stream),
            payload=self._payload(request, parameters),
            stream=stream,
            keep_raw=self._settings.keep_raw,
        )

    def _read(self, reply: GeminiReply) -> Completion:
        completion = self._reader.completion_of(reply)
        if reply.candidates:
            self._kept.keep(completion, reply.candidates[0].parts)
        return completion

    def _payload(self, request: Request, parameters: dict[str, Json]) -> dict[str, Json]:
        payload: dict[str, Json] = {"contents": list(self._turns(request.messages))}
        if system := [{"text": m.content} for m in request.messages if m.role in _SYSTEM]:
            payload["systemInstruction"] = {"parts": system}
        if tools := take_tools(request, parameters):
            payload["tools"] = [{"functionDeclarations": [_tool(tool) for tool in tools]}]
        choice = parameters.pop("tool_choice", None)
        if isinstance(choice, str):
            mode = _TOOL_MODES.get(choice, choice)
            payload["toolConfig"] = {"functionCallingConfig": {"mode": mode}}
        thinking = take_thinking(parameters)
        config = _generation(parameters, thinking_config(self._name, thinking))
        if request.schema is not None:
            config |= {"responseMimeType": "application/json", "responseJsonSchema": request.schema}
        payload.update((k, v) for k, v in parameters.items() if k in _TOP_LEVEL)
        if config:
            payload["generationConfig"] = config
        return payload

    def _turns(self, messages: Sequence[Message]) -> Iterator[dict[str, Json]]:
        """Yield the turns of a conversation; results of tools that ran together stay together."""
        results: list[Json] = []
        names = CalledNames()
        for message in messages:
            if message.role in _SYSTEM:
                continue
            if message.role == "tool":
                results.append(_result(message, names))
                continue
            if results:
                yield {"role": "user", "parts": results}
                results = []
            names.add(message.tool_calls)
            role = "model" if message.role == "assistant" else message.role
            yield {"role": role, "parts": self._parts(message)}
        if results:
            yield {"role": "user", "parts": results}

    def _parts(self, message: Message) -> Sequence[Json]:
        if message.attachments:
            return [_part(part) for part in message.parts()]
        kept = self._kept.of(message)
        if kept is not None:
            return kept
        silent = message.tool_calls and not message.content
        said: list[Json] = [] if silent else [{"text": message.content}]
        return [*said, *map(_call, message.tool_calls)]


def _part(part: str | Attachment) -> dict[str, Json]:
    if isinstance(part, str):
        return {"text": part}
    return {"inlineData": {"mimeType": part.media_type, "data": part.base64()}}


def _call(call: ToolCall) -> dict[str, Json]:
    return {
        "functionCall": {"name": call.name, "args": arguments_of(call), **given_id(call.id)},
    }


def _result(message: Message, names: CalledNames) -> dict[str, Json]:
    key = message.tool_call_id or ""
    name = names.take(key)
    if name is None:
        raise ProviderError(f"a tool's message answers {key!r}, but no call before it has that id")
    response: Json = {"output": message.content}
    return {"functionResponse": {"name": name, "response": response, **given_id(key)}}


def _tool(tool: Tool) -> dict[str, Json]:
    declared: dict[str, Json] = {"name": tool.name, "description": tool.description}
    if tool.parameters:
        declared["parametersJsonSchema"] = tool.parameters
    return declared


def thinking_config(model: str, thinking: ThinkingBudget) -> dict[str, Json]:
    """Return the thinking config of *model*: a level or a budget, never both."""
    config: dict[str, Json] = {}
    effort = thinking.effort
    if thinking.max_tokens is not None:
        config["thinkingBudget"] = thinking.max_tokens
    elif isinstance(effort, str) and "gemini-2.5" in model and effort in _BUDGETS_2_5:
        config["thinkingBudget"] = _BUDGETS_2_5[effort]
    elif effort is not None:
        config["thinkingLevel"] = effort
    if thinking.exclude is not None:
        config["includeThoughts"] = not thinking.exclude
    return config


def _generation(parameters: dict[str, Json], thinking: Mapping[str, Json]) -> dict[str, Json]:
    """Return the generation config; what is given there by name takes precedence."""
    limit, stops = take_limit(parameters), take_stops(parameters)
    config = {_RENAMED.get(k, k): v for k, v in parameters.items() if k not in _TOP_LEVEL}
    if limit is not None:
        config["maxOutputTokens"] = limit
    if stops:
        config["stopSequences"] = stops
    if thinking:
        config["thinkingConfig"] = thinking
    given = parameters.get("generationConfig")
    return {**config, **given} if isinstance(given, Mapping) else config
