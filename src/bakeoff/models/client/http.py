"""HTTP as models need it: one POST, a bounded answer, and faults that say what may be tried again.

aiohttp, because of what was measured (`perf/README.md`): a fiftieth of the cost of
the most common client, and it lets go of a connection the moment its request is cancelled.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from bakeoff._lib.redact import public_url
from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import ProviderError
from bakeoff.models.client.bounded_body import LARGEST_BODY, BoundedBody
from bakeoff.models.client.faults import error_in, is_spent, pause_s
from bakeoff.models.client.parameters import BadRequest
from bakeoff.models.client.retry import (
    Strain,
    TryAgain,
    Unreachable,
    may_pass,
    retry_after,
    strain_of,
)

_LARGEST_LINE = 4 * 1024 * 1024
_LINGER_S = 0.1
_BAD_REQUEST = frozenset({400, 422})
_HINTS = {
    401: "is the API key right?",
    403: "is the API key right, and may it use this model?",
    404: "is the base URL right (most end in /v1), and is there such a model?",
}


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A whole answer with a status of success."""

    body: bytes
    content_type: str


class HttpClient:
    """One pool of connections to one server; belongs to the event loop that uses it first."""

    def __init__(self, headers: Mapping[str, str], *, connect_s: float = 10.0) -> None:
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "bakeoff", **headers}
        self._connect_s = connect_s
        self.largest_body = LARGEST_BODY
        self.on_headers: Callable[[Mapping[str, str]], None] | None = None
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, body: bytes) -> HttpResponse:
        """Return the answer, whole and not larger than it should be."""
        with _faults(url):
            async with self._open(url).post(url, data=body, allow_redirects=False) as response:
                if self.on_headers:
                    self.on_headers(response.headers)
                data = await _read(response, self.largest_body)
                if not 200 <= response.status < 300:
                    raise _no(response, data)
                return HttpResponse(data, response.headers.get("Content-Type", ""))

    @asynccontextmanager
    async def stream(self, url: str, body: bytes) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open the answer as lines that come while it is being written."""
        with _faults(url):
            async with self._open(url).post(url, data=body, allow_redirects=False) as response:
                if self.on_headers:
                    self.on_headers(response.headers)
                if not 200 <= response.status < 300:
                    raise _no(response, await _read(response, self.largest_body))
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

    def _open(self, url: str) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),  # `parallel` limits
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
                headers=self._headers,
                auto_decompress=False,  # `Intake` knows when to stop
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
    intake = BoundedBody(response.headers, largest)
    if intake.exact:
        return await response.content.read()
    parts = [intake.take(part) async for part in response.content.iter_any()]
    intake.end()
    return b"".join(parts)


async def _lines(response: aiohttp.ClientResponse, largest: int) -> AsyncGenerator[bytes]:
    intake, rest = BoundedBody(response.headers, largest), b""
    async for part in response.content.iter_any():
        *lines, rest = (rest + intake.take(part)).split(b"\n")
        if len(rest) > _LARGEST_LINE:
            raise ProviderError(f"a line of the stream is larger than {_LARGEST_LINE >> 20} MiB")
        for line in lines:
            yield line
    intake.end()
    if rest:
        yield rest


async def _linger(response: aiohttp.ClientResponse) -> None:
    """Wait a moment for the end behind the last word: then the connection can be used again."""
    if not response.content.at_eof():
        with suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(_LINGER_S):
                await response.content.readany()


def _no(response: aiohttp.ClientResponse, body: bytes) -> ProviderError:
    """Return the fault that a status other than success means."""
    said = one_line(body[:1000].decode("utf-8", "replace"), width=300)
    message = f"HTTP {response.status} from {response.url.host}: {said or response.reason}"
    if location := response.headers.get("Location"):
        message += f"; it points to {one_line(location)!r}, which is not followed: is that the URL?"
    if hint := _HINTS.get(response.status):
        message += f"; {hint}"
    error = error_in(body)
    if response.status in _BAD_REQUEST:
        return BadRequest(message, error, status=response.status)
    if not may_pass(response.status) or is_spent(error):
        return ProviderError(message, billable=False, status=response.status)
    after = response.headers.get("Retry-After")
    after_ms = response.headers.get("Retry-After-Ms")
    after_s = retry_after(after, milliseconds=after_ms)
    if after_s is None:
        after_s = pause_s(error)
    strain = strain_of(response.status)
    return TryAgain(message, after_s=after_s, strain=strain, billable=False, status=response.status)


class _faults:  # noqa: N801 -- reads as a word at its place: `with _faults(url)`
    """Names what the client raises: what may pass, and what will not."""

    __slots__ = ("_url",)

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        """Nothing has happened yet."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, aiohttp.ClientError | ValueError | OSError):
            raise _named(error, self._url) from error


def _named(error: Exception, url: str) -> ProviderError:
    said = one_line(_text(error).replace(url, public_url(url)), width=300)
    match error:
        case ssl.CertificateError():  # before ValueError, which it is too
            message = f"the certificate of {public_url(url)!r} is not to be trusted: {said}"
            return ProviderError(message, billable=False)
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError() | ValueError():
            message = f"{public_url(url)!r} is not a URL that can be asked: {said}"
            return ProviderError(message, billable=False)
        case aiohttp.ClientConnectorError() | aiohttp.ServerTimeoutError():
            return _not_connected(error, url)
        case aiohttp.ClientPayloadError():
            return TryAgain(f"the answer was cut: {said}")
        case aiohttp.ServerDisconnectedError():
            return TryAgain(f"the connection was lost: {said}", billable=False)
        case OSError():  # perhaps in the middle of an answer
            return TryAgain(f"the connection was lost: {said}")
        case _:
            return ProviderError(f"not HTTP as it should be: {said}")


def _not_connected(error: Exception, url: str) -> TryAgain:
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(
        error, aiohttp.ClientSSLError
    ):
        parts = urlsplit(url)
        place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        return Unreachable(f"nothing answers at {place}: {unanswered(error)}")
    said = one_line(_text(error), width=300)
    return TryAgain(f"cannot connect: {said}", strain=Strain.LOAD, billable=False)


def unanswered(error: aiohttp.ClientConnectorError) -> str:
    """Return why a server could not be reached, without the library's own words."""
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
