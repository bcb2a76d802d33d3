"""Every server that speaks OpenAI's chat or completions API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from bakeoff.core.candidate import ModelSpec
from bakeoff.core.outcome import Request, Tool
from bakeoff.core.task import Message
from bakeoff.core.values import Json
from bakeoff.models.access import base_url_of, headers_of
from bakeoff.models.dialect import DialectModel
from bakeoff.models.exchange import Question, Reading
from bakeoff.models.gate import OPEN, Gate
from bakeoff.models.http import HttpClient
from bakeoff.models.line import Line, LineSettings
from bakeoff.models.openai_wire import Pieces, Reply, decode, whole
from bakeoff.models.parameters import parameters_of
from bakeoff.models.settings import settings_of

ApiType = Literal["chat", "completions"]

_SUFFIXES: tuple[tuple[str, ApiType], ...] = (
    ("/chat/completions", "chat"),
    ("/completions", "completions"),
)
_REASONING_OPTIONS = ("effort", "exclude")
_READING = Reading(
    whole=lambda body, content_type: whole(decode(body, content_type)),
    event=decode,
    pieces=Pieces,
)


class Settings(LineSettings, frozen=True):
    """How the endpoint is asked, which of its APIs, and what it calls our parameters."""

    api_type: ApiType | None = None
    rename: dict[str, str] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a server is, and which of the two APIs its URL named, if any."""

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


def build(spec: ModelSpec, gate: Gate = OPEN) -> DialectModel[Reply]:
    """Return the model that *spec* names."""
    base_url = base_url_of(spec)
    settings = settings_of(spec, Settings)
    line = Line(HttpClient(headers_of(spec)), settings, gate)
    return DialectModel(spec, OpenAICompatible(spec, settings, Endpoint.of(base_url)), line)


class OpenAICompatible:
    """OpenAI's chat and completions APIs, as servers everywhere speak them."""

    def __init__(self, spec: ModelSpec, settings: Settings, endpoint: Endpoint) -> None:
        self._name = spec.name
        self._parameters = spec.parameters
        self._settings = settings
        self._endpoint = endpoint

    @property
    def reading(self) -> Reading[Reply]:
        """How its answers are read."""
        return _READING

    def question(self, request: Request) -> Question:
        """Return *request* as it goes over the wire."""
        kind = self._kind(request)
        payload = self._payload(request, kind)
        return Question(
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
            payload["messages"] = [m.wire() for m in request.messages]
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
            payload["tools"] = [_tool(tool) for tool in request.tools]
        if request.schema is not None:
            payload["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": request.schema, "strict": True},
            }
        return payload


def _tool(tool: Tool) -> dict[str, Json]:
    function: dict[str, Json] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}


def _gather_reasoning(payload: dict[str, Json]) -> None:
    """Move the options `effort` and `exclude` to where servers look for them."""
    options = {key: payload.pop(key) for key in _REASONING_OPTIONS if key in payload}
    if options:
        given = payload.get("reasoning")
        payload["reasoning"] = {**given, **options} if isinstance(given, Mapping) else options


def _as_prompt(messages: Sequence[Message]) -> str:
    """Return a conversation as one text, for an API that takes only that."""
    if len(messages) == 1:
        return messages[0].content
    turns = [f"{m.role.capitalize()}: {m.content}" for m in messages]
    return "\n\n".join([*turns, "Assistant:"])
