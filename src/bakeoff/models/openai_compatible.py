"""Every server that speaks OpenAI's chat or completions API."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from bakeoff._lib.clock import monotonic
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError, UsageError
from bakeoff.core.outcome import Completion, Request, Tool
from bakeoff.core.task import Message
from bakeoff.core.values import Json
from bakeoff.models.gate import OPEN, Gate
from bakeoff.models.http import HttpClient
from bakeoff.models.line import Line, LineSettings
from bakeoff.models.openai_wire import Pieces, decode, whole
from bakeoff.models.settings import settings_of

ApiType = Literal["chat", "completions"]

_SUFFIXES: tuple[tuple[str, ApiType], ...] = (
    ("/chat/completions", "chat"),
    ("/completions", "completions"),
)
_REASONING_OPTIONS = ("effort", "exclude")
_STREAM_FIELDS = (b":", b"event:", b"id:", b"retry:")
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_DEEPEST_RAW = 64

_encode = msgspec.json.Encoder().encode


class Settings(LineSettings, frozen=True):
    """How the endpoint is asked, and which of its APIs where nothing else says so."""

    api_type: ApiType | None = None


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


def build(spec: ModelSpec, gate: Gate = OPEN) -> "OpenAICompatible":
    """Return the model that *spec* names."""
    if not spec.base_url:
        raise UsageError(
            f"model {spec.full_name!r}: say where it is: --base-url http://host:port/v1, "
            "or `base_url` in the run file"
        )
    if not re.match(r"\s*https?://[^/?#]", spec.base_url, re.IGNORECASE):
        raise UsageError(
            f"model {spec.full_name!r}: {spec.base_url!r} is no base URL: "
            "write it as http://host:port/v1 or https://..."
        )
    settings = settings_of(spec, Settings)
    return OpenAICompatible(spec, settings, Line(HttpClient(_headers(spec)), settings, gate))


def _headers(spec: ModelSpec) -> dict[str, str]:
    headers = {"Content-Type": "application/json", **spec.headers}
    if spec.api_key and "authorization" not in {name.lower() for name in headers}:
        # a key read from a file often brings its line end along
        headers["Authorization"] = f"Bearer {spec.api_key.strip()}"
    for name, value in headers.items():
        if _CONTROL.search(name + value):
            raise UsageError(
                f"model {spec.full_name!r}: the header {name!r} holds a line end or another "
                "control character, which HTTP does not allow"
            )
    return headers


class OpenAICompatible:
    """Asks one model of one server."""

    def __init__(self, spec: ModelSpec, settings: Settings, line: Line) -> None:
        self._name = spec.name
        self._parameters = spec.parameters
        self._settings = settings
        self._line = line
        self._endpoint = Endpoint.of(spec.base_url or "")

    async def complete(self, request: Request) -> Completion:
        """Return the answer, or the fault that outlived the retries."""
        kind = self._kind(request)
        payload = self._payload(request, kind)
        once = self._ask_stream if payload.get("stream") else self._ask
        body, url = _encoded(payload), self._endpoint.url(kind)
        return await self._line.ask(lambda: once(url, body), request)

    async def close(self) -> None:
        """Close the connections."""
        await self._line.close()

    async def _ask(self, url: str, body: bytes) -> Completion:
        began = monotonic()
        answer = await self._line.client.post(url, body)
        elapsed_s = monotonic() - began
        reply = decode(answer.body, content_type=answer.content_type)
        raw = _plain(answer.body) if self._settings.keep_raw else None
        return whole(reply, elapsed_s=elapsed_s, raw=raw)

    async def _ask_stream(self, url: str, body: bytes) -> Completion:
        began = monotonic()
        pieces, stray = Pieces(), []
        async with self._line.client.stream(url, body) as lines:
            async for line in lines:
                event = line.strip()
                if event.startswith(b"data:"):
                    data = event[5:].lstrip()
                    if data == b"[DONE]":
                        break
                    pieces.take(decode(data), at_s=monotonic() - began)
                elif event and not event.startswith(_STREAM_FIELDS):
                    stray.append(line)
            elapsed_s = monotonic() - began
        if stray and not pieces.finished:
            # no events: a whole answer all the same, an error as the last word, or a web page
            return whole(decode(b"\n".join(stray)), elapsed_s=elapsed_s)
        return pieces.completion(elapsed_s=elapsed_s)

    def _kind(self, request: Request) -> ApiType:
        wish = request.api_type or self._settings.api_type or self._endpoint.api_type or "chat"
        return "completions" if wish.startswith("completion") else "chat"

    def _payload(self, request: Request, kind: ApiType) -> dict[str, Json]:
        payload: dict[str, Json] = {"model": self._name}
        if kind == "chat":
            payload["messages"] = [m.wire() for m in request.messages]
        else:
            payload["prompt"] = _as_prompt(request.messages)
        payload.update(request.parameters)
        payload.update(self._parameters)  # they are what makes this candidate this one
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


def _encoded(payload: Mapping[str, Json]) -> bytes:
    try:
        return _encode(payload)
    except UnicodeEncodeError as error:
        raise ProviderError(
            f"the request cannot be sent, it holds half a character: {error.reason}"
        ) from error


def _as_prompt(messages: Sequence[Message]) -> str:
    """Return a conversation as one text, for an API that takes only that."""
    if len(messages) == 1:
        return messages[0].content
    turns = [f"{m.role.capitalize()}: {m.content}" for m in messages]
    return "\n\n".join([*turns, "Assistant:"])


def _plain(body: bytes) -> Json:
    """Return an answer as data; as text where it is no strict JSON or too deep to be kept."""
    try:
        value: Json = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")
    return body.decode("utf-8", "replace") if _deeper(value, _DEEPEST_RAW) else value


def _deeper(value: Json, levels: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return False
    return levels == 0 or any(_deeper(item, levels - 1) for item in value)
