"""Progress as plain lines, where there is no terminal."""

import sys
from types import TracebackType

from bakeoff._lib.clock import monotonic
from bakeoff.cli.progress import Progress, counted, duration
from bakeoff.core.events import Event, RunEnded, RunStarted

_EVERY_S = 5.0


class PlainLines:
    """Writes a line for what happens, and one now and then for how far it is."""

    def __init__(self) -> None:
        self._progress = Progress()
        self._last = monotonic()

    def __enter__(self) -> "PlainLines":
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
        progress = self._progress
        if line := progress.take(event):
            self.say(line)
        if isinstance(event, RunStarted):
            before = f", {progress.before} already done" if progress.before else ""
            self.say(f"run {progress.run_id}: {counted(progress.planned, 'trial')}{before}")
            self._last = monotonic()
        elif isinstance(event, RunEnded):
            took = duration(progress.elapsed_s)
            self.say(f"{counted(progress.done, 'trial')} in {took} ({progress.figures()})")
        elif monotonic() - self._last >= _EVERY_S:
            self._last = monotonic()
            self.say(f"{progress.done + progress.before}/{progress.planned}: {progress.figures()}")
