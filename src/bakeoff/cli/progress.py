"""What is known of a run while it goes: counted from events, cheap at any rate."""

from dataclasses import dataclass, field

from bakeoff._lib.clock import monotonic
from bakeoff._lib.untrusted import one_line
from bakeoff.core.budget import NO_BILL, NO_CAP, Bill, Cap
from bakeoff.core.events import Event, Notice, RunStarted, TrialEnded, TrialStarted
from bakeoff.core.record import Status


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
    run_id: str = ""
    folder: str = ""
    began: float = field(default_factory=monotonic)

    def take(self, event: Event) -> str | None:
        """Count *event*; return a line where a person should read one."""
        if isinstance(event, TrialStarted):
            self.running += 1
        elif isinstance(event, TrialEnded):
            return self._ended(event)
        elif isinstance(event, RunStarted):
            self.planned, self.before = event.planned, event.finished_before
            self.run_id, self.folder = event.run_id, event.folder
            self.cap, self.billed = event.cap, event.billed
            self.began = monotonic()
        elif isinstance(event, Notice):
            return one_line(event.text, width=300)
        return None

    def _ended(self, event: TrialEnded) -> str | None:
        attempt = event.attempt
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
        return (
            f"fault ({attempt.fault.boundary}) {name}: {one_line(attempt.fault.message, width=300)}"
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
        """Seconds that are probably left; None before the first trial is done."""
        if not self.done:
            return None
        return (self.planned - self.before - self.done) / self.rate

    def figures(self) -> str:
        """Return the figures as one short line."""
        rate = self.rate
        parts = [f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min"]
        if self.output_tokens:
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
            parts.append(f"{duration(left)} left")
        return ", ".join(parts)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 task`, `3 tasks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """Return *seconds* as a person says it."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
