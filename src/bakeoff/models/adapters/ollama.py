"""Models of an Ollama server, over its own API.

Its API says more than the one it shares with OpenAI: how long a model took to load, which is kept
apart from how long it took to answer, and how many tokens it really read.
"""

import asyncio
import re
from collections.abc import Awaitable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from bakeoff._lib.clock import monotonic
from bakeoff._lib.sanitize import one_line, well_formed
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError, UsageError
from bakeoff.core.outcome import Completion, Request, Usage
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.values import Json
from bakeoff.models.adapters.tool_calls import CalledNames, arguments_of, function_tool, tool_call
from bakeoff.models.client import json_fields
from bakeoff.models.client.endpoint import (
    EndpointClient,
    EndpointClientSettings,
    naming_attachments,
)
from bakeoff.models.client.http import HttpClient
from bakeoff.models.client.json_fields import UsageFields, count, encode, plain
from bakeoff.models.client.parameters import (
    RefusedParameters,
    parameters_of,
    take_limit,
    take_stops,
    take_thinking,
    take_tools,
)
from bakeoff.models.client.probe import probe, probe_session
from bakeoff.models.client.retry import RetryableError, error_text
from bakeoff.models.client.settings import DEFAULT_URL, address, headers_of, settings_of
from bakeoff.models.limits.limiter import UNLIMITED, Limiter

if TYPE_CHECKING:
    import aiohttp

_NANO = 1e-9

# Beside `options`, not in it.
_TOP_LEVEL = ("format", "keep_alive", "logprobs", "shift", "think", "top_logprobs", "truncate")


def payload(
    name: str,
    request: Request,
    own: Mapping[str, Json],
    *,
    stream: bool,
    omit: Collection[str] = (),
) -> dict[str, Json]:
    """Return the body of a chat request; a parameter that it has no place for is an option."""
    parameters = parameters_of(request, own, omit=omit)
    if parameters.pop("n", 1) not in {1, None}:
        raise ProviderError("Ollama gives one choice a request: leave `n` out and use rollouts")
    body: dict[str, Json] = {
        "model": name,
        "messages": _messages(request.messages),
        "stream": bool(parameters.pop("stream", stream)),
        "think": take_thinking(parameters).effort,
        "tools": [function_tool(tool) for tool in take_tools(request, parameters)] or None,
    }
    if "response_format" in parameters:
        body["format"] = _format(parameters.pop("response_format"))
    body |= {key: parameters.pop(key) for key in _TOP_LEVEL if key in parameters}
    if request.schema is not None:
        body["format"] = request.schema
    body["options"] = _options(parameters) or None
    return {key: value for key, value in body.items() if value is not None}


def _options(parameters: dict[str, Json]) -> dict[str, Json]:
    given = parameters.pop("options", None)
    options: dict[str, Json] = dict(given) if isinstance(given, Mapping) else {}
    named = {"num_predict": take_limit(parameters), "stop": take_stops(parameters)}
    options |= {key: value for key, value in named.items() if value is not None}
    return options | {key: value for key, value in parameters.items() if value is not None}


def _format(wish: Json) -> Json:
    """Return OpenAI's `response_format` as Ollama's `format`."""
    inner = wish.get("json_schema") if isinstance(wish, Mapping) else None
    return inner.get("schema", "json") if isinstance(inner, Mapping) else "json"


def _messages(messages: Sequence[Message]) -> list[Json]:
    names = CalledNames()
    wired: list[Json] = []
    for message in messages:
        names.add(message.tool_calls)
        wired.append(_message(message, names))
    return wired


def _message(message: Message, names: CalledNames) -> dict[str, Json]:
    wire: dict[str, Json] = {"role": message.role, "content": message.content}
    if message.attachments:
        wire |= _with_pictures(message)
    if message.tool_calls:
        wire["tool_calls"] = [_call(call) for call in message.tool_calls]
        if message.reasoning:  # models that think between calls want to see what they thought
            wire["thinking"] = message.reasoning
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
        if name := names.take(message.tool_call_id):
            wire["tool_name"] = name
    return wire


def _with_pictures(message: Message) -> dict[str, Json]:
    """Return the text of *message* and its pictures, which this API takes beside the text."""
    parts = list(message.parts())
    pictures = [part for part in parts if not isinstance(part, str)]
    for part in pictures:
        if not part.is_image:
            raise ProviderError(
                f"Ollama takes pictures and text, and no {part.media_type}: {part.label}"
            )
    text = "".join(part for part in parts if isinstance(part, str))
    return {"content": text, "images": [picture.base64() for picture in pictures]}


