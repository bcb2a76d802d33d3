"""Every server that speaks OpenAI's chat or completions API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bakeoff._lib.clock import monotonic
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.task import Message
from bakeoff.core.values import Json
from bakeoff.models.http import HttpClient
from bakeoff.models.openai_wire import Pieces, decode, whole
from bakeoff.models.retry import RetryPolicy, with_retries
from bakeoff.models.settings import settings_of

ApiType = Literal["chat", "completions"]

_SUFFIXES: tuple[tuple[str, ApiType], ...] = (
    ("/chat/completions", "chat"),
    ("/completions", "completions"),
)
_REASONING_OPTIONS = ("effort", "exclude")

Positive = Annotated[float, Meta(gt=0)]


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """How the endpoint is asked. `timeout_s` bounds a request with all its tries."""

    timeout_s: Positive = 600.0
    max_retries: Annotated[int, Meta(ge=0)] = 5
    retry_delay_s: Annotated[float, Meta(ge=0)] = 0.5
    retry_backoff: Annotated[float, Meta(ge=1)] = 2.0
    stream: bool = False
    api_type: ApiType | None = None
    keep_raw: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a server is, and which of the two APIs its URL named, if any."""

    root: str
    api_type: ApiType | None = None

    @classmethod
    def of(cls, url: str) -> "Endpoint":
        """Read a base URL, or the full URL of either API."""
        bare = url.rstrip("/")
        for suffix, kind in _SUFFIXES:
            if bare.endswith(suffix):
                return cls(root=bare.removesuffix(suffix), api_type=kind)
        return cls(root=bare)

    def url(self, kind: ApiType) -> str:
        """Return the full URL of one API."""
        return f"{self.root}/{'chat/' if kind == 'chat' else ''}completions"


def build(spec: ModelSpec) -> "OpenAICompatible":
    """Return the model that *spec* names."""
    if not spec.base_url:
        raise UsageError(
            f"model {spec.full_name!r}: say where it is: --base-url http://host:port/v1, "
            "or `base_url` in the run file"
        )
    return OpenAICompatible(spec, settings_of(spec, Settings), HttpClient())


class OpenAICompatible:
    """Asks one model of one server."""

    def __init__(self, spec: ModelSpec, settings: Settings, client: HttpClient) -> None:
        self._spec = spec
        self._settings = settings
        self._client = client
        self._endpoint = Endpoint.of(spec.base_url or "")
        self._headers = {"Content-Type": "application/json", **spec.headers}
        if spec.api_key and "authorization" not in {h.lower() for h in spec.headers}:
            self._headers["Authorization"] = f"Bearer {spec.api_key}"
        self._policy = RetryPolicy(
            max_retries=settings.max_retries,
            delay_s=settings.retry_delay_s,
            backoff=settings.retry_backoff,
            deadline_s=settings.timeout_s,
        )

    async def complete(self, request: Request) -> Completion:
        """Return the answer, or the fault that outlived the retries."""
        kind = self._kind(request)
        stream = bool(request.parameters.get("stream", self._settings.stream))
        body = msgspec.json.encode(self._payload(request, kind, stream=stream))
        url = self._endpoint.url(kind)
        once = self._ask_stream if stream else self._ask
        completion, retries = await with_retries(
            lambda: once(url, body), self._policy, on_retry=request.on_retry
        )
        return changed(completion, retries=retries) if retries else completion

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask(self, url: str, body: bytes) -> Completion:
        began = monotonic()
        answer = await self._client.post(url, self._headers, body)
        reply = decode(answer.body, content_type=answer.content_type)
        raw = _plain(answer.body) if self._settings.keep_raw else None
        return whole(reply, elapsed_s=monotonic() - began, raw=raw)

    async def _ask_stream(self, url: str, body: bytes) -> Completion:
        began = monotonic()
        pieces = Pieces()
        async with self._client.stream(url, self._headers, body) as lines:
            async for line in lines:
                event = line.strip()
                if event == b"data: [DONE]":
                    break
                if event.startswith(b"data:"):
                    pieces.take(decode(event[5:].strip()), at_s=monotonic() - began)
                elif event.startswith(b"{"):
                    pieces.take(decode(event), at_s=monotonic() - began)  # a bare error object
        return pieces.completion(elapsed_s=monotonic() - began)

    def _kind(self, request: Request) -> ApiType:
        for wish in (request.api_type, self._settings.api_type, self._endpoint.api_type):
            if wish is not None:
                return "completions" if wish.startswith("completion") else "chat"
        return "chat"

    def _payload(self, request: Request, kind: ApiType, *, stream: bool) -> dict[str, Json]:
        payload: dict[str, Json] = {"model": self._spec.name}
        if kind == "chat":
            payload["messages"] = [m.wire() for m in request.messages]
        else:
            payload["prompt"] = _as_prompt(request.messages)
        payload |= _parameters({**self._spec.parameters, **request.parameters})
        payload.pop("stream", None)
        if stream:
            payload["stream"] = True
            payload.setdefault("stream_options", {"include_usage": True})
        if request.schema is not None:
            payload["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": request.schema, "strict": True},
            }
        return payload


def _parameters(given: Mapping[str, Json]) -> dict[str, Json]:
    """Return the parameters as they are sent; `effort` and `exclude` are reasoning options."""
    sent = {key: value for key, value in given.items() if key not in _REASONING_OPTIONS}
    options = {key: given[key] for key in _REASONING_OPTIONS if key in given}
    if options:
        sent.setdefault("reasoning", options)
    return sent


def _as_prompt(messages: Sequence[Message]) -> str:
    """Return a conversation as one text, for an API that takes only that."""
    if len(messages) == 1:
        return messages[0].content
    turns = [f"{m.role.capitalize()}: {m.content}" for m in messages]
    return "\n\n".join([*turns, "Assistant:"])


def _plain(body: bytes) -> Json:
    try:
        value: Json = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")
    return value
