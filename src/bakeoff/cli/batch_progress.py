"""A batch as a story: a row for each model, with what its rollouts have taken so far."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.console import ConsoleDimensions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from bakeoff._lib.clock import monotonic
from bakeoff._lib.untrusted import one_line
from bakeoff.cli.story import Line, Weight, fault_details
from bakeoff.cli.waiting import waits_in_words
from bakeoff.core.events import (
    Event,
    Notice,
    RunStarted,
    TrialEnded,
    TrialNotRun,
    TrialSpent,
    TrialStarted,
    Waiting,
)
from bakeoff.core.outcome import Spent
from bakeoff.core.plan import Plan
from bakeoff.core.record import TrialRecord
from bakeoff.reports import in_words
from bakeoff.stats.head_to_head import RolloutFigures, Verdict, figures, shared_verdict

_TURNS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_AROUND_ROWS = 7  # lines of a screen that are not rows of models
_MARKS = {
    Verdict.SUCCESS: ("✓", "bold green"),
    Verdict.SUCCESS_AT_LIMIT: ("◷", "yellow"),
    Verdict.FAILED: ("✗", "red"),
    Verdict.ERROR: ("!", "red"),
    Verdict.TIMED_OUT: ("◷", "yellow"),
    Verdict.UNCHECKED: ("?", "yellow"),
}


def marked(told: str, rollouts: Sequence[RolloutFigures]) -> Text:
    """Return what is *told* of a model with the mark and the colour of its *rollouts*."""
    verdict = shared_verdict(rollouts)
    mark, style = _MARKS.get(verdict, ("~", "")) if verdict else ("~" if rollouts else "·", "")
    return Text(f"{mark} {told}", style=style if rollouts else "dim")


@dataclass(slots=True)
class ModelRow:
    """One model: what it is at, and what its rollouts have taken so far."""

    name: str
    planned: int
    done: list[RolloutFigures] = field(default_factory=list)
    running: dict[int, float] = field(default_factory=dict)
    spent: dict[int, Spent] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """A word or two."""
        if self.running:
            at = min(self.running) + 1
            return "running" if self.planned == 1 else f"running {at} of {self.planned}"
        return in_words.status(self.done, planned=self.planned) if self.done else "waiting"

    @property
    def finished(self) -> bool:
        """Whether it has all its rollouts behind it."""
        return len(self.done) >= self.planned

    @property
    def seconds(self) -> float:
        """Seconds of work, those under way included."""
        now = monotonic()
        return sum(r.seconds for r in self.done) + sum(now - t for t in self.running.values())

    @property
    def prompts(self) -> int:
        """Requests made to the model."""
        return sum(r.prompts for r in self.done) + sum(s.requests for s in self.spent.values())

    @property
    def tokens(self) -> int:
        """Tokens in and out, as far as they are known."""
        under_way = (s.usage for s in self.spent.values())
        return sum(r.tokens or 0 for r in self.done) + sum(
            (u.input_tokens or 0) + (u.output_tokens or 0) for u in under_way
        )

    def so_far(self) -> str:
        """Return what it is at, in half a line."""
        took = f"{in_words.seconds(self.seconds)}, {in_words.counted(self.prompts, 'prompt')}"
        return f"{self.name} {self.status}: {took}, {in_words.counted(self.tokens, 'token')}"

    def cells(self) -> tuple[Text, ...]:
        """Return it as a row of the table."""
        told = marked(self.status, self.done)
        if self.running:
            turn = _TURNS[int(monotonic() * len(_TURNS)) % len(_TURNS)]
            told = Text(f"{turn} {self.status}", style="bold cyan")
        if not self.done and not self.running:
            return Text(self.name), told
        took = (in_words.seconds(self.seconds), f"{self.prompts:,}", f"{self.tokens:,}")
        return (Text(self.name), told, *map(Text, took))


class BatchProgress:
    """The rows of a batch, kept by what happens in it."""

    def __init__(
        self, title: str, plan: Plan, names: dict[str, str], done: Iterable[TrialRecord] = ()
    ) -> None:
        self._title = title
        self._began = monotonic()
        self._waiting: tuple[str, ...] = ()
        rollouts = plan.rollouts
        self.rows = {
            candidate.id: ModelRow(name=one_line(names[candidate.id], width=60), planned=rollouts)
            for candidate in plan.candidates
        }
        for record in done:
            if record.attempt.status.final:
                self.rows[record.candidate_id].done.append(figures(record.rollout, record.attempt))

    def take(self, event: Event) -> Line | None:
        """Count *event*; return a line where there is one to tell."""
        if isinstance(event, TrialStarted):
            self.rows[event.trial.candidate.id].running[event.trial.rollout] = monotonic()
        elif isinstance(event, TrialSpent):
            self.rows[event.trial.candidate.id].spent[event.trial.rollout] = event.spent
        elif isinstance(event, TrialEnded):
            return self._ended(event)
        elif isinstance(event, TrialNotRun):
            self.rows[event.trial.candidate.id].running.pop(event.trial.rollout, None)
        elif isinstance(event, Waiting):
            self._waiting = waits_in_words(event.endpoints)
        elif isinstance(event, Notice):
            return Line(one_line(event.text, width=300), Weight.NOTICE)
        elif isinstance(event, RunStarted):
            before = f", {self._finished} already done" if self._finished else ""
            return Line(f"{self._title}: {in_words.counted(len(self.rows), 'model')}{before}")
        return None

    def _ended(self, event: TrialEnded) -> Line | None:
        row, rollout = self.rows[event.trial.candidate.id], event.trial.rollout
        row.spent.pop(rollout, None)
        if not event.last:
            return None
        row.running.pop(rollout, None)
        took = figures(rollout, event.attempt)
        row.done.append(took)
        which = f" rollout {rollout + 1}" if row.planned > 1 else ""
        told = f"{row.name}{which}: {took.verdict.value} in {in_words.seconds(took.seconds)}"
        told += f", {in_words.counted(took.prompts, 'prompt')}"
        if took.tokens is not None:
            told += f", {in_words.counted(took.tokens, 'token')}"
        fault = event.attempt.fault
        if fault is None:
            return Line(told)
        why = one_line(fault.message, width=200)
        return Line(f"{told} ({why})", Weight.FAULT, fault_details(fault))

    @property
    def _finished(self) -> int:
        return sum(row.finished for row in self.rows.values())

    def so_far(self) -> str:
        """Return how far it is, in one line."""
        running = [row.so_far() for row in self.rows.values() if row.running]
        return "; ".join([f"{self._finished} of {len(self.rows)} done", *running, *self._waiting])

    def draw(self, room: ConsoleDimensions) -> RenderableType:
        """Return a table with a row for each model, or for as many as fit."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("model", overflow="fold")
        table.add_column("status", no_wrap=True)
        for name in ("time", "prompts", "tokens"):
            table.add_column(name, justify="right", no_wrap=True)
        shown, left_out = _fitting(list(self.rows.values()), max(room.height - _AROUND_ROWS, 1))
        for row in shown:
            table.add_row(*row.cells())
        done = f"{self._finished} of {in_words.counted(len(self.rows), 'model')} done"
        since = in_words.duration(monotonic() - self._began)
        title = Text.assemble((self._title, "bold"), f": {done}, {since}")
        more = [Text(left_out, style="dim")] if left_out else []
        more += [Text(line, style="yellow") for line in self._waiting]
        return Group(title, table, *more)


def _fitting(rows: Sequence[ModelRow], most: int) -> tuple[Sequence[ModelRow], str]:
    """Return the rows for which there is room, whoever is at work first, and a word on the others."""
    if len(rows) <= most:
        return rows, ""
    by_interest = sorted(rows, key=lambda row: (not row.running, row.finished))
    chosen = {id(row) for row in by_interest[:most]}
    hidden = [row for row in rows if id(row) not in chosen]
    waiting = sum(not row.finished for row in hidden)
    told = {"done": len(hidden) - waiting, "waiting": waiting}
    listed = ", ".join(f"{number} {what}" for what, number in told.items() if number)
    return [row for row in rows if id(row) in chosen], f"not shown: {listed}"
