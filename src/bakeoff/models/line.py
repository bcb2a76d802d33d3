"""The line to one endpoint: its connections, its tries, its place in the queue."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated

from msgspec import Meta

from bakeoff.core.outcome import Completion, Request
from bakeoff.models.gate import OPEN, Gate
from bakeoff.models.http import HttpClient
from bakeoff.models.intake import LARGEST_BODY
from bakeoff.models.limits import LimitSettings
from bakeoff.models.retry import RetryPolicy, with_retries

_WEEK_S = 7 * 24 * 3600.0


class LineSettings(LimitSettings, frozen=True):
    """How an endpoint is asked, and how much at most.

    `timeout_s` bounds a request with all its tries, but not its wait for a turn. Parameters that
    `omit` names are never sent, whoever gives them.
    """

    timeout_s: Annotated[float, Meta(gt=0, le=_WEEK_S)] = 600.0
    max_retries: Annotated[int, Meta(ge=0)] = 5
    retry_delay_s: Annotated[float, Meta(ge=0, le=_WEEK_S)] = 0.5
    retry_backoff: Annotated[float, Meta(ge=1)] = 2.0
    stream: bool = False
    keep_raw: bool = False
    omit: tuple[str, ...] = ()
    max_answer_mib: Annotated[int, Meta(ge=1, le=2048)] = LARGEST_BODY >> 20

    @property
    def policy(self) -> RetryPolicy:
        """How often, how soon, and by when at the latest."""
        return RetryPolicy(
            max_retries=self.max_retries,
            delay_s=self.retry_delay_s,
            backoff=self.retry_backoff,
            deadline_s=self.timeout_s,
        )


class Line:
    """Model one endpoint, again where that may help, and never past its limits."""

    def __init__(self, client: HttpClient, settings: LineSettings, gate: Gate = OPEN) -> None:
        self.client = client
        client.largest_body = settings.max_answer_mib << 20
        self._policy = settings.policy
        self._gate = gate
        if gate is not OPEN:
            client.on_headers = gate.heard

    async def ask(self, once: Callable[[], Awaitable[Completion]], request: Request) -> Completion:
        """Return what *once* returns, or the fault that outlived the retries."""
        completion, retries = await with_retries(
            once,
            self._policy,
            through=lambda try_once: self._gate.through(try_once, request),
            rest=lambda seconds: self._gate.rest(seconds, request),
            on_retry=request.on_retry,
            on_lost=request.on_lost,
        )
        return replace(completion, retries=retries) if retries else completion

    async def close(self) -> None:
        """Close the connections."""
        await self.client.close()
