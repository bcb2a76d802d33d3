"""The HTTP client of models: one POST, a bounded answer, and faults that say what is retryable."""

import asyncio
import os
import sys
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Protocol
from urllib.parse import urlsplit

from bakeoff._lib.sanitize import one_line
from bakeoff._lib.value_object import positional_value_object
from bakeoff.core.errors import ProviderError
from bakeoff.models.client.connection import ConnectionPool, HttpOrigin, plain_origin, request_head
from bakeoff.models.client.parameters import BadRequest
from bakeoff.models.client.retry import (
    RetryableError,
    error_in,
    is_quota_exhausted,
    is_retryable,
    overload_of,
    retry_after,
    retry_delay_s,
)

LARGEST_BODY = 64 * 1024 * 1024
_ENCODINGS = frozenset({"gzip", "x-gzip", "deflate"})


class BoundedBody:
    """Checks and decompresses one response body, chunk by chunk.

    `exact` means that the transport ends it at its Content-Length, so it may be read at once.
    """

    def __init__(self, headers: Mapping[str, str], largest: int = LARGEST_BODY) -> None:
        encoding = headers.get("content-encoding")
        length = headers.get("content-length")
        self._largest = largest
        if length and _exceeds(length, largest):
            raise _too_large(largest)
        self.exact = length is not None and encoding is None and "transfer-encoding" not in headers
        self._size = 0
        self._encoding = encoding
        self._stream = _decompressor(encoding) if encoding else None

    def take(self, part: bytes) -> bytes:
        """Return *part*, decompressed."""
        if self._stream is not None:
            try:
                # one byte over the limit is enough to know
                part = self._stream.decompress(part, self._largest + 1)
            except zlib.error as error:
                raise ProviderError(f"the answer is not valid {self._encoding}: {error}") from error
        self._size += len(part)
        if self._size > self._largest:
            raise _too_large(self._largest)
        return part

    def end(self) -> None:
        """Check that a compressed body is complete."""
        if self._stream is not None and not self._stream.eof:
            raise RetryableError(f"the answer was cut: its {self._encoding} has no end")


def _exceeds(length: str, largest: int) -> bool:
    """Return whether a Content-Length is above *largest*, however many digits it has."""
    digits = length.lstrip("0")
    return digits.isdecimal() and (len(digits) > 20 or int(digits) > largest)


def _decompressor(encoding: str) -> "zlib._Decompress | None":
    kind = encoding.strip().lower()
    if kind == "identity":
        return None
    if kind not in _ENCODINGS:
        raise ProviderError(
            f"the answer is packed as {one_line(encoding)!r}, which was not asked for"
        )
    return zlib.decompressobj(zlib.MAX_WBITS | 32)


def _too_large(largest: int) -> ProviderError:
    return ProviderError(
        f"the answer is larger than {largest >> 20} MiB; `max_answer_mib` in the model's settings "
        "allows more"
    )


_LARGEST_LINE = 4 * 1024 * 1024
_LINGER_S = 0.1
_BAD_REQUEST = frozenset({400, 422})
_HINTS = {
    401: "is the API key right?",
    403: "is the API key right, and may it use this model?",
    404: "is the base URL right (most end in /v1), and is there such a model?",
}


@positional_value_object
class HttpResponse:
    """A complete answer with a success status."""

    body: bytes
    content_type: str


class Response(Protocol):
    """A response whose head is there; the names of its headers are found in lower case."""

    @property
    def status(self) -> int:
        """The status code."""

    @property
    def reason(self) -> str:
        """The reason phrase."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers."""

    @property
    def ended(self) -> bool:
        """Whether the whole body was received and read."""

    async def part(self) -> bytes:
        """Return what has arrived of the body; empty at its end."""

    async def whole(self) -> bytes:
        """Return the rest of the body."""

    def release(self) -> None:
        """Keep the connection for the next request, or drop it if the response is not over."""


