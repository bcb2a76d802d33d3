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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import Completion, Request, Tool
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.values import Json
from bakeoff.models.access import base_url_of, headers_of, split_query, versioned
from bakeoff.models.dialect import DialectModel
from bakeoff.models.exchange import Question, Reading
from bakeoff.models.gate import OPEN, Gate
from bakeoff.models.gemini_wire import Pieces, Reader, Reply, decode, given_id
from bakeoff.models.http import HttpClient
from bakeoff.models.keepsakes import Keepsakes
from bakeoff.models.line import Line, LineSettings
from bakeoff.models.parameters import (
    Thinking,
    parameters_of,
    take_limit,
    take_stops,
    take_thinking,
    take_tools,
)
from bakeoff.models.settings import settings_of
from bakeoff.models.tool_calls import arguments_of

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


class Settings(LineSettings, frozen=True):
    """How the API is asked."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one model is asked; `query` stays at the end of the URL."""

    model: str
    query: str = ""

    @classmethod
    def of(cls, base_url: str, name: str) -> "Place":
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


def build(spec: ModelSpec, gate: Gate = OPEN) -> DialectModel[Reply]:
    """Return the model that *spec* names."""
    base_url = base_url_of(spec, example="https://generativelanguage.googleapis.com")
    settings = settings_of(spec, Settings)
    headers = headers_of(spec, key="x-goog-api-key", scheme="")
    place = Place.of(base_url, spec.name)
    line = Line(HttpClient(headers), settings, gate)
    return DialectModel(spec, Gemini(spec, settings, place), line)


class Gemini:
    """Google's Gemini API."""

    def __init__(self, spec: ModelSpec, settings: Settings, place: Place) -> None:
        self._name = spec.name
        self._parameters = spec.parameters
        self._settings = settings
        self._place = place
        self._kept = Keepsakes()
        self._reader = Reader()
        self.reading = Reading(
            whole=lambda body, content_type: self._read(decode(body, content_type)),
            event=decode,
            pieces=lambda: Pieces(self._read),
        )

    def question(self, request: Request) -> Question:
        """Return *request* as it goes over the wire."""
        parameters = parameters_of(request, self._parameters, omit=self._settings.omit)
        stream = bool(parameters.pop("stream", self._settings.stream))
        return Question(
            url=self._place.url(stream=stream),
            payload=self._payload(request, parameters),
            stream=stream,
            keep_raw=self._settings.keep_raw,
        )

    def _read(self, reply: Reply) -> Completion:
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
        names: dict[str, str] = {}
        for message in messages:
            if message.role in _SYSTEM:
                continue
            if message.role == "tool":
                results.append(_result(message, names))
                continue
            if results:
                yield {"role": "user", "parts": results}
                results = []
            names.update((call.id, call.name) for call in message.tool_calls)
            role = "model" if message.role == "assistant" else message.role
            yield {"role": role, "parts": self._parts(message)}
        if results:
            yield {"role": "user", "parts": results}

    def _parts(self, message: Message) -> Sequence[Json]:
        kept = self._kept.of(message)
        if kept is not None:
            return kept
        silent = message.tool_calls and not message.content
        said: list[Json] = [] if silent else [{"text": message.content}]
        return [*said, *map(_call, message.tool_calls)]


def _call(call: ToolCall) -> dict[str, Json]:
    return {
        "functionCall": {"name": call.name, "args": arguments_of(call), **given_id(call.id)},
    }


def _result(message: Message, names: Mapping[str, str]) -> dict[str, Json]:
    key = message.tool_call_id or ""
    if key not in names:
        raise ProviderError(f"a tool's message answers {key!r}, but no call before it has that id")
    response: Json = {"output": message.content}
    return {"functionResponse": {"name": names[key], "response": response, **given_id(key)}}


def _tool(tool: Tool) -> dict[str, Json]:
    declared: dict[str, Json] = {"name": tool.name, "description": tool.description}
    if tool.parameters:
        declared["parametersJsonSchema"] = tool.parameters
    return declared


def thinking_config(model: str, thinking: Thinking) -> dict[str, Json]:
    """Return how *model* is told to think; it takes a level or a budget, never both."""
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
    """Return the generation config: what is given there by name goes before our own names."""
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
