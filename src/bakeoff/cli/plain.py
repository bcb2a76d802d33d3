"""A run as plain lines, where there is no terminal."""

import sys
from types import TracebackType
from typing import Self

from bakeoff._lib.clock import monotonic
from bakeoff.cli.story import Story, Weight
from bakeoff.core.events import Event, TrialEnded, Waiting

_EVERY_S = 5.0
_SELDOM_S = 60.0  # how rarely it says that it still waits
_IMPORTANT = frozenset({Weight.NOTICE, Weight.FAULT})


class PlainLines:
    """Writes a line for what happens, and one now and then for how far it is.

    Where it is *quiet*, only what must be read; with *debug*, tracebacks too.
    """

    def __init__(
        self, story: Story, *, every_s: float = _EVERY_S, quiet: bool = False, debug: bool = False
    ) -> None:
        self._story = story
        self._every_s = every_s
        self._quiet = quiet
        self._debug = debug
        self._last = monotonic()
        self._pause_s = every_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave nothing open."""

    def say(self, text: str) -> None:
        """Write one line."""
        print(text, file=sys.stderr, flush=True)

    def __call__(self, event: Event) -> None:
        """Write what a person should know of *event*."""
        line = self._story.take(event)
        if line is not None and (not self._quiet or line.weight in _IMPORTANT):
            self.say(line.text)
            if self._debug and line.details is not None:
                self.say(line.details)
        if line is not None and line.weight is not Weight.FAULT:
            self._last = monotonic()  # it says how far it is, or is about something else
        elif not self._quiet and monotonic() - self._last >= self._pause_s:
            self._last = monotonic()
            self.say(self._story.so_far())
            # while nothing but waiting happens, it is said ever more rarely
            longer_s = min(2 * self._pause_s, max(_SELDOM_S, self._every_s))
            self._pause_s = longer_s if isinstance(event, Waiting) else self._every_s
        if isinstance(event, TrialEnded):
            self._pause_s = self._every_s
