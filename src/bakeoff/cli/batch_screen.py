"""A batch as a live table, on a terminal; as plain lines where there is none."""

import sys
from types import TracebackType

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bakeoff._lib.untrusted import one_line
from bakeoff.cli.batch_progress import BatchProgress, ModelRow
from bakeoff.core.events import Event, Notice
from bakeoff.reports import in_words
from bakeoff.stats.head_to_head import Verdict

STYLES = {
    Verdict.SUCCESS.value: "bold green",
    Verdict.FAILED.value: "red",
    Verdict.ERROR.value: "red",
    Verdict.TIMED_OUT.value: "yellow",
    "waiting": "dim",
}


class BatchScreen:
    """A row for each model, drawn a few times a second; what a person should read scrolls by above."""

    def __init__(self, title: str, progress: BatchProgress) -> None:
        self._title = title
        self._progress = progress
        self._console = Console(stderr=True)
        self._live = Live(
            console=self._console, get_renderable=self._draw, refresh_per_second=8, transient=True
        )

    def __enter__(self) -> "BatchScreen":
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
        """Write one line above the table; no markup is obeyed."""
        self._console.print(Text(text, style="yellow"))

    def __call__(self, event: Event) -> None:
        """Count *event*, and show at once what a person should read."""
        if isinstance(event, Notice):
            self.say(one_line(event.text, width=300))
        elif (line := self._progress.take(event)) and "(" in line:
            self._console.print(Text(line, style="red"))

    def _draw(self) -> Group:
        rows = self._progress.rows.values()
        table = Table(box=SIMPLE_HEAD, pad_edge=False, expand=False)
        table.add_column("model", overflow="fold")
        table.add_column("status", no_wrap=True)
        for name in ("time", "prompts", "tokens"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(Text(row.name), _status(row), *_figures(row))
        done = f"{self._progress.finished} of {in_words.counted(len(rows), 'model')} done"
        return Group(Text(f"{self._title}: {done}", style="bold"), table)


def _status(row: ModelRow) -> Text:
    told = row.status
    style = "bold cyan" if row.running else STYLES.get(told, "")
    return Text(told, style=style)


def _figures(row: ModelRow) -> tuple[str, str, str]:
    if not row.done and not row.running:
        return "", "", ""
    return in_words.seconds(row.seconds), f"{row.prompts:,}", f"{row.tokens:,}"


class BatchLines:
    """Writes a line for each rollout that is over, and for what a person should read."""

    def __init__(self, title: str, progress: BatchProgress) -> None:
        self._title = title
        self._progress = progress

    def __enter__(self) -> "BatchLines":
        self.say(f"{self._title}: {in_words.counted(len(self._progress.rows), 'model')}")
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
        if isinstance(event, Notice):
            self.say(one_line(event.text, width=300))
        elif line := self._progress.take(event):
            self.say(line)


class NoScreen(BatchLines):
    """Says only what must be read, where `show_progress` is off."""

    def __enter__(self) -> "NoScreen":
        return self

    def __call__(self, event: Event) -> None:
        """Count *event*, and tell notices only."""
        self._progress.take(event)
        if isinstance(event, Notice):
            self.say(one_line(event.text, width=300))
