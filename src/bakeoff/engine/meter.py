"""Counts what a model is asked for, and stops when a limit is reached."""

from dataclasses import replace

from bakeoff.core.candidate import Limits
from bakeoff.core.errors import LimitReached, ProviderError, boundary
from bakeoff.core.outcome import Completion, Request, Spent
from bakeoff.core.ports import Model


class Meter:
    """A model as seen by one party of one attempt: every request is counted and limited."""

    def __init__(self, model: Model, limits: Limits | None = None) -> None:
        self._model = model
        self._limits = limits or Limits()
        self.spent = Spent()
        self.last: Completion | None = None
        self.trouble: str | None = None  # why the request under way had to be tried again

    async def complete(self, request: Request) -> Completion:
        """Ask the model, unless the limits say that there is nothing left to ask with."""
        self._check()
        try:
            with boundary(ProviderError, "model"):
                completion = await self._model.complete(replace(request, on_retry=self._on_retry))
                self.spent = self.spent.plus(completion)
        except ProviderError:
            self.trouble = None  # it was told; only a request that was cut leaves its trouble here
            raise
        self.trouble = None
        self.last = completion
        return completion

    def _on_retry(self, why: str) -> None:
        self.trouble = why

    def _check(self) -> None:
        limits, spent = self._limits, self.spent
        if limits.requests is not None and spent.requests >= limits.requests:
            raise LimitReached(f"{limits.requests} requests are spent")
        used = spent.usage.output_tokens
        if limits.output_tokens is not None and used is not None and used >= limits.output_tokens:
            raise LimitReached(f"{used} of {limits.output_tokens} output tokens are spent")