def _call(call: ToolCall) -> dict[str, Json]:
    return {"id": call.id, "function": {"name": call.name, "arguments": arguments_of(call)}}


class OllamaFunction(msgspec.Struct):
    """A call as the model wrote it; the server has parsed the arguments."""

    name: str = ""
    arguments: Json = None


class OllamaCall(msgspec.Struct):
    """A call; servers before 0.12 give it no id."""

    function: OllamaFunction
    id: str | None = None


class OllamaMessage(msgspec.Struct):
    """A message, or a piece of one."""

    content: str | None = None
    thinking: str | None = None
    tool_calls: list[OllamaCall] | None = None


class OllamaReply(UsageFields):
    """A whole answer, or one line of a stream; durations are in nanoseconds."""

    model: str | None = None
    message: OllamaMessage | None = None
    done: bool = False
    done_reason: str | None = None
    load_duration: float | None = None
    prompt_eval_count: float | None = None
    prompt_eval_cached_count: float | None = None
    eval_count: float | None = None
    error: Json = None

    @property
    def usage(self) -> Usage:
        """The counts as a `Usage`."""
        return Usage(
            input_tokens=count(self.prompt_eval_count),
            output_tokens=count(self.eval_count),
            reasoning_tokens=None,
            cached_tokens=count(self.prompt_eval_cached_count),
        )

    @property
    def load_s(self) -> float | None:
        """What loading the model took, where the server says so."""
        load = count(self.load_duration)
        return None if load is None else load * _NANO


_decoder = msgspec.json.Decoder(OllamaReply)


def decode(data: bytes, *, content_type: str = "") -> OllamaReply:
    """Return *data* as a reply; anything else is a fault."""
    return json_fields.decode(data, _decoder, content_type=content_type)


class OllamaPieces:
    """A completion, from as many replies as the server needs for it.

    `calls_before` is how many calls the conversation already holds: a call without an id gets the
    next free number.
    """

    def __init__(self, *, calls_before: int = 0) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[ToolCall] = []
        self._calls_before = calls_before
        self._last: OllamaReply | None = None
        self.first_token_s: float | None = None

    def take(self, reply: OllamaReply, *, at_s: float) -> None:
        """Add a reply that came *at_s* after the request; after an error nothing else counts."""
        if reply.error is not None:
            raise RetryableError(f"Ollama broke off its answer: {error_text(reply.error)}")
        message = reply.message or OllamaMessage()
        if message.content:
            self._text.append(message.content)
        if message.thinking:
            self._reasoning.append(message.thinking)
        for call in message.tool_calls or ():
            self._calls.append(self._call(call))
        if self.first_token_s is None and (
            message.content or message.thinking or message.tool_calls
        ):
            self.first_token_s = at_s
        if reply.done:
            self._last = reply

    @property
    def done(self) -> bool:
        """Whether the server marked the answer as complete."""
        return self._last is not None

    def _call(self, call: OllamaCall) -> ToolCall:
        number = self._calls_before + len(self._calls)
        return tool_call(call.id or f"call_{number}", call.function.name, call.function.arguments)

    def completion(
        self, *, elapsed_s: float, first_token_s: float | None = None, raw: Json = None
    ) -> Completion:
        """Return the completion; an answer without `done` was cut off.

        Times are those seen from here less `load_s`: what a model takes once it is there.
        """
        last = self._last
        if last is None:
            raise RetryableError("the answer is not complete: no `done` came")
        if last.done_reason == "load" and not self._text:
            raise RetryableError("Ollama loaded the model and gave no answer")
        load_s = last.load_s or 0.0
        return Completion(
            text=well_formed("".join(self._text)),
            reasoning=well_formed("".join(self._reasoning)) or None,
            tool_calls=tuple(self._calls),
            stop_reason=well_formed(last.done_reason) if last.done_reason else None,
            model=well_formed(last.model) if last.model else None,
            usage=last.usage,
            elapsed_s=max(elapsed_s - load_s, 0.0),
            first_token_s=None if first_token_s is None else max(first_token_s - load_s, 0.0),
            load_s=last.load_s,
            flags=last.flags,
            raw=raw,
        )


