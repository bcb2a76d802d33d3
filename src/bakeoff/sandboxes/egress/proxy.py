"""An HTTP proxy through which one box reaches its allowed hosts; refused requests are recorded.

It listens on a unix socket, which a relay connects to a box without network, so there is no other
way out. A host is resolved only if it is allowed, and the checked address is the one that is
connected to. Private addresses, and those of this machine, are refused unless the operator lists
the host as well.
"""

import asyncio
import ipaddress
import socket
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from urllib.parse import urlsplit

from bakeoff._lib import scratch
from bakeoff._lib.sanitize import one_line
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import SandboxError, UsageError
from bakeoff.core.workspace import AllowedHost, Network, parse_allowed_host, plain_host

# as networks, for a routing table; the same ones as `is_global` uses
_NOT_PUBLIC = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    "192.0.0.0/24", "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
    "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
)  # fmt: skip
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # NAT64: the last 32 bits are an IPv4 address
_IPV4_TABLE = Path("/proc/net/fib_trie")
_IPV6_TABLE = Path("/proc/net/if_inet6")


def is_public(address: str) -> bool:
    """Whether *address* is public and not one of this machine's own."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if parsed.is_multicast or not parsed.is_global:
        return False
    inner = _embedded(parsed)
    if inner is not None:
        return is_public(str(inner))
    return str(parsed) not in own_addresses()


def _embedded(address: IPv4Address | IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that is embedded in an IPv6 address, if any."""
    if isinstance(address, IPv4Address):
        return None
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]


def closed_networks(uplink: str) -> list[str]:
    """Return the IPv4 networks that a box must not reach through an *uplink* on that network.

    On the uplink's own network only the uplink answers, whatever addresses this machine has.
    """
    inside = ipaddress.ip_network(uplink)
    own = [address for address in map(IPv4Address, sorted(_own_ipv4())) if address.is_global]
    return [*_NOT_PUBLIC, *(f"{address}/32" for address in own if address not in inside)]


def own_addresses() -> set[str]:
    """Return the addresses of this machine's interfaces, as far as the kernel lists them."""
    return {*_own_ipv4(), *_own_ipv6()}


def _own_ipv4() -> set[str]:
    own, last = set(), ""
    for line in _lines(_IPV4_TABLE):
        fields = line.split()
        if fields[:1] == ["|--"]:
            last = fields[1]
        elif fields == ["/32", "host", "LOCAL"]:
            own.add(last)
    return own


def _own_ipv6() -> set[str]:
    digits = (line.split()[0] for line in _lines(_IPV6_TABLE))
    return {str(IPv6Address(int(number, 16))) for number in digits}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []  # not Linux, or no IPv6


PORT = 8643  # in the box
_MAX_HEAD = 64 << 10
_CHUNK = 64 << 10
_MAX_CONNECTIONS = 256
_MAX_LISTED = 100
_HEAD_S = 30.0
_CONNECT_S = 30.0
_WORLD_WRITABLE = 0o666
_DROPPED = (b"proxy-", b"connection:", b"keep-alive:", b"host:")


class _RefusedError(Exception):
    """A refused request, with the HTTP status and reason for the client."""

    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status = status


@value_object
class _Target:
    """The destination of a request; `head` is sent there first, empty for a tunnel."""

    host: str
    port: int
    head: bytes

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class EgressProxy:
    """The proxy of one box."""

    def __init__(self, hosts: Iterable[str], *, private_hosts: Iterable[str] = ()) -> None:
        self._allowed = _parsed(hosts)
        self._private = _parsed(private_hosts)
        self._refused: Counter[str] = Counter()
        self._unlisted = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._folder = scratch.new_folder("proxy")
        self.socket = self._folder / "proxy.sock"

    async def start(self) -> None:
        """Listen on the socket."""
        try:
            self._server = await asyncio.start_unix_server(
                self._accept, self.socket, limit=_MAX_HEAD
            )
            self.socket.chmod(_WORLD_WRITABLE)  # its folder is private; a box sees only the socket
        except OSError as error:
            await self.close()
            raise SandboxError(f"the proxy cannot listen at {self.socket}: {error}") from error

    @property
    def refused(self) -> tuple[str, ...]:
        """The refused requests, each once with its count."""
        lines = [f"{line} ({n} times)" if n > 1 else line for line, n in self._refused.items()]
        return (*lines, *([f"and {self._unlisted} more"] if self._unlisted else []))

    async def close(self) -> None:
        """Close every connection and remove the socket."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)
        await asyncio.to_thread(scratch.remove, self._folder)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= _MAX_CONNECTIONS:
            writer.close()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                await self._forward(reader, writer)
        finally:
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_S):
                head = await _head(reader)
            target = _target(head)
            connection = await self._connect(target)
        except _RefusedError as refusal:
            writer.write(_error_response(refusal.status, str(refusal)))
            await writer.drain()
            return
        far_reader, far_writer = connection
        try:
            if target.head:
                far_writer.write(target.head)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, far_writer))
                both.create_task(_pump(far_reader, writer))
        finally:
            far_writer.close()

    async def _connect(self, target: _Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection to an allowed address of *target*."""
        if not _is_covered(self._allowed, target):
            why = "is not among the hosts and ports that this task may reach"
            raise self._refusal(target, why)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_S):
                entries = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except (OSError, TimeoutError) as error:
            raise _RefusedError("502 Bad Gateway", f"{target}: {error}") from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
        if not _is_covered(self._private, target) and not all(map(is_public, addresses)):
            why = "is a private address, or one of the host's own; the operator has not allowed it"
            raise self._refusal(target, why)
        return await _first_connection(addresses, target)

    def _refusal(self, target: _Target, why: str) -> _RefusedError:
        line = one_line(f"{target} {why}")
        if line in self._refused or len(self._refused) < _MAX_LISTED:
            self._refused[line] += 1
        else:
            self._unlisted += 1
        return _RefusedError("403 Forbidden", line)


