"""A small HTTP/1.1 client: POST over kept-alive connections, with limits on what a server may send.

httptools parses, the event loop does TLS. It costs a fifth of a general client (docs/performance.md),
and does one thing: what is not a plain URL, or goes through a proxy, is left to `aiohttp_client`.
"""

import asyncio
import re
import socket
import ssl
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import cast
from urllib.parse import urlsplit

from aiohappyeyeballs import AddrInfoType, start_connection
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from bakeoff._lib.redact import public_url
from bakeoff._lib.sanitize import one_line
from bakeoff._lib.value_object import positional_value_object
from bakeoff.core.errors import ProviderError
from bakeoff.models.client.retry import Overload, RetryableError, UnreachableError

_LARGEST_FRAMING = 64 * 1024  # of headers, or of what is between two pieces of a body
_HIGH_WATER = 1024 * 1024  # of a body that is not read
_KEEP_ALIVE_S = 30.0
_ADDRESSES_S = 10.0
_NEXT_ADDRESS_S = 0.25
_ALL = sys.maxsize
_LARGEST_PORT = 65535
_PORTS = {"http": 80, "https": 443}
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_PLAIN_URL = re.compile(
    r"(?P<scheme>https?)://"
    rf"(?P<host>{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{{1,5}}))?"
    r"(?:/(?!\.)(?:[A-Za-z0-9_~!$&'()*+,;=:@-][A-Za-z0-9._~!$&'()*+,;=:@-]*)?)*"
    r"(?:\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?"
)
_NO_ANSWER = "the server closed it without an answer"
_BREAKS = re.compile(r"[\r\n\0]")


