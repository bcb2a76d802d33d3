"""A run in a notebook: its progress while it runs, then its verdict, scores and charts."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bakeoff._lib.clock import monotonic
from bakeoff._lib.phrasing import format_duration
from bakeoff._lib.sanitize import for_terminal
from bakeoff.app.options import RunOptions
from bakeoff.core.events import Event, RunEnded, RunStarted, TrialEnded, ignore
from bakeoff.core.record import Status

if TYPE_CHECKING:
    from bakeoff.app.run_results import Run

_EVERY_S = 0.5
_SCOPE = ".bakeoff-run"
_MOST_PAIRS = 10


def shown_in_notebook(options: RunOptions) -> RunOptions:
    """Return the options of a run that shows its progress, where a notebook called and nothing else listens."""
    show = _output() if options.listener is ignore else None
    return options if show is None else replace(options, listener=NotebookProgress(show))


def _output() -> Callable[[str], None] | None:
    """Return what shows HTML in the cell that runs, again and again; None outside of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(shell, "kernel"):
        return None
    from IPython.display import HTML, DisplayHandle

    handle = DisplayHandle()
    handle.display(HTML(""))
    return lambda text: handle.update(HTML(text))


@dataclass
class NotebookProgress:
    """A listener that shows how far a run is, twice a second at most."""

    show: Callable[[str], None]
    planned: int = 0
    before: int = 0
    ended: int = 0
    passed: int = 0
    faulted: int = 0
    cost_usd: float = 0.0
    began: float = field(default_factory=monotonic)
    _shown: float = float("-inf")

    def __call__(self, event: Event) -> None:
        """Count what ended, and show it."""
        if isinstance(event, RunStarted):
            self.planned, self.before = event.planned, event.finished_before
            self.began = monotonic()
            self._render()
        elif isinstance(event, TrialEnded):
            attempt = event.attempt
            self.ended += 1
            self.passed += bool(attempt.passed)
            self.faulted += attempt.status is Status.FAULTED
            self.cost_usd += attempt.bill.cost_usd or 0.0
            if monotonic() - self._shown >= _EVERY_S:
                self._render()
        elif isinstance(event, RunEnded):
            self._render()

    def _render(self) -> None:
        self._shown = now = monotonic()
        done, rate = self.before + self.ended, self.ended / max(now - self.began, 1e-9)
        parts = [f"{done:,} of {self.planned:,} trials", f"{self.passed:,} passed"]
        if self.faulted:
            parts.append(f"{self.faulted:,} faulted")
        if self.cost_usd:
            parts.append(f"${self.cost_usd:.4f}")
        if self.ended and done < self.planned:
            parts.append(f"about {format_duration((self.planned - done) / rate)} left")
        import html

        text = html.escape(for_terminal(" · ".join(parts)))
        self.show(f'<progress max="{max(self.planned, 1)}" value="{done}"></progress> {text}')


def run_as_html(run: "Run") -> str:
    """Return the results of *run* as an HTML fragment without scripts: the verdict, scores, charts."""
    from bakeoff.reports.html import charts  # a run that only shows its progress needs none of it
    from bakeoff.reports.html.run import tables
    from bakeoff.reports.html.templates import colours, environment, trusted
    from bakeoff.reports.wording import decision

    summary = run.summary()
    drawn = charts.of_run(summary, pairs=_MOST_PAIRS)
    return (
        environment()
        .get_template("notebook.html")
        .render(
            called=run.id,
            colours=trusted(colours(_SCOPE)),
            headline=decision.short_answer(summary),
            summary=summary,
            tables=tables(summary),
            charts=[*drawn["scores"], *drawn["trade_offs"], *drawn["differences"]],
        )
    )
