"""The endpoints of a run while it goes: what requests wait for, and what a stop or an outage ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from bakeoff._lib.phrasing import format_duration
from bakeoff._lib.redact import Redactor
from bakeoff.core.endpoint import EndpointWait
from bakeoff.core.events import Listener, Notice, Waiting
from bakeoff.core.stop import Stop
from bakeoff.models.limits.settings import Limiters

_EVERY_S = 1.0
_WORTH_TELLING_S = 2.0  # a server that is down for less is no news


class EndpointWatch:
    """Tells what the endpoints of one run are doing, without the secrets in what they say."""

    def __init__(self, gates: Limiters, tell: Listener, redactor: Redactor) -> None:
        self._gates = gates
        self._tell = tell
        self._redactor = redactor
        self._down: dict[str, float] = {}
        self._waited = False

    @property
    def given_up(self) -> tuple[str, ...]:
        """Why each endpoint that is not asked any more was given up."""
        return tuple(map(self._redactor.text, self._gates.given_up))

    @asynccontextmanager
    async def watching(
        self, stop: Stop, nothing_left: Callable[[], bool], *, every_s: float = _EVERY_S
    ) -> AsyncIterator[None]:
        """Send nothing new once *stop* is requested; request it where *nothing_left* can be run."""
        loop = asyncio.get_running_loop()

        def on_given_up() -> None:
            if nothing_left():
                stop.request()
            else:
                self._tell(Notice(f"given up, the others go on: {self.given_up[-1]}"))

        self._gates.on_given_up = on_given_up
        reporting = asyncio.create_task(self._report(every_s))
        try:
            with stop.calling(lambda: _in_loop(loop, self._gates.stop)):
                yield
                self._look()
        finally:
            reporting.cancel()
            with suppress(asyncio.CancelledError):
                await reporting

    async def _report(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            self._look()

    def _look(self) -> None:
        waits = tuple(
            replace(wait, reason=self._redactor.text(wait.reason)) for wait in self._gates.waits()
        )
        self._tell_outages(waits)
        if waits or self._waited:
            self._tell(Waiting(waits))
        self._waited = bool(waits)

    def _tell_outages(self, waits: tuple[EndpointWait, ...]) -> None:
        down = {w.endpoint: w for w in waits if w.down_s is not None}
        for endpoint in [name for name in self._down if name not in down]:
            took_s = self._down.pop(endpoint)
            if endpoint not in (text.partition(": ")[0] for text in self.given_up):
                self._tell(Notice(f"{endpoint} answers again after {format_duration(took_s)}"))
        for endpoint, wait in down.items():
            down_s = wait.down_s or 0.0
            if endpoint not in self._down and down_s >= _WORTH_TELLING_S:
                left = format_duration(wait.given_up_in_s)
                self._tell(
                    Notice(
                        f"{endpoint} is down, and no trial faults for that; it is waited for, "
                        f"{left} more at most (--give-up-after): {wait.reason}"
                    )
                )
                self._down[endpoint] = down_s
            elif endpoint in self._down:
                self._down[endpoint] = down_s


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call *call* in *loop*: now, where that is running here, else as soon as it can be."""
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    if here:
        call()
    else:
        with suppress(RuntimeError):  # it has ended meanwhile, and nothing is left to stop
            loop.call_soon_threadsafe(call)
