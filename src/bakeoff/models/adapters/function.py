"""A plain Python function as a model, and the parameters of a model of one's own."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from bakeoff._lib.clock import monotonic
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import UNKNOWN_USAGE, Completion, Request, Usage
from bakeoff.core.ports import Model, close_model
from bakeoff.core.values import Json
from bakeoff.models.client.json_fields import USAGE_UNREADABLE
from bakeoff.models.client.parameters import parameters_of


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
            return _timed(with_readable_usage(reply), began)
        if isinstance(reply, str):
            return Completion(text=reply, elapsed_s=monotonic() - began)
        raise ProviderError(f"it returned {type(reply).__name__}; return a str or a Completion")

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


class OwnModel:
    """A model of one's own; each request brings it its *parameters*, as it would a served one."""

    def __init__(self, model: Model, parameters: Mapping[str, Json]) -> None:
        self._model = model
        self._parameters = dict(parameters)

    async def complete(self, request: Request) -> Completion:
        """Let the model answer."""
        if self._parameters:
            request = replace(request, parameters=parameters_of(request, self._parameters))
        began = monotonic()
        return _timed(with_readable_usage(await self._model.complete(request)), began)

    async def close(self) -> None:
        """Close the model, if it can be closed."""
        await close_model(self._model)


def _timed(completion: Completion, began: float) -> Completion:
    """Return *completion* with how long it took, where it does not say that itself."""
    if completion.elapsed_s:
        return completion
    return replace(completion, elapsed_s=monotonic() - began)


def with_readable_usage(completion: Completion) -> Completion:
    """Return *completion*; where its token counts are no numbers, with them unknown and flagged."""
    usage = completion.usage
    if isinstance(usage, Usage):
        tokens = (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens)
        counts = (*tokens, usage.cached_tokens)
        cost = usage.cost_usd
        if all(n is None or (type(n) is int and n >= 0) for n in counts) and (
            cost is None or (type(cost) in (int, float) and 0 <= cost < math.inf)
        ):
            return completion
    return replace(completion, usage=UNKNOWN_USAGE, flags=(*completion.flags, USAGE_UNREADABLE))
