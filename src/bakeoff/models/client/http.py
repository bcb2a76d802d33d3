"""The HTTP client of models: one POST, a bounded answer, and faults that say what is retryable.

It uses aiohttp because of its measured cost (`perf/README.md`): a fiftieth of the most common
client's, and it drops a connection the moment its request is cancelled.
"""

import asyncio
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from bakeoff._lib.redact import public_url
from bakeoff._lib.sanitize import one_line
from bakeoff._lib.value_object import positional_value_object
from bakeoff.core.errors import ProviderError
from bakeoff.models.client.parameters import BadRequest
from bakeoff.models.client.retry import (
    Overload,
    RetryableError,
    UnreachableError,
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
        encoding = headers.get("Content-Encoding")
        length = headers.get("Content-Length")
        self._largest = largest
        if length and length.isdigit() and int(length[:20]) > largest:
            raise _too_large(largest)
        self.exact = length is not None and encoding is None and "Transfer-Encoding" not in headers
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


class HttpClient:
    """A connection pool to one server; belongs to the event loop that uses it first."""

    def __init__(self, headers: Mapping[str, str], *, connect_s: float = 10.0) -> None:
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "bakeoff", **headers}
        self._connect_s = connect_s
        self.largest_body = LARGEST_BODY
        self.on_headers: Callable[[Mapping[str, str]], None] | None = None
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, body: bytes) -> HttpResponse:
        """Return the complete answer; one above the size limit is a fault."""
        with _faults(url):
            async with self._connection_pool(url).post(
                url, data=body, allow_redirects=False
            ) as response:
                if self.on_headers:
                    self.on_headers(response.headers)
                data = await _read(response, self.largest_body)
                if not 200 <= response.status < 300:
                    raise _status_fault(response, data)
                return HttpResponse(data, response.headers.get("Content-Type", ""))

    @asynccontextmanager
    async def stream(self, url: str, body: bytes) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open the answer as a stream of lines."""
        with _faults(url):
            async with self._connection_pool(url).post(
                url, data=body, allow_redirects=False
            ) as response:
                if self.on_headers:
                    self.on_headers(response.headers)
                if not 200 <= response.status < 300:
                    raise _status_fault(response, await _read(response, self.largest_body))
                lines = _lines(response, self.largest_body)
                try:
                    yield lines
                finally:
                    await lines.aclose()
                await _linger(response)

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _connection_pool(self, url: str) -> aiohttp.ClientSession:
        """Return the session that pools the connections, opened at the first request."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),  # `parallel` limits
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
                headers=self._headers,
                auto_decompress=False,  # `BoundedBody` limits the size
                proxy=_proxy(url),
            )
        return self._session


def _proxy(url: str) -> str | None:
    """Return the proxy that the environment names for *url*.

    aiohttp's own `trust_env` would ask a thread for it at every request, and send what is in
    ~/.netrc to a server that was given no key.
    """
    target = urlsplit(url)
    if not target.hostname or proxy_bypass(target.hostname):
        return None
    named = getproxies().get(target.scheme)
    return named if named is None or "://" in named else f"http://{named}"


async def _read(response: aiohttp.ClientResponse, largest: int) -> bytes:
    body = BoundedBody(response.headers, largest)
    if body.exact:
        return await response.content.read()
    parts = [body.take(part) async for part in response.content.iter_any()]
    body.end()
    return b"".join(parts)


async def _lines(response: aiohttp.ClientResponse, largest: int) -> AsyncGenerator[bytes]:
    body, rest = BoundedBody(response.headers, largest), b""
    async for part in response.content.iter_any():
        *lines, rest = (rest + body.take(part)).split(b"\n")
        if len(rest) > _LARGEST_LINE:
            raise ProviderError(f"a line of the stream is larger than {_LARGEST_LINE >> 20} MiB")
        for line in lines:
            yield line
    body.end()
    if rest:
        yield rest


async def _linger(response: aiohttp.ClientResponse) -> None:
    """Wait a moment for the end of the body, so that the connection can be reused."""
    if not response.content.at_eof():
        with suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(_LINGER_S):
                await response.content.readany()


def _status_fault(response: aiohttp.ClientResponse, body: bytes) -> ProviderError:
    """Return the fault for a status other than success."""
    detail = one_line(body[:1000].decode("utf-8", "replace"), width=300)
    message = f"HTTP {response.status} from {response.url.host}: {detail or response.reason}"
    if location := response.headers.get("Location"):
        message += f"; it points to {one_line(location)!r}, which is not followed: is that the URL?"
    if hint := _HINTS.get(response.status):
        message += f"; {hint}"
    error = error_in(body)
    if response.status in _BAD_REQUEST:
        return BadRequest(message, error, status=response.status)
    if not is_retryable(response.status) or is_quota_exhausted(error):
        return ProviderError(message, billable=False, status=response.status)
    after = response.headers.get("Retry-After")
    after_ms = response.headers.get("Retry-After-Ms")
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


_CLIENT_ERRORS = (aiohttp.ClientError, ValueError, OSError)


class _faults:  # noqa: N801 -- reads as a word at its place: `with _faults(url)`
    """Turns the errors of the HTTP library into faults, retryable or not."""

    __slots__ = ("_url",)

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        """Nothing has happened yet."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None and isinstance(error, _CLIENT_ERRORS):
            raise _client_fault(error, self._url) from error


def _client_fault(error: Exception, url: str) -> ProviderError:
    detail = one_line(_text(error).replace(url, public_url(url)), width=300)
    match error:
        case ssl.CertificateError():  # before ValueError, which it is too
            message = f"the certificate of {public_url(url)!r} is not to be trusted: {detail}"
            return ProviderError(message, billable=False)
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError() | ValueError():
            message = f"{public_url(url)!r} is not a URL that can be asked: {detail}"
            return ProviderError(message, billable=False)
        case aiohttp.ClientConnectorError() | aiohttp.ServerTimeoutError():
            return _not_connected(error, url)
        case aiohttp.ClientPayloadError():
            return RetryableError(f"the answer was cut: {detail}")
        case aiohttp.ServerDisconnectedError():
            return RetryableError(f"the connection was lost: {detail}", billable=False)
        case OSError():  # perhaps in the middle of an answer
            return RetryableError(f"the connection was lost: {detail}")
        case _:
            return ProviderError(f"not HTTP as it should be: {detail}")


def _not_connected(error: Exception, url: str) -> RetryableError:
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(
        error, aiohttp.ClientSSLError
    ):
        parts = urlsplit(url)
        place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        return UnreachableError(f"nothing answers at {place}: {connect_error_text(error)}")
    detail = one_line(_text(error), width=300)
    return RetryableError(f"cannot connect: {detail}", overload=Overload.LOAD, billable=False)


def connect_error_text(error: aiohttp.ClientConnectorError) -> str:
    """Return why a server could not be reached, without the library's own prefix."""
    if isinstance(error.os_error, ConnectionRefusedError):
        return "connection refused"
    return one_line(error.strerror or str(error.os_error), width=300)


def _text(error: Exception) -> str:
    match error:
        case aiohttp.ServerDisconnectedError():  # its own text may be half an answer's headers
            return "the server closed it without an answer"
        case aiohttp.ClientResponseError():  # its own text would claim a status of 400
            return error.message
        case _:
            return str(error) or type(error).__name__
