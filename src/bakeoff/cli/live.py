"""Progress as a live view, on a terminal."""

from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bakeoff.cli.progress import Progress
from bakeoff.core.events import Event, RunEnded, RunStarted, TrialStarted


class LiveView:
    """A bar and its figures, drawn a few times a second; failures scroll by above it."""

    def __init__(self) -> None:
        self._progress = Progress()
        self._console = Console(stderr=True)
        self._live = Live(
            console=self._console, get_renderable=self._draw, refresh_per_second=8, transient=True
        )

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Write one line above the bar; no markup is obeyed."""
        self._console.print(Text(text, style="yellow"))

    def __call__(self, event: Event) -> None:
        """Count *event*, and show at once what a person should read."""
        if line := self._progress.take(event):
            self._console.print(Text(line, style="red" if line.startswith("fault") else "yellow"))
        if isinstance(event, RunStarted):
            self._console.print(Text(f"run {event.run_id}", style="bold"))
        if isinstance(event, TrialStarted) and event.trial.candidate.agent.name == "human":
            self._live.stop()  # the terminal is theirs now
        if isinstance(event, RunEnded):
            self._live.refresh()

    def _draw(self) -> Group:
        progress = self._progress
        if not progress.planned:
            return Group(Text("preparing …", style="dim"))
        done = progress.done + progress.before
        count, figures = f"{done}/{progress.planned}", progress.figures()
        room = self._console.width - len(count) - len(figures) - 4
        line = Table.grid(padding=(0, 1))
        line.add_row(
            ProgressBar(total=progress.planned, completed=done, width=max(min(room, 32), 8)),
            Text(count, style="bold"),
            Text(figures, no_wrap=True, overflow="ellipsis"),
        )
        return Group(line)
