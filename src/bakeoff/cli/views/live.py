"""A run as a live view, on a terminal."""

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from bakeoff.cli.views.plain import Level, ProgressModel
from bakeoff.core.events import Event, RunEnded, TrialStarted
from bakeoff.frontends.session import View

_STYLES = {Level.HEADING: "bold", Level.NOTICE: "yellow", Level.FAULT: "red"}


class LiveView(View):
    """A progress model drawn a few times a second; lines that must be read scroll by above it."""

    def __init__(self, progress: ProgressModel, *, debug: bool = False) -> None:
        self._progress = progress
        self._debug = debug
        self._console = Console(stderr=True)
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
