"""A run of any size as a story: counted from events, cheap at any rate; its picture is a bar."""

import re
from dataclasses import dataclass, field

from rich.console import ConsoleDimensions, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bakeoff._lib.clock import monotonic
from bakeoff._lib.untrusted import one_line
from bakeoff.cli.story import Line, Weight
from bakeoff.core.budget import NO_BILL, NO_CAP, Bill, Cap
from bakeoff.core.events import (
    Event,
    Notice,
    RunEnded,
    RunStarted,
    TrialEnded,
    TrialOutput,
    TrialStarted,
)
from bakeoff.core.record import Status
from bakeoff.reports.in_words import counted, duration

_TURN = re.compile(r"turn (\d{1,6}) ")


@dataclass(slots=True)
class Progress:
    """Counters, and the few figures a person wants to see of them."""

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

    def take(self, event: Event) -> Line | None:
        """Count *event*; return a line where there is one to tell."""
        if isinstance(event, TrialStarted):
            self.running += 1
        elif isinstance(event, TrialOutput):
            self._heard(event)
        elif isinstance(event, TrialEnded):
            return self._ended(event)
        elif isinstance(event, RunStarted):
            return self._started(event)
        elif isinstance(event, RunEnded):
            self.over = True
            took = duration(self.elapsed_s)
            return Line(f"{counted(self.done, 'trial')} in {took} ({self.figures()})")
        elif isinstance(event, Notice):
            return Line(one_line(event.text, width=300), Weight.NOTICE)
        return None

    def _started(self, event: RunStarted) -> Line:
        self.planned, self.before = event.planned, event.finished_before
        self.cap, self.billed, self.adaptive = event.cap, event.billed, event.adaptive
        self.began = monotonic()
        before = f", {self.before:,} already done" if self.before else ""
        what = "scoring again" if self.rescoring else "run"
        told = f"{what} {event.run_id}: {counted(self.planned, 'trial')}{before}"
        return Line(told, Weight.HEADING)

    def _heard(self, event: TrialOutput) -> None:
        turn = _TURN.match(event.text) if event.trial.task.dialogue is not None else None
        if turn is not None:
            self.turns[event.trial.name] = int(turn[1])

    def _ended(self, event: TrialEnded) -> Line | None:
        attempt = event.attempt
        self.turns.pop(event.trial.name, None)
        self.output_tokens += attempt.spent.usage.output_tokens or 0
        if attempt.bill is not NO_BILL:
            self.billed += attempt.bill
        if not event.last:
            return None
        self.running -= 1
        if attempt.status is Status.CANCELLED:
            return None  # refused by the budget: it was not given its chance
        self.done += 1
        self.limited += attempt.status is Status.LIMITED
        if attempt.passed is not None:
            self.checked += 1
            self.passed += attempt.passed
        if attempt.fault is None:
            return None
        self.faults += 1
        name = one_line(event.trial.name, width=80)
        why = one_line(attempt.fault.message, width=300)
        return Line(f"fault ({attempt.fault.boundary}) {name}: {why}", Weight.FAULT)

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
        return f"{self.done + self.before}/{self.planned}: {self.figures()}"

    def draw(self, room: ConsoleDimensions) -> RenderableType:
        """Return a bar with the figures behind it."""
        if not self.planned:
            return Text("preparing …", style="dim")
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
