"""How much of the host one trial may take up through the gateway.

A program in a box may be broken, or mean harm: it may send without end, ask all at once, or never
read what it is answered. Whatever is held for it is counted here, and what would be too much is
refused with a word that tells it apart from a fault of the model.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bakeoff.core.task import Message
from bakeoff.gateway.dialects.dialect import Problem, UnansweredError

_MB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBounds:
    """What one trial may take up; far more than any program needs that means well.

    `body` and `bodies` are bytes: of one question, and of all that are under way. `parts` are the
    messages, prompts and tools of one question. `kept` are the letters of the transcript that come
    from the program, and once more of those that come from the model. `all_connections` is of all
    trials together.
    """

    body: int = 16 * _MB
    bodies: int = 48 * _MB
    parts: int = 10_000
    requests: int = 64
    connections: int = 128
    all_connections: int = 4096
    kept: int = 32 * _MB

    def too_large(self) -> UnansweredError:
        """Return the refusal of a question that is too long."""
        return _refused(413, "request_too_large", f"the request is larger than {_mb(self.body)}")

    def too_many_parts(self) -> UnansweredError:
        """Return the refusal of a question that is in too many pieces."""
        why = f"the request has more than {self.parts} messages and tools"
        return _refused(413, "request_too_large", why)


class TrialUsage:
    """What a trial takes up right now."""

    def __init__(self, bounds: RequestBounds) -> None:
        self.bounds = bounds
        self.requests = 0
        self.size = 0
        self._transports: set[asyncio.BaseTransport] = set()

    @contextmanager
    def claim(self, transport: asyncio.BaseTransport | None) -> Iterator["Claim"]:
        """Let a question in that came over *transport*, or refuse it."""
        if transport is not None:
            self._connected(transport)
        if self.requests >= self.bounds.requests:
            raise _too_much(f"{self.bounds.requests} requests of this trial are under way")
        claim = Claim(self)
        try:
            yield claim
        finally:
            claim.drop()

    def knows(self, transport: asyncio.BaseTransport | None) -> bool:
        """Whether somebody with the token of this trial asked over *transport*."""
        return transport in self._transports

    def _connected(self, transport: asyncio.BaseTransport) -> None:
        if transport in self._transports:
            return
        if len(self._transports) >= self.bounds.connections:
            self._transports = {one for one in self._transports if not one.is_closing()}
        if len(self._transports) >= self.bounds.connections:
            raise _too_much(f"{self.bounds.connections} connections of this trial are open")
        self._transports.add(transport)


class Claim:
    """What one question takes up, for as long as anybody holds it."""

    def __init__(self, usage: TrialUsage) -> None:
        self._usage = usage
        self._size = 0
        self._holders = 1
        usage.requests += 1

    def grow(self, size: int) -> None:
        """Take up *size* bytes more, or refuse."""
        usage, bounds = self._usage, self._usage.bounds
        if self._size + size > bounds.body:
            raise bounds.too_large()
        if usage.size + size > bounds.bodies:
            raise _too_much(f"the requests of this trial hold {_mb(bounds.bodies)} at once")
        self._size += size
        usage.size += size

    def hold(self) -> None:
        """Keep it for one holder more, who drops it as well."""
        self._holders += 1

    def drop(self) -> None:
        """Let go; the last one gives the room back."""
        self._holders -= 1
        if not self._holders:
            self._usage.requests -= 1
            self._usage.size -= self._size


def message_size(message: Message) -> int:
    """Return about how much a message takes up, whatever little is in it."""
    called = sum(len(call.id) + len(call.name) + len(call.arguments) for call in message.tool_calls)
    return 100 + len(message.content) + len(message.reasoning or "") + called


def _too_much(what: str) -> UnansweredError:
    return _refused(429, "too_many_requests", f"{what}, and no more are let in; wait for an answer")


def _refused(status: int, code: str, message: str) -> UnansweredError:
    return UnansweredError(Problem(status=status, code=code, message=message))


def _mb(size: int) -> str:
    return f"{size / _MB:.3g} MB"
