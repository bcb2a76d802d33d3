"""Where requests wait before they go out."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from bakeoff.core.outcome import Completion, Request


class Gate(Protocol):
    """Lets one try of a request through when its turn has come, and learns from how it went."""

    async def through(
        self, once: Callable[[], Awaitable[Completion]], request: Request
    ) -> Completion: ...


class OpenGate:
    """Lets everything through at once."""

    async def through(
        self,
        once: Callable[[], Awaitable[Completion]],
        request: Request,  # noqa: ARG002 -- nothing about it matters here
    ) -> Completion:
        """Go."""
        return await once()


OPEN = OpenGate()
