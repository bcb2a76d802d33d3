"""The progress of a run of any size, counted from events.

Its live view is a bar, a row for each candidate, what requests wait for, and the faults, folded.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.console import ConsoleDimensions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from bakeoff._lib.clock import monotonic
from bakeoff._lib.phrasing import format_duration, message_kind
from bakeoff._lib.sanitize import one_line
from bakeoff.cli.views.terminal import Level, ProgressLine, fault_details
from bakeoff.core.budget import NO_BILL, NO_CAP, Bill, Cap
from bakeoff.core.candidate import EndpointWait
from bakeoff.core.events import (
    Event,
    Notice,
    RunEnded,
    RunStarted,
    TrialEnded,
    TrialNotRun,
    TrialStarted,
    TurnStarted,
    Waiting,
)
from bakeoff.core.plan import Trial
from bakeoff.core.record import Attempt, Fault, Status
from bakeoff.reports.wording.phrases import counted, duration

_WIDTH = 300
_MOST_KINDS = 1000  # of messages that all differ no more is remembered


@dataclass(slots=True)
class _Kind:
    """Faults with the same message: the first of them, and how many there are."""

    boundary: str
    first: str
    message: str
    count: int = 1


@dataclass(slots=True)
class FaultLines:
    """Counts faults by message."""

    _kinds: dict[tuple[str, str], _Kind] = field(default_factory=dict)

    def take(self, trial: Trial, fault: Fault) -> str | None:
        """Count *fault*; return a line for the first of its kind."""
        key = (fault.boundary, message_kind(fault.message))
        kind = self._kinds.get(key)
        if kind is not None:
            kind.count += 1
            return None
        name, message = one_line(trial.name, width=80), one_line(fault.message, width=_WIDTH)
        if len(self._kinds) < _MOST_KINDS:
            self._kinds[key] = _Kind(fault.boundary, name, message)
        return f"fault ({fault.boundary}) {name}: {message}"

    def folded(self) -> list[str]:
        """Return a line for each repeated fault, the most frequent first."""
        often = sorted(
            (kind for kind in self._kinds.values() if kind.count > 1),
            key=lambda kind: -kind.count,
        )
        return [
            f"{kind.count} faults ({kind.boundary}) like {kind.first}: {kind.message}"
            for kind in often
        ]


def waits_in_words(waits: Iterable[EndpointWait]) -> tuple[str, ...]:
    """Return a line for each endpoint that requests wait for."""
    return tuple(one_line(_in_words(wait), width=300) for wait in waits)


def _in_words(wait: EndpointWait) -> str:
    following = "" if wait.next_s is None else f", next in {format_duration(wait.next_s)}"
    if wait.down_s is not None:
        left = format_duration(wait.given_up_in_s)
        since = format_duration(wait.down_s)
        return f"{wait.endpoint} is down for {since}{following}, given up in {left}: {wait.reason}"
    at_once = f"{wait.under_way} under way" if wait.at_once is None else f"{wait.at_once} at once"
    return f"limited by {wait.endpoint}: {at_once}, {wait.waiting} waiting{following}"


_MOST_FOLDED = 3
_AROUND_ROWS = 8  # lines of a screen that are not rows of candidates


@dataclass(slots=True)
class CandidateRow:
    """One candidate of a run: how many of its trials ended in this session, and how."""

    planned: int | None = None
    running: int = 0
    done: int = 0
    checked: int = 0
    passed: int = 0
    faults: int = 0
    output_tokens: int = 0
    model_s: float = 0.0

    def take(self, attempt: Attempt) -> None:
        """Count the last attempt at one of its trials."""
        self.done += 1
        self.faults += attempt.fault is not None
        if attempt.passed is not None:
            self.checked += 1
            self.passed += attempt.passed
        self.output_tokens += attempt.spent.usage.output_tokens or 0
        self.model_s += attempt.spent.model_s

    def cells(self, name: str) -> tuple[Text, ...]:
        """Return the row of the table."""
        of = "" if self.planned is None else f"/{self.planned}"
        passed = f"{self.passed} of {self.checked}" if self.checked else ""
        speed = f"{self.output_tokens / self.model_s:.0f}" if self.model_s > 0 else ""
        return (
            Text(one_line(name, width=60)),
            Text(f"{self.done}{of}"),
            Text(str(self.running) if self.running else "", style="cyan"),
            Text(passed),
            Text(str(self.faults) if self.faults else "", style="red"),
            Text(speed),
        )


@dataclass(slots=True)
class RunProgress:
    """Counters, and the figures that are shown of them."""

    planned: int = 0
    before: int = 0
    done: int = 0
    running: int = 0
    faults: int = 0
    limited: int = 0
    passed: int = 0
    checked: int = 0
    output_tokens: int = 0
    cap: Cap = NO_CAP
    billed: Bill = NO_BILL
    adaptive: bool = False
    rescoring: bool = False  # stored answers are scored again; nothing is generated
    over: bool = False
    began: float = field(default_factory=monotonic)
    turns: dict[str, int] = field(default_factory=dict)  # of the conversations that are going on
    rows: dict[str, CandidateRow] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    fault_lines: FaultLines = field(default_factory=FaultLines)

    def take(self, event: Event) -> ProgressLine | None:
        """Count *event*; return a line where there is something to show."""
        if isinstance(event, TrialStarted):
            self.running += 1
            self._row(event.trial.candidate.id).running += 1
        elif isinstance(event, TrialNotRun):
            self.running -= 1
            self._row(event.trial.candidate.id).running -= 1
        elif isinstance(event, Waiting):
            self.waiting = waits_in_words(event.endpoints)
        elif isinstance(event, TurnStarted):
            self.turns[event.trial.name] = event.number
        elif isinstance(event, TrialEnded):
            return self._ended(event)
        elif isinstance(event, RunStarted):
            return self._started(event)
        elif isinstance(event, RunEnded):
            self.over = True
            took = duration(self.elapsed_s)
            line = f"{counted(self.done, 'trial')} in {took} ({self.figures()})"
            folded = self.fault_lines.folded()
            return ProgressLine("\n".join((*folded, line)), Level.FAULT if folded else Level.NEWS)
        elif isinstance(event, Notice):
            return ProgressLine(one_line(event.text, width=300), Level.NOTICE)
        return None

    def _started(self, event: RunStarted) -> ProgressLine:
        self.planned, self.before = event.planned, event.finished_before
        self.cap, self.billed, self.adaptive = event.cap, event.billed, event.adaptive
        self.began = monotonic()
        whole = not event.finished_before
        self.rows = {
            name: CandidateRow(planned=planned if whole else None)
            for name, planned in event.candidates.items()
        }
        before = f", {self.before:,} already done" if self.before else ""
        what = "scoring again" if self.rescoring else "run"
        line = f"{what} {event.run_id}: {counted(self.planned, 'trial')}{before}"
        return ProgressLine(line, Level.HEADING)

    def _row(self, candidate: str) -> CandidateRow:
        row = self.rows.get(candidate)
        if row is None:
            row = self.rows[candidate] = CandidateRow()
        return row

    def _ended(self, event: TrialEnded) -> ProgressLine | None:
        attempt = event.attempt
        self.turns.pop(event.trial.name, None)
        self.output_tokens += attempt.spent.usage.output_tokens or 0
        if attempt.bill is not NO_BILL:
            self.billed += attempt.bill
        if not event.last:
            return None
        self.running -= 1
        row = self._row(event.trial.candidate.id)
        row.running -= 1
        if attempt.status is Status.CANCELLED:
            return None  # refused by the budget: it was not given its chance
        self.done += 1
        row.take(attempt)
        self.limited += attempt.status is Status.LIMITED
        if attempt.passed is not None:
            self.checked += 1
            self.passed += attempt.passed
        if attempt.fault is None:
            return None
        self.faults += 1
        line = self.fault_lines.take(event.trial, attempt.fault)
        return (
            None if line is None else ProgressLine(line, Level.FAULT, fault_details(attempt.fault))
        )

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run started."""
        return max(monotonic() - self.began, 1e-9)

    @property
    def rate(self) -> float:
        """Trials per second."""
        return self.done / self.elapsed_s

    @property
    def remaining_s(self) -> float | None:
        """Seconds that are probably left; None before the first trial is done, and at the end."""
        if not self.done or self.over:
            return None
        return (self.planned - self.before - self.done) / self.rate

    def figures(self) -> str:
        """Return the figures as one short line."""
        rate = self.rate
        parts = [f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min"]
        if self.turns:
            first, last = min(self.turns.values()), max(self.turns.values())
            parts.append(f"at turn {first}" if first == last else f"at turns {first} to {last}")
        if self.output_tokens and not self.rescoring:
            parts.append(f"{self.output_tokens / self.elapsed_s:.0f} tok/s")
        if self.checked:
            parts.append(f"{self.passed} of {self.checked} passed")
        if self.limited:
            parts.append(f"{self.limited} limited")
        if self.faults:
            parts.append(f"{self.faults} faulted")
        if self.billed.cost_usd is not None:
            parts.append(f"${self.billed.cost_usd:.4f}")
        if (share := self.cap.share(self.billed)) is not None:
            parts.append(f"{share:.0%} of the budget")
        if (left := self.remaining_s) is not None and self.done + self.before < self.planned:
            parts.append(f"{duration(left)} left{' at most' if self.adaptive else ''}")
        return ", ".join(parts)

    def so_far(self) -> str:
        """Return how far it is, in one line."""
        count = f"{self.done + self.before}/{self.planned}: {self.figures()}"
        return "; ".join((count, *self.waiting))

    def draw(self, room: ConsoleDimensions) -> RenderableType:
        """Return a bar with the figures behind it, and below it what there is room for."""
        if not self.planned:
            return Text("preparing …", style="dim")
        below: list[RenderableType] = []
        if len(self.rows) > 1:
            below.append(self._table(max(room.height - _AROUND_ROWS, 1)))
        below += [Text(line, style="yellow", overflow="ellipsis") for line in self.waiting]
        for line in self.fault_lines.folded()[:_MOST_FOLDED]:
            below.append(Text(line, style="red", no_wrap=True, overflow="ellipsis"))
        return Group(self._bar(room), *below) if below else self._bar(room)

    def _table(self, most: int) -> Table:
        """Return a row for each candidate, or for as many as fit: those at work first."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("candidate", overflow="fold")
        for name in ("done", "running", "passed", "faults", "tok/s"):
            table.add_column(name, justify="right", no_wrap=True)
        rows = list(self.rows.items())
        if len(rows) > most:
            rows = sorted(rows, key=lambda row: not row[1].running)[:most]
        for name, row in rows:
            table.add_row(*row.cells(name))
        if hidden := len(self.rows) - len(rows):
            table.caption = f"not shown: {hidden} more"
        return table

    def _bar(self, room: ConsoleDimensions) -> RenderableType:
        from rich.progress_bar import ProgressBar

        done = self.done + self.before
        count, figures = f"{done}/{self.planned}", self.figures()
        left = room.width - len(count) - len(figures) - 4
        line = Table.grid(padding=(0, 1))
        line.add_row(
            ProgressBar(total=self.planned, completed=done, width=max(min(left, 32), 8)),
            Text(count, style="bold"),
            Text(figures, no_wrap=True, overflow="ellipsis"),
        )
        return line
