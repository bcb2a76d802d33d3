"""The sockets of a gateway: one in the file system, for boxes without a network, one on loopback."""

import asyncio
import os
import resource
import secrets
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import cast

from aiohttp import web

from bakeoff._lib import scratch
from bakeoff.core.errors import SandboxError

_LONGEST_PATH = 100  # bytes; the kernel takes 107, and other systems less
_PRIVATE = 0o700
_ANYBODY = 0o666
WAITING = 512
_DESCRIPTORS = Path("/proc/self/fd")


class ListeningSockets:
    """Two sockets that listen; `url` and `path` say where.

    Nobody else reaches the socket through its folder. A box is shown the socket alone, and may
    connect to it as any user; access is checked by token.
    """

    def __init__(self, folder: Path) -> None:
        with ExitStack() as held:
            try:
                self.path = _place(folder.absolute(), held)
                self.unix = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                held.callback(self.path.unlink, missing_ok=True)
                _bind(self.unix, self.path)
                self.path.chmod(_ANYBODY)
                self.unix.listen(WAITING)
                self.tcp = held.enter_context(
                    socket.create_server(("127.0.0.1", 0), backlog=WAITING)
                )
            except OSError as error:
                raise SandboxError(
                    f"the gateway cannot listen in {folder}: {error}; it needs a folder that it "
                    f"may write to, with a path of at most {_LONGEST_PATH - 14} bytes (or such a "
                    "TMPDIR), and a free port on 127.0.0.1"
                ) from error
            self._held = held.pop_all()
        self.url = f"http://127.0.0.1:{self.tcp.getsockname()[1]}"

    def close(self) -> None:
        """Leave nothing behind; servers on the sockets must be closed before."""
        self._held.close()


def _place(folder: Path, held: ExitStack) -> Path:
    name = f"{secrets.token_hex(4)}.sock"
    if _is_long(folder / name) and not _DESCRIPTORS.is_dir():
        folder = scratch.new_folder("gateway")
        held.callback(scratch.remove, folder)
    folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    return folder / name


def _is_long(path: Path) -> bool:
    return len(os.fsencode(path)) > _LONGEST_PATH


def _bind(sock: socket.socket, path: Path) -> None:
    """Bind *sock* to *path*; one that is too long is named through a descriptor of its folder."""
    if not _is_long(path):
        sock.bind(str(path))
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sock.bind(str(_DESCRIPTORS / str(folder) / path.name))
    finally:
        os.close(folder)


_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 45\r\n\r\n"
    b"too many connections to the gateway are open\n"
)


class Connections:
    """Gives each new connection its protocol.

    Where there are too many, the oldest one that never showed a token makes way; where each of them
    did, the new one is turned away.
    """

    def __init__(self, most: int, *, is_known: Callable[[asyncio.BaseTransport], bool]) -> None:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # half: the run itself opens files, pipes and connections to models
        bounded = descriptors != resource.RLIM_INFINITY
        self._most = min(most, descriptors // 2) if bounded else most
        self._is_known = is_known

    def protocol_for(self, server: web.Server | None) -> asyncio.Protocol:
        """Return the protocol of the next connection; without a *server*, one that closes it."""
        if server is None:
            return _ConnectionRefused()
        handlers = [handler for handler in server.connections if handler.transport is not None]
        if len(handlers) < self._most:
            return server()
        for handler in handlers:
            if handler.transport is not None and not self._is_known(handler.transport):
                handler.force_close()
                return server()
        return _ConnectionRefused()


class _ConnectionRefused(asyncio.Protocol):
    """Says that it is full, and hangs up."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)  # uvloop's are none by their class
        stream.write(_FULL)
        stream.close()