_PATIENCE_S = 5.0  # the server is at work when it is asked
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)\s*$", re.MULTILINE)
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_WORD = re.compile(r"\S*\w\S*")
_SMALLEST = 256  # no model is run with less
_ASSUMED = (((0, 6, 7), 2048), ((0, 15, 5), 4096))  # later ones choose by memory, and say so


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What is known of a model's window; `counts_cached` says what a token count includes."""

    tokens: int | None = None
    counts_cached: bool = True

    def lost(self, *, least: int, read: int | None) -> bool:
        """Whether a prompt of at least *least* tokens was cut when *read* were counted."""
        tokens = self.tokens
        if tokens is not None and read is not None and read > tokens:
            tokens = None  # the context is larger than reported
        if tokens is not None and (read == tokens or least > tokens):
            return True
        return self.counts_cached and read is not None and least > read


def least_tokens(messages: Sequence[Message]) -> int:
    """Return the least number of tokens that *messages* can have.

    What the assistant said does not count: templates leave out some of it on purpose.
    """
    return sum(
        sum(1 for _ in _WORD.finditer(message.content))
        for message in messages
        if message.role != "assistant"
    )


def is_plainly_whole(*, least: int, read: int | None) -> bool:
    """Whether a prompt is too small for any window to matter."""
    return read is not None and least <= read < _SMALLEST


class _Version(msgspec.Struct):
    version: str = ""


class _Shown(msgspec.Struct):
    parameters: str | None = None
    capabilities: list[str] | None = None


class _Loaded(msgspec.Struct):
    name: str = ""
    context_length: int | None = None


class _Running(msgspec.Struct):
    models: list[_Loaded] | None = None


async def window_of(
    url: str, name: str, *, num_ctx: int | None = None, headers: Mapping[str, str] | None = None
) -> Window:
    """Return the window of a model that is loaded; whatever cannot be learned stays unknown.

    The request's own *num_ctx* decides, then what the server says it loaded, then the model's
    file, then the default of that version.
    """
    async with probe_session(headers) as session:
        version = _numbers(await _version(session, url))
        counts = version is None or (version >= (0, 2, 0) and version[:2] != (0, 30))
        tokens = num_ctx or await _loaded(session, url, name) or await _in_file(session, url, name)
    return Window(tokens=tokens or _assumed(version), counts_cached=counts)


async def _version(session: "aiohttp.ClientSession", url: str) -> str:
    try:
        return (await probe(session, f"{url}/api/version", _Version, timeout_s=_PATIENCE_S)).version
    except ProviderError:
        return ""


async def _loaded(session: "aiohttp.ClientSession", url: str, name: str) -> int | None:
    try:
        running = await probe(session, f"{url}/api/ps", _Running, timeout_s=_PATIENCE_S)
    except ProviderError:
        return None
    names = {name, f"{name}:latest"}
    return next((m.context_length for m in running.models or () if m.name in names), None)


async def _in_file(session: "aiohttp.ClientSession", url: str, name: str) -> int | None:
    try:
        shown = await probe(
            session, f"{url}/api/show", _Shown, payload={"model": name}, timeout_s=_PATIENCE_S
        )
    except ProviderError:
        return None
    found = _NUM_CTX.search(shown.parameters or "")
    return int(found[1]) if found else None


async def abilities_of(
    url: str, name: str, headers: Mapping[str, str] | None = None
) -> Sequence[str]:
    """Return what the server says the model can do, such as `vision`; nothing where it does not say."""
    try:
        async with probe_session(headers) as session:
            shown = await probe(
                session, f"{url}/api/show", _Shown, payload={"model": name}, timeout_s=_PATIENCE_S
            )
    except ProviderError:
        return ()
    return shown.capabilities or ()


def _numbers(version: str) -> tuple[int, int, int] | None:
    found = _VERSION.match(version)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def _assumed(version: tuple[int, int, int] | None) -> int | None:
    if version is None:
        return None
    return next((tokens for until, tokens in _ASSUMED if version < until), None)


TRUNCATED = "truncated"
"""The flag of an answer to a prompt that was not read as a whole."""

_NOT_THERE = re.compile(r'"error": ?"model .* not found')  # as Ollama words it


def build(spec: ModelSpec, limiter: Limiter = UNLIMITED) -> "Ollama":
    """Return the model that *spec* names; nothing is asked before its first request."""
    if not spec.name:
        raise UsageError("which model of Ollama? Write ollama/NAME; `ollama list` shows them")
    settings = settings_of(spec, EndpointClientSettings)
    return Ollama(spec, settings, EndpointClient(HttpClient(headers_of(spec)), settings, limiter))


