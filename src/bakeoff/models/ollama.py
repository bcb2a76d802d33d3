"""Models of an Ollama server, over its own API.

Its API says more than the one it shares with OpenAI: how long a model took to load, which is kept
apart from how long it took to answer, and how many tokens it really read.
"""

import asyncio
import re
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from bakeoff._lib.clock import monotonic
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError, UsageError
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.values import Json
from bakeoff.models.access import headers_of
from bakeoff.models.gate import OPEN, Gate
from bakeoff.models.http import HttpClient
from bakeoff.models.json_wire import encode, plain
from bakeoff.models.line import Line, LineSettings
from bakeoff.models.ollama_address import DEFAULT_URL, address
from bakeoff.models.ollama_window import Window, is_plainly_whole, least_tokens, window_of
from bakeoff.models.ollama_wire import Pieces, decode, payload
from bakeoff.models.refused_parameters import RefusedParameters
from bakeoff.models.settings import settings_of

TRUNCATED = "truncated"
"""The flag of an answer to a prompt that was not read as a whole."""

_NOT_THERE = re.compile(r'"error": ?"model .* not found')  # as Ollama words it


def build(spec: ModelSpec, gate: Gate = OPEN) -> "Ollama":
    """Return the model that *spec* names; nothing is asked before its first request."""
    if not spec.name:
        raise UsageError("which model of Ollama? Write ollama/NAME; `ollama list` shows them")
    settings = settings_of(spec, LineSettings)
    return Ollama(spec, settings, Line(HttpClient(headers_of(spec)), settings, gate))


class Ollama:
    """Model one model of one Ollama."""

    def __init__(self, spec: ModelSpec, settings: LineSettings, line: Line) -> None:
        self._name = spec.name
        self._parameters = spec.parameters
        self._settings = settings
        self._line = line
        self._headers = headers_of(spec)
        self._url = address(spec.base_url or DEFAULT_URL)
        self._windows: dict[int | None, Window] = {}
        self._looking = asyncio.Lock()
        self._refused = RefusedParameters(spec.full_name)

    @property
    def notes(self) -> Sequence[str]:
        """What a person should know of how the model was asked."""
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
            return self._line.ask(lambda: once(data, calls), request)

        with self._naming_what_is_missing():
            completion = await self._refused.ask(body, send)
        if await self._was_cut(request, completion, _num_ctx(body)):
            return replace(completion, flags=(*completion.flags, TRUNCATED))
        return completion

    async def close(self) -> None:
        """Close the connections."""
        await self._line.close()

    async def _ask(self, data: bytes, calls_before: int) -> Completion:
        began = monotonic()
        answer = await self._line.client.post(f"{self._url}/api/chat", data)
        elapsed_s = monotonic() - began
        pieces = Pieces(calls_before=calls_before)
        pieces.take(decode(answer.body, content_type=answer.content_type), at_s=elapsed_s)
        raw = plain(answer.body) if self._settings.keep_raw else None
        return pieces.completion(elapsed_s=elapsed_s, raw=raw)

    async def _ask_stream(self, data: bytes, calls_before: int) -> Completion:
        began = monotonic()
        pieces = Pieces(calls_before=calls_before)
        async with self._line.client.stream(f"{self._url}/api/chat", data) as lines:
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
        """Say how to get a model that the server does not have."""
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