@positional_value_object
class HttpOrigin:
    """A server: scheme, host and port."""

    scheme: str
    host: str
    port: int

    @property
    def text(self) -> str:
        """The origin as the beginning of a URL; it is also what `Host` names, behind the scheme."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + (
            "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        )


def plain_origin(url: str) -> HttpOrigin | None:
    """Return the server of *url* if the URL can be sent as it is written: no escapes, no credentials."""
    match = _PLAIN_URL.fullmatch(url)
    if match is None or int(match["port"] or 0) > _LARGEST_PORT:
        return None
    scheme = match["scheme"]
    return HttpOrigin(scheme, match["host"].strip("[]"), int(match["port"] or _PORTS[scheme]))


def request_head(url: str, origin: HttpOrigin, headers: Mapping[str, str]) -> bytes:
    """Return the head of a POST to *url*, up to the value of its Content-Length."""
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    fields = {"Host": origin.text.partition("://")[2], "Accept": "*/*", **headers}
    for name, value in fields.items():
        if _BREAKS.search(name + value):
            raise ProviderError(f"the header {name!r} has a line break in it; nothing was sent")
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "Content-Length: "]).encode()


class Connection(asyncio.Protocol):
    """One connection, and the response that is under way on it."""

    def __init__(self, pool: "ConnectionPool") -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.idle_since = 0.0
        self._parser = HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(  # as every browser and most clients are
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        self._expect_nothing()

    def _expect_nothing(self) -> None:
        self.status = 0
        self.reason = ""
        self.headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._buffered = 0
        self._wanted = 0  # how much of the body its reader waits for
        self._unparsed = 0  # received since the last piece of a body
        self._asked = self._has_head = self._complete = self._keep_alive = self._paused = False
        self._failure: ProviderError | None = None

    # --- called by its user

    async def exchange(self, request: bytes) -> None:
        """Send *request* and wait for the head of its response."""
        if self._transport is None:
            raise RetryableError(f"the connection was lost: {_NO_ANSWER}", billable=False)
        self._asked = True
        self._transport.write(request)
        await self._wait(0)

    @property
    def ended(self) -> bool:
        """Whether the whole body was received and read."""
        return self._complete and not self._parts

    async def part(self) -> bytes:
        """Return what has arrived of the body; empty at its end."""
        if not self._parts and not self._complete:
            await self._wait(1)
        return self._take()

    async def whole(self) -> bytes:
        """Return the rest of the body."""
        if not self._complete:
            await self._wait(_ALL)
        return self._take()

    def release(self) -> None:
        """Keep the connection for the next request, or drop it if the response is not over."""
        if self._complete and self._keep_alive and self._failure is None and self._all_sent():
            self._expect_nothing()
            self.idle_since = self._loop.time()
            self._pool.idle.append(self)
        else:
            self.abort()

    @property
    def open(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _all_sent(self) -> bool:
        transport = self._transport
        return self.open and transport is not None and not transport.get_write_buffer_size()

    async def _wait(self, wanted: int) -> None:
        """Wait for the head, and for *wanted* bytes of the body or its end."""
        if self._failure is None and not self._complete:
            self._wanted = wanted
            if self._paused and self._transport is not None:
                self._paused = False
                self._transport.resume_reading()
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._failure is not None:
            raise self._failure

    def _take(self) -> bytes:
        parts, self._parts, self._buffered = self._parts, [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; the pool keeps it until it is closed."""
        self._transport = cast("asyncio.Transport", transport)
        self._pool.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Parse *data*, and wake the reader if there is what it waits for."""
        if not self._asked:  # data without a request
            self.abort()
            return
        if self._failure is not None:
            return
        self._unparsed += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail(ProviderError(f"not valid HTTP: {one_line(str(error), width=300)}"))
            return
        if self._unparsed > _LARGEST_FRAMING and not self._complete:
            kib = _LARGEST_FRAMING >> 10
            self._fail(ProviderError(f"not valid HTTP: over {kib} KiB of headers or chunk sizes"))
        elif self._has_head and (self._complete or self._buffered >= self._wanted):
            self._wake()
            self._pause_if_flooded()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail a response that is not complete; one without a length ends like this."""
        self._transport = None
        self._pool.connections.discard(self)
        if not self._asked or self._complete or self._failure is not None:
            return
        detail = one_line(str(exc), width=300) if exc else ""
        if not self._has_head:
            message = f"the connection was lost: {detail or _NO_ANSWER}"
            self._fail(RetryableError(message, billable=exc is not None))
        elif exc is None and not self.headers.keys() & {"content-length", "transfer-encoding"}:
            self._complete = True
            self._wake()
        else:
            self._fail(RetryableError(f"the answer was cut: {detail or 'the connection closed'}"))

    def _fail(self, error: ProviderError) -> None:
        self._failure = error
        self._wake()
        self.abort()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _pause_if_flooded(self) -> None:
        flooded = self._buffered > max(_HIGH_WATER, self._wanted)
        if flooded and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    # --- called by the parser

    def on_message_begin(self) -> None:
        """Note that an unrequested response begins."""
        if self._complete:
            self._keep_alive = False

    def on_status(self, status: bytes) -> None:
        """Keep the reason phrase."""
        if not self._complete:
            self.reason = status.decode("utf-8", "replace")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the first value of each header, by its name in lower case; trailers are dropped."""
        if not self._has_head:
            self.headers.setdefault(
                name.decode("latin-1").lower(), value.decode("utf-8", "surrogateescape")
            )

    def on_headers_complete(self) -> None:
        """Let the head be read, unless the response itself is still to come."""
        if not self._complete:
            self.status = self._parser.get_status_code()
            self._has_head = self.status >= 200  # 1xx precede the response

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        if not self._complete:
            self._unparsed = 0
            self._parts.append(body)
            self._buffered += len(body)

    def on_message_complete(self) -> None:
        """End the response, or what precedes it."""
        if self._has_head:
            if not self._complete:
                self._keep_alive = self._parser.should_keep_alive()
            self._complete = True
        else:
            self.headers = {}


class ConnectionPool:
    """The connections to one server; belongs to one event loop."""

    def __init__(self, origin: HttpOrigin, *, connect_s: float) -> None:
        self._origin = origin
        self._connect_s = connect_s
        self.idle: list[Connection] = []
        self.connections: set[Connection] = set()
        self._addresses: Sequence[AddrInfoType] = ()
        self._resolved_at = 0.0

    async def send(self, url: str, request: bytes) -> Connection:
        """Send *request* to *url*; return the connection once the head of the response is there."""
        connection = self._idle_connection() or await self._connect(url)
        try:
            await connection.exchange(request)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def close(self) -> None:
        """Drop every connection."""
        self.idle.clear()
        while self.connections:
            for connection in tuple(self.connections):
                connection.abort()
            await asyncio.sleep(0)  # each leaves the set once it is closed

    def _idle_connection(self) -> Connection | None:
        while self.idle:  # the one used last first
            connection = self.idle.pop()
            if asyncio.get_running_loop().time() - connection.idle_since > _KEEP_ALIVE_S:
                connection.abort()
            elif connection.open:
                return connection
        return None

    async def _connect(self, url: str) -> Connection:
        try:
            async with asyncio.timeout(self._connect_s):
                return await self._connected()
        except ssl.CertificateError as error:
            raise certificate_fault(error, url) from error
        except TimeoutError as error:
            raise not_connected(f"timeout: no connection within {self._connect_s:g} s") from error
        except OSError as error:
            raise not_connected(one_line(str(error), width=300)) from error

    async def _connected(self) -> Connection:
        loop, origin = asyncio.get_running_loop(), self._origin
        try:
            sock = await start_connection(
                await self._resolve(), happy_eyeballs_delay=_NEXT_ADDRESS_S, loop=loop
            )
        except TimeoutError:
            raise
        except OSError as error:
            raise UnreachableError(
                f"nothing answers at {origin.text}: {connect_error_text(error)}"
            ) from error
        connection = Connection(self)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            tls = origin.scheme == "https"
            await loop.create_connection(
                lambda: connection,
                sock=sock,
                ssl=_tls_context() if tls else None,
                server_hostname=origin.host if tls else None,
            )
        except BaseException:
            # uvloop does not report the end of a connection that was made but not awaited
            self.connections.discard(connection)
            sock.close()
            raise
        return connection

    async def _resolve(self) -> Sequence[AddrInfoType]:
        loop = asyncio.get_running_loop()
        if not self._addresses or loop.time() - self._resolved_at > _ADDRESSES_S:
            self._addresses = await loop.getaddrinfo(
                self._origin.host, self._origin.port, type=socket.SOCK_STREAM
            )
            self._resolved_at = loop.time()
        return self._addresses


def certificate_fault(error: ssl.CertificateError, url: str) -> ProviderError:
    """Return the fault of a server whose certificate cannot be verified."""
    detail = one_line(str(error), width=300)
    message = f"the certificate of {public_url(url)!r} is not to be trusted: {detail}"
    return ProviderError(message, billable=False)


def not_connected(detail: str) -> RetryableError:
    """Return the fault of a connection that did not come about for another reason."""
    return RetryableError(f"cannot connect: {detail}", overload=Overload.LOAD, billable=False)


def connect_error_text(error: OSError) -> str:
    """Return why a server could not be reached."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return one_line(error.strerror or str(error), width=300)


@cache
def _tls_context() -> ssl.SSLContext:
    """Return the context of every TLS connection: reading the certificates takes tens of ms."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
