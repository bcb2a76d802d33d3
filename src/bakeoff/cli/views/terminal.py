"""A run on a terminal: a live view, or plain lines where there is none."""

import sys
from enum import Enum
from typing import Protocol

from rich.console import Console, ConsoleDimensions, RenderableType
from rich.text import Text

from bakeoff._lib.clock import monotonic
from bakeoff._lib.sanitize import for_terminal
from bakeoff._lib.value_object import positional_value_object
from bakeoff.core.events import Event, RunEnded, TrialEnded, TrialStarted, Waiting
from bakeoff.core.record import Fault
from bakeoff.frontends.session import View


class Level(Enum):
    """How important a line is: a live view shows news anyway."""

    NEWS = "news"
    HEADING = "heading"
    NOTICE = "notice"
    FAULT = "fault"


@positional_value_object
class ProgressLine:
    """One line, safe for a terminal; `details` are shown with --debug only."""

    text: str
    weight: Level = Level.NEWS
    details: str | None = None


def fault_details(fault: Fault) -> str | None:
    """Return what --debug shows of *fault*: the traceback of a user's own code."""
    return None if fault.traceback is None else for_terminal(fault.traceback)


class ProgressModel(Protocol):
    """Counts the events of a run, and shows how far it is."""

    def take(self, event: Event) -> ProgressLine | None:
        """Count *event*; return a line where there is something to show."""

    def so_far(self) -> str:
        """Return how far it is, in one line."""

    def draw(self, room: ConsoleDimensions) -> RenderableType:
        """Return a live view of how far it is, no larger than *room*."""


_EVERY_S = 5.0
_SELDOM_S = 60.0  # how rarely it says that it still waits
_IMPORTANT = frozenset({Level.NOTICE, Level.FAULT})


class PlainLines(View):
    """Writes a line for each important event, and one now and then for how far it is.

    *quiet* leaves only what must be read; *debug* adds tracebacks.
    """

    def __init__(
        self,
        progress: ProgressModel,
        *,
        every_s: float = _EVERY_S,
        quiet: bool = False,
        debug: bool = False,
    ) -> None:
        self._progress = progress
        self._every_s = every_s
        self._quiet = quiet
        self._debug = debug
        self._last = monotonic()
        self._pause_s = every_s

    def say(self, text: str) -> None:
        """Write one line."""
        print(text, file=sys.stderr, flush=True)

    def __call__(self, event: Event) -> None:
        """Write what a person should know of *event*."""
        line = self._progress.take(event)
        if line is not None and (not self._quiet or line.weight in _IMPORTANT):
            self.say(line.text)
            if self._debug and line.details is not None:
                self.say(line.details)
        if line is not None and line.weight is not Level.FAULT:
            self._last = monotonic()  # it says how far it is, or is about something else
        elif not self._quiet and monotonic() - self._last >= self._pause_s:
            self._last = monotonic()
            self.say(self._progress.so_far())
            # while nothing but waiting happens, it is said ever more rarely
            longer_s = min(2 * self._pause_s, max(_SELDOM_S, self._every_s))
            self._pause_s = longer_s if isinstance(event, Waiting) else self._every_s
        if isinstance(event, TrialEnded):
            self._pause_s = self._every_s


# --- live -----------------------------------------------------------------------------------------


_STYLES = {Level.HEADING: "bold", Level.NOTICE: "yellow", Level.FAULT: "red"}


class LiveView(View):
    """A progress model drawn a few times a second; lines that must be read scroll by above it."""

    def __init__(self, progress: ProgressModel, *, debug: bool = False) -> None:
        from rich.live import Live  # most runs of a pipeline draw nothing

        self._progress = progress
        self._debug = debug
        self._console = Console(stderr=True, emoji=False)
        self._live = Live(
            console=self._console, get_renderable=self._draw, refresh_per_second=8, transient=True
        )

    def open(self) -> None:
        """Start drawing."""
        self._live.start()

    def close(self) -> None:
        """Stop drawing, and leave the lines above."""
        self._live.stop()

    def say(self, text: str) -> None:
        """Write one line above the live view; markup in it has no effect."""
        self._console.print(Text(text, style=_STYLES[Level.NOTICE]))

    def __call__(self, event: Event) -> None:
        """Count *event*, and show at once what a person should read."""
        line = self._progress.take(event)
        if line is not None and line.weight in _STYLES:
            self._console.print(Text(line.text, style=_STYLES[line.weight]))
            if self._debug and line.details is not None:
                self._console.print(Text(line.details))
        if isinstance(event, TrialStarted) and event.trial.candidate.agent.name == "human":
            self._live.stop()  # the terminal is theirs now
        if isinstance(event, RunEnded):
            self._live.refresh()

    def _draw(self) -> RenderableType:
        return self._progress.draw(self._console.size)
