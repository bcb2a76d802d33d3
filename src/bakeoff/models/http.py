"""HTTP as models need it: one POST, a bounded answer, and faults that say what may be tried again.

aiohttp, because of what was measured (`benchmarks/README.md`): a fifth of the cost of the next
common client, and it lets go of a connection the moment its request is cancelled.
"""

import ssl
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import aiohttp

from bakeoff._lib.untrusted import one_line
from bakeoff.core.errors import ProviderError
from bakeoff.models.retry import TryAgain, retry_after

LARGEST_BODY = 64 * 1024 * 1024
_LARGEST_LINE = 4 * 1024 * 1024
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer with status 200."""

    body: bytes
    content_type: str


class HttpClient:
    """One pool of connections; belongs to the event loop that uses it first."""

    def __init__(self, *, connect_s: float = 10.0) -> None:
        self._connect_s = connect_s
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Return the answer, whole and not larger than it should be."""
        with _faults(url):
            async with self._open().post(
                url, data=body, headers=headers, allow_redirects=False
            ) as response:
                data = await _read(response)
                _check_status(response, data)
                return Answer(body=data, content_type=response.content_type)

    @asynccontextmanager
    async def stream(
        self, url: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open the answer as lines that come while it is being written."""
        with _faults(url):
            async with self._open().post(
                url, data=body, headers=headers, allow_redirects=False
            ) as response:
                if response.status != 200:
                    _check_status(response, await _read(response))
                try:
                    yield _lines(response)
                finally:
                    if not response.content.at_eof():
                        response.close()  # never reuse a connection that was read by half

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0,  # `parallel` is the limit
                    keepalive_timeout=30,
                    ssl=ssl.create_default_context(),
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
                headers={"Accept-Encoding": "identity", "User-Agent": "bakeoff"},
                auto_decompress=False,  # `_inflate` knows when to stop
                trust_env=True,
            )
        return self._session


async def _read(response: aiohttp.ClientResponse) -> bytes:
    size, parts = 0, []
    async for part in response.content.iter_any():
        size += len(part)
        if size > LARGEST_BODY:
            response.close()
            raise ProviderError(f"the answer is larger than {LARGEST_BODY >> 20} MiB")
        parts.append(part)
    body = b"".join(parts)
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    return body if encoding == "identity" else _inflate(body, encoding)


def _inflate(body: bytes, encoding: str) -> bytes:
    """Return *body* decompressed, but never more of it than an answer may have."""
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        raise ProviderError(f"the answer is encoded as {encoding!r}, which was not asked for")
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        data = stream.decompress(body, LARGEST_BODY)
    except zlib.error as error:
        raise ProviderError(f"the answer is not valid {encoding}: {error}") from error
    if stream.unconsumed_tail:
        raise ProviderError(f"the answer is larger than {LARGEST_BODY >> 20} MiB when unpacked")
    return data


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    size, rest = 0, b""
    async for part in response.content.iter_any():
        size += len(part)
        *lines, rest = (rest + part).split(b"\n")
        if size > LARGEST_BODY or len(rest) > _LARGEST_LINE:
            raise ProviderError("the stream is larger than an answer may be")
        for line in lines:
            yield line
    if rest:
        yield rest


def _check_status(response: aiohttp.ClientResponse, body: bytes) -> None:
    if response.status == 200:
        return
    said = one_line(body[:1000].decode("utf-8", "replace"), width=300)
    message = f"HTTP {response.status} from {response.url.host}: {said or response.reason}"
    if response.status not in _PASSING:
        raise ProviderError(message)
    after = response.headers.get("Retry-After")
    after_ms = response.headers.get("Retry-After-Ms")
    raise TryAgain(message, after_s=retry_after(after, milliseconds=after_ms))


@contextmanager
def _faults(url: str) -> Iterator[None]:
    """Name what the client raises: what may pass, and what will not."""
    try:
        yield
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, ValueError) as error:
        raise ProviderError(f"{url!r} is not a URL that can be asked: {error}") from error
    except (aiohttp.ClientSSLError, ssl.SSLError) as error:
        raise ProviderError(f"no secure connection: {error}") from error
    except aiohttp.ClientConnectorError as error:
        raise TryAgain(f"cannot connect: {error}") from error
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
        raise TryAgain(f"the connection was lost: {error}") from error
    except aiohttp.ClientPayloadError as error:
        raise TryAgain(f"the answer was cut: {error}") from error
    except aiohttp.ClientError as error:
        raise ProviderError(f"not HTTP as it should be: {type(error).__name__}: {error}") from error