def proxy_environment(port: int = PORT) -> dict[str, str]:
    """Return the environment variables that point programs in a box to the proxy."""
    url, direct = f"http://127.0.0.1:{port}", "localhost,127.0.0.1,::1"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    proxies = {spelled: url for name in names for spelled in (name, name.lower())}
    return {**proxies, "NO_PROXY": direct, "no_proxy": direct}


async def open_proxy(network: Network, *, private_hosts: Iterable[str]) -> EgressProxy | None:
    """Return the proxy for a box whose *network* is a list of hosts, None for any other."""
    if isinstance(network, bool) or not network:
        return None
    proxy = EgressProxy(network, private_hosts=private_hosts)
    await proxy.start()
    return proxy


def checked_private_hosts(private_hosts: object) -> tuple[str, ...]:
    """Return the operator's `private_hosts`; UsageError where they are not a list of hosts."""
    what = "private_hosts of the sandbox"
    if not isinstance(private_hosts, list | tuple):
        raise UsageError(f'{what}: a list of hosts is expected, such as ["mirror.example"]')
    hosts = tuple(str(host) for host in private_hosts)
    try:
        _parsed(hosts)
    except ValueError as error:
        raise UsageError(f"{what}: {error}") from None
    return hosts


def _parsed(hosts: Iterable[str]) -> tuple[AllowedHost, ...]:
    return tuple(parse_allowed_host(host) for host in hosts)


def _is_covered(allowed: tuple[AllowedHost, ...], target: _Target) -> bool:
    return any(entry.covers(target.host, target.port) for entry in allowed)


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise _RefusedError("431 Request Header Fields Too Large", "too long") from error


def _target(head: bytes) -> _Target:
    """Parse the destination of a request: `CONNECT host:port`, or `GET http://...`."""
    first, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    request_line = first.decode("ascii", errors="replace").split(" ")
    try:
        method, address, _ = request_line
        tunnel = method == "CONNECT"
        parts = urlsplit(f"//{address}" if tunnel else address)
        host, port = plain_host(parts.hostname or ""), parts.port
    except ValueError:
        raise _not_understood() from None
    if host is None or (tunnel and port is None) or (not tunnel and parts.scheme != "http"):
        raise _not_understood()
    if tunnel:
        return _Target(host=host, port=port or 0, head=b"")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = [field for field in fields if not field.lower().startswith(_DROPPED)]
    authority = f"Host: {parts.netloc.rpartition('@')[2]}".encode()
    # one request per connection: the next one may be for another host
    lines = [f"{method} {path} HTTP/1.1".encode(), authority, *headers, b"Connection: close"]
    return _Target(host=host, port=port or 80, head=b"\r\n".join([*lines, b"", b""]))


def _not_understood() -> _RefusedError:
    return _RefusedError(
        "400 Bad Request", "this is a proxy: CONNECT host:port, or GET http://host/"
    )


async def _first_connection(
    addresses: list[str], target: _Target
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    failure: Exception | None = None
    for address in addresses:
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await asyncio.open_connection(address, target.port)
        except (OSError, TimeoutError) as error:
            failure = error
    raise _RefusedError("502 Bad Gateway", f"{target} cannot be reached: {failure}")


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy *source* to *sink* until its end; an error closes the sink."""
    try:
        while chunk := await source.read(_CHUNK):
            sink.write(chunk)
            await sink.drain()
        sink.write_eof()
    except OSError:
        sink.close()  # its reader sees the end


def _error_response(status: str, why: str) -> bytes:
    body = f"bakeoff: {why}\n".encode()
    fields = f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close"
    return f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n".encode() + body
