"""A plain Python function as a model."""

import inspect
from collections.abc import Callable, Mapping

from bakeoff._lib.clock import monotonic
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.values import Json


class FunctionModel:
    """Calls `function(request, **settings)`; it returns the text or a Completion."""

    def __init__(
        self, function: Callable[..., object], settings: Mapping[str, Json] | None = None
    ) -> None:
        self._function = function
        self._settings = dict(settings or {})

    async def complete(self, request: Request) -> Completion:
        """Let the function answer."""
        began = monotonic()
        reply = self._function(request, **self._settings)
        if inspect.isawaitable(reply):
            reply = await reply
        if isinstance(reply, Completion):
            return reply
        if isinstance(reply, str):
            return Completion(text=reply, elapsed_s=monotonic() - began)
        raise ProviderError(f"it returned {type(reply).__name__}; return a str or a Completion")

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
