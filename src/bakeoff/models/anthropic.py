"""Anthropic's Messages API.

Written to the documented wire format; not tried against the live service.

* A schema goes out as `output_config.format`, not as a forced tool: that would shut out the
  task's own tools, and thinking. Models without structured outputs answer it with HTTP 400.
* `effort` becomes `output_config.effort`. Thinking is the model's own default unless the
  parameter `thinking` says otherwise; `exclude` then says whether it is shown.
* The API has no seed: one that is given is left out, and the completion flagged `seed_ignored`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import Meta

from bakeoff.core.candidate import ModelSpec
from bakeoff.core.outcome import Completion, Request, Tool
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.values import Json
from bakeoff.models.access import base_url_of, endpoint, headers_of
from bakeoff.models.anthropic_wire import (
    Event,
    Pieces,
    Reply,
    completion_of,
    decode,
    decode_event,
    sendable,
)
from bakeoff.models.dialect import DialectModel
from bakeoff.models.exchange import Question, Reading
from bakeoff.models.gate import OPEN, Gate
from bakeoff.models.http import HttpClient
from bakeoff.models.keepsakes import Keepsakes
from bakeoff.models.line import Line, LineSettings
from bakeoff.models.parameters import (
    Thinking,
    parameters_of,
    take_limit,
    take_seed,
    take_stops,
    take_thinking,
    take_tools,
)
from bakeoff.models.settings import settings_of
from bakeoff.models.tool_calls import arguments_of

_SYSTEM = frozenset({"system", "developer"})
_TOOL_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


class Settings(LineSettings, frozen=True):
    """How the API is asked; it wants to be told how long an answer may be."""

    max_tokens: Annotated[int, Meta(ge=1)] = 4096
    anthropic_version: str = "2023-06-01"


def build(spec: ModelSpec, gate: Gate = OPEN) -> DialectModel[Event]:
    """Return the model that *spec* names."""
    url = endpoint(
        base_url_of(spec, example="https://api.anthropic.com"), version="v1", path="/messages"
    )
    settings = settings_of(spec, Settings)
    version = {"anthropic-version": settings.anthropic_version}
    headers = headers_of(spec, key="x-api-key", scheme="", also=version)
    line = Line(HttpClient(headers), settings, gate)
    return DialectModel(spec, Anthropic(spec, settings, url), line)


class Anthropic:
    """Anthropic's Messages API."""

    def __init__(self, spec: ModelSpec, settings: Settings, url: str) -> None:
        self._name = spec.name
        self._parameters = spec.parameters
        self._settings = settings
        self._url = url
        self._kept = Keepsakes()
        self.reading = Reading(
            whole=lambda body, content_type: self._read(decode(body, content_type)),
            event=decode_event,
            pieces=lambda: Pieces(self._read),
        )

    def question(self, request: Request) -> Question:
        """Return *request* as it goes over the wire."""
        parameters = parameters_of(request, self._parameters, omit=self._settings.omit)
        flags = take_seed(parameters)
        payload = self._payload(request, parameters)
        return Question(
            url=self._url,
            payload=payload,
            stream=bool(payload.get("stream")),
            keep_raw=self._settings.keep_raw,
            flags=flags,
        )

    def _read(self, reply: Reply) -> Completion:
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
        kept = self._kept.of(message)
        if kept is not None or not message.tool_calls:
            return message.content if kept is None else kept
        said: list[Json] = [{"type": "text", "text": message.content}] if message.content else []
        return [*said, *map(_call, message.tool_calls)]


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
    payload: dict[str, Json], thinking: Thinking, schema: Mapping[str, Json] | None
) -> None:
    """Put effort, format and thinking to where the API looks for them."""
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
