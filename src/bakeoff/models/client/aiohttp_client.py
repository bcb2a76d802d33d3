"""Requests that `connection` leaves out: through a proxy, or to a URL with credentials or escapes."""

import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

import aiohttp

from bakeoff._lib.redact import public_url
from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import ProviderError
from bakeoff.models.client.connection import certificate_fault, connect_error_text, not_connected
from bakeoff.models.client.retry import RetryableError, UnreachableError


class AiohttpResponse:
    """A response of aiohttp; its errors become faults."""

    def __init__(self, response: aiohttp.ClientResponse, url: str) -> None:
        self._response = response
        self._url = url
        self.status = response.status
        self.reason = response.reason or ""
        self.headers: Mapping[str, str] = response.headers

    @property
    def ended(self) -> bool:
        """Whether the whole body was received and read."""
        return self._response.content.at_eof()

    async def part(self) -> bytes:
        """Return what has arrived of the body; empty at its end."""
        with _faults(self._url):
            return await self._response.content.readany()

    async def whole(self) -> bytes:
        """Return the rest of the body."""
        with _faults(self._url):
            return await self._response.content.read()

    def release(self) -> None:
        """Keep the connection for the next request, or drop it if the response is not over."""
        if self.ended:
            self._response.release()
        else:
            self._response.close()


class AiohttpClient:
    """A session of aiohttp; belongs to the event loop that uses it first."""

    def __init__(self, headers: Mapping[str, str], *, proxy: str | None, connect_s: float) -> None:
        self._headers = headers
        self._proxy = proxy
        self._connect_s = connect_s
        self._session: aiohttp.ClientSession | None = None

    async def send(self, url: str, body: bytes) -> AiohttpResponse:
        """Post *body* to *url*; return once the head of the response is there."""
        with _faults(url):
            response = await self._open().post(url, data=body, allow_redirects=False)
        return AiohttpResponse(response, url)

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        # not `trust_env`: it would ask a thread for the proxy at every request, and send what is
        # in ~/.netrc to a server that was given no key
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),  # `parallel` limits
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
                headers=self._headers,
                auto_decompress=False,  # `BoundedBody` limits the size
                proxy=self._proxy,
            )
        return self._session


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
            return certificate_fault(error, url)
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
            return ProviderError(f"not valid HTTP: {detail}")


def _not_connected(error: Exception, url: str) -> RetryableError:
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(
        error, aiohttp.ClientSSLError
    ):
        parts = urlsplit(url)
        place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        return UnreachableError(f"nothing answers at {place}: {connect_error_text(error.os_error)}")
    return not_connected(one_line(_text(error), width=300))


def _text(error: Exception) -> str:
    match error:
        case aiohttp.ServerDisconnectedError():  # its own text may be half an answer's headers
            return "the server closed it without an answer"
        case aiohttp.ClientResponseError():  # its own text would claim a status of 400
            return error.message
        case _:
            return str(error) or type(error).__name__