class HttpClient:
    """The connections to a server; belongs to the event loop that uses it first.

    A plain URL is asked over connections of our own. aiohttp is for what these leave out: proxies,
    credentials and escapes in a URL.
    """

    def __init__(self, headers: Mapping[str, str], *, connect_s: float = 10.0) -> None:
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "bakeoff", **headers}
        self._connect_s = connect_s
        self.largest_body = LARGEST_BODY
        self.on_headers: Callable[[Mapping[str, str]], None] | None = None
        self._senders: dict[str, Callable[[bytes], Awaitable[Response]]] = {}
        self._pools: dict[HttpOrigin, ConnectionPool] = {}
        self._closing: list[Callable[[], Awaitable[None]]] = []

    async def post(self, url: str, body: bytes) -> HttpResponse:
        """Return the complete answer; one above the size limit is a fault."""
        response = await self._send(url, body)
        try:
            if self.on_headers:
                self.on_headers(response.headers)
            data = await _read(response, self.largest_body)
            if not 200 <= response.status < 300:
                raise _status_fault(response, url, data)
            return HttpResponse(data, response.headers.get("content-type", ""))
        finally:
            response.release()

    @asynccontextmanager
    async def stream(self, url: str, body: bytes) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open the answer as a stream of lines."""
        response = await self._send(url, body)
        try:
            if self.on_headers:
                self.on_headers(response.headers)
            if not 200 <= response.status < 300:
                raise _status_fault(response, url, await _read(response, self.largest_body))
            lines = lines_of(response, self.largest_body)
            try:
                yield lines
            finally:
                await lines.aclose()
            await _linger(response)
        finally:
            response.release()

    async def close(self) -> None:
        """Close every connection."""
        self._senders.clear()
        self._pools.clear()
        while self._closing:
            await self._closing.pop()()

    async def _send(self, url: str, body: bytes) -> Response:
        send = self._senders.get(url)
        if send is None:
            send = self._senders[url] = self._sender(url)
        return await send(body)

    def _sender(self, url: str) -> Callable[[bytes], Awaitable[Response]]:
        """Return what sends a body to *url*."""
        proxy, origin = _proxy(url), plain_origin(url)
        if proxy is not None or origin is None:
            return self._aiohttp_sender(url, proxy)
        if origin not in self._pools:
            pool = self._pools[origin] = ConnectionPool(origin, connect_s=self._connect_s)
            self._closing.append(pool.close)
        send, head = self._pools[origin].send, request_head(url, origin, self._headers)
        return lambda body: send(url, b"%b%d\r\n\r\n%b" % (head, len(body), body))

    def _aiohttp_sender(
        self, url: str, proxy: str | None
    ) -> Callable[[bytes], Awaitable[Response]]:
        from bakeoff.models.client.aiohttp_client import AiohttpClient

        client = AiohttpClient(self._headers, proxy=proxy, connect_s=self._connect_s)
        self._closing.append(client.close)
        return lambda body: client.send(url, body)


def _proxy(url: str) -> str | None:
    """Return the proxy that the environment names for *url*."""
    if sys.platform == "linux" and not any(name.lower().endswith("_proxy") for name in os.environ):
        return None  # elsewhere the system may name one, and importing it is expensive
    from urllib.request import getproxies, proxy_bypass

    target = urlsplit(url)
    if not target.hostname or proxy_bypass(target.hostname):
        return None
    named = getproxies().get(target.scheme)
    return named if named is None or "://" in named else f"http://{named}"


async def _read(response: Response, largest: int) -> bytes:
    body = BoundedBody(response.headers, largest)
    if body.exact:
        return await response.whole()
    parts = []
    while part := await response.part():
        parts.append(body.take(part))
    body.end()
    return b"".join(parts)


async def lines_of(response: Response, largest: int) -> AsyncGenerator[bytes]:
    """Yield the lines of a body as they arrive."""
    body = BoundedBody(response.headers, largest)
    begun: list[bytes] = []  # pieces of a line; joined once, or a slow drip would cost its square
    size = 0
    while part := await response.part():
        *lines, rest = body.take(part).split(b"\n")
        if lines:
            lines[0] = b"".join((*begun, lines[0]))
            begun, size = [], 0
        begun.append(rest)
        size += len(rest)
        if size > _LARGEST_LINE:
            raise ProviderError(f"a line of the stream is larger than {_LARGEST_LINE >> 20} MiB")
        for line in lines:
            yield line
    body.end()
    if last := b"".join(begun):
        yield last


async def _linger(response: Response) -> None:
    """Wait a moment for the end of the body, so that the connection can be reused."""
    if not response.ended:
        with suppress(TimeoutError, ProviderError):
            async with asyncio.timeout(_LINGER_S):
                await response.part()


def _status_fault(response: Response, url: str, body: bytes) -> ProviderError:
    """Return the fault for a status other than success."""
    detail = one_line(body[:1000].decode("utf-8", "replace"), width=300)
    message = f"HTTP {response.status} from {urlsplit(url).hostname}: {detail or response.reason}"
    if location := response.headers.get("location"):
        message += f"; it points to {one_line(location)!r}, which is not followed: is that the URL?"
    if hint := _HINTS.get(response.status):
        message += f"; {hint}"
    error = error_in(body)
    if response.status in _BAD_REQUEST:
        return BadRequest(message, error, status=response.status)
    if not is_retryable(response.status) or is_quota_exhausted(error):
        return ProviderError(message, billable=False, status=response.status)
    after = response.headers.get("retry-after")
    after_ms = response.headers.get("retry-after-ms")
    retry_after_s = retry_after(after, milliseconds=after_ms)
    if retry_after_s is None:
        retry_after_s = retry_delay_s(error)
    overload = overload_of(response.status)
    return RetryableError(
        message,
        retry_after_s=retry_after_s,
        overload=overload,
        billable=False,
        status=response.status,
    )
