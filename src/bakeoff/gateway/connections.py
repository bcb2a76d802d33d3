"""Who may connect: a bounded number, so that a flood from one box takes neither memory nor descriptors."""

import asyncio
import resource
from collections.abc import Callable
from typing import cast

from aiohttp import web

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 45\r\n\r\n"
    b"too many connections to the gateway are open\n"
)


class Connections:
    """Gives each new connection somebody who speaks with it.

    Where there are too many, the oldest one that never showed a token makes way; where each of them
    did, the new one is turned away.
    """

    def __init__(self, most: int, *, is_known: Callable[[asyncio.BaseTransport], bool]) -> None:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # half: the run itself opens files, pipes and connections to models
        bounded = descriptors != resource.RLIM_INFINITY
        self._most = min(most, descriptors // 2) if bounded else most
        self._is_known = is_known

    def speaker(self, server: web.Server | None) -> asyncio.Protocol:
        """Return who speaks with the next connection; without a *server*, nobody does any more."""
        if server is None:
            return _TurnedAway()
        there = [one for one in server.connections if one.transport is not None]
        if len(there) < self._most:
            return server()
        for one in there:
            if one.transport is not None and not self._is_known(one.transport):
                one.force_close()
                return server()
        return _TurnedAway()


class _TurnedAway(asyncio.Protocol):
    """Says that it is full, and hangs up."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)  # uvloop's are none by their class
        stream.write(_FULL)
        stream.close()