class Ollama:
    """One model of an Ollama server."""

    def __init__(
        self, spec: ModelSpec, settings: EndpointClientSettings, endpoint_client: EndpointClient
    ) -> None:
        self._name = spec.name
        self._parameters = spec.parameters
        self._settings = settings
        self._endpoint_client = endpoint_client
        self._headers = headers_of(spec)
        self._url = address(spec.base_url or DEFAULT_URL)
        self._abilities: Sequence[str] | None = None
        self._windows: dict[int | None, Window] = {}
        self._looking = asyncio.Lock()
        self._refused = RefusedParameters(spec.full_name)

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the user on how the model was asked."""
        return self._refused.notes

    async def complete(self, request: Request) -> Completion:
        """Return the answer, flagged where the prompt was cut, or the fault that stayed."""
        settings = self._settings
        body = payload(
            self._name, request, self._parameters, stream=settings.stream, omit=settings.omit
        )
        calls = sum(len(message.tool_calls) for message in request.messages)
        once = self._ask_stream if body["stream"] else self._ask

        def send(asked: dict[str, Json]) -> Awaitable[Completion]:
            data = encode(asked)
            return self._endpoint_client.send(lambda: once(data, calls), request)

        await self._check_pictures(request)
        with self._naming_what_is_missing(), naming_attachments(request):
            completion = await self._refused.send(body, send)
        if await self._was_cut(request, completion, _num_ctx(body)):
            return replace(completion, flags=(*completion.flags, TRUNCATED))
        return completion

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint_client.close()

    async def _check_pictures(self, request: Request) -> None:
        """Raise if the model takes no pictures: older servers drop them silently."""
        if not any(message.attachments for message in request.messages):
            return
        async with self._looking:
            if self._abilities is None:
                self._abilities = await abilities_of(self._url, self._name, self._headers)
        if self._abilities and "vision" not in self._abilities:
            raise ProviderError(
                f"the Ollama at {self._url} says that {self._name!r} takes no pictures; it can: "
                f"{', '.join(map(one_line, self._abilities))}"
            )

    async def _ask(self, data: bytes, calls_before: int) -> Completion:
        began = monotonic()
        answer = await self._endpoint_client.client.post(f"{self._url}/api/chat", data)
        elapsed_s = monotonic() - began
        pieces = OllamaPieces(calls_before=calls_before)
        pieces.take(decode(answer.body, content_type=answer.content_type), at_s=elapsed_s)
        raw = plain(answer.body) if self._settings.keep_raw else None
        return pieces.completion(elapsed_s=elapsed_s, raw=raw)

    async def _ask_stream(self, data: bytes, calls_before: int) -> Completion:
        began = monotonic()
        pieces = OllamaPieces(calls_before=calls_before)
        async with self._endpoint_client.client.stream(f"{self._url}/api/chat", data) as lines:
            async for line in lines:
                if line.strip():
                    pieces.take(decode(line), at_s=monotonic() - began)
                if pieces.done:
                    break
            elapsed_s = monotonic() - began
        return pieces.completion(elapsed_s=elapsed_s, first_token_s=pieces.first_token_s)

    async def _was_cut(self, request: Request, completion: Completion, num_ctx: int | None) -> bool:
        least, read = least_tokens(request.messages), completion.usage.input_tokens
        if is_plainly_whole(least=least, read=read):
            return False
        return (await self._window(num_ctx)).lost(least=least, read=read)

    async def _window(self, num_ctx: int | None) -> Window:
        async with self._looking:  # one looks, the others wait for what it saw
            if num_ctx not in self._windows:
                self._windows[num_ctx] = await window_of(
                    self._url, self._name, num_ctx=num_ctx, headers=self._headers
                )
            return self._windows[num_ctx]

    @contextmanager
    def _naming_what_is_missing(self) -> Iterator[None]:
        """Explain how to get a model that the server does not have."""
        try:
            yield
        except ProviderError as error:
            if error.status == 404 and _NOT_THERE.search(str(error)):
                raise ProviderError(
                    f"the Ollama at {self._url} has no model {self._name!r}; "
                    f"get it with: ollama pull {self._name}",
                    status=error.status,
                ) from error
            raise


def _num_ctx(body: Mapping[str, Json]) -> int | None:
    options = body.get("options")
    wish = options.get("num_ctx") if isinstance(options, Mapping) else None
    return int(wish) if isinstance(wish, int | float) and wish > 0 else None
