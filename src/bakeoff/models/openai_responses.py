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

from collections.abc import Iterator, Mapping, Sequence

from bakeoff.core.candidate import ModelSpec
from bakeoff.core.outcome import Completion, Request, Tool
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.values import Json
from bakeoff.models.access import base_url_of, endpoint, headers_of
from bakeoff.models.dialect import DialectModel
from bakeoff.models.exchange import Question, Reading
from bakeoff.models.gate import OPEN, Gate
from bakeoff.models.http import HttpClient
from bakeoff.models.keepsakes import Keepsakes
from bakeoff.models.line import Line, LineSettings
from bakeoff.models.openai_responses_wire import (
    Event,
    Item,
    Pieces,
    Reply,
    completion_of,
    decode,
    decode_event,
)
from bakeoff.models.parameters import (
    parameters_of,
    take_limit,
    take_seed,
    take_thinking,
    take_tools,
)
from bakeoff.models.settings import settings_of


class Settings(LineSettings, frozen=True):
    """How the API is asked."""


def build(spec: ModelSpec, gate: Gate = OPEN) -> DialectModel[Event]:
    """Return the model that *spec* names."""
    url = endpoint(
        base_url_of(spec, example="https://api.openai.com/v1"), version="v1", path="/responses"
    )
    settings = settings_of(spec, Settings)
    line = Line(HttpClient(headers_of(spec)), settings, gate)
    return DialectModel(spec, OpenAIResponses(spec, settings, url), line)


class OpenAIResponses:
    """OpenAI's Responses API."""

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
        if message.content or not message.tool_calls:
            yield {"role": message.role, "content": message.content}
        yield from map(_call, message.tool_calls)


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
