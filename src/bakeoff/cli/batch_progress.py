"""What is known of a batch while it goes: a row for each model."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from bakeoff._lib.clock import monotonic
from bakeoff._lib.untrusted import one_line
from bakeoff.core.events import Event, TrialEnded, TrialSpent, TrialStarted
from bakeoff.core.outcome import Spent
from bakeoff.core.plan import Plan
from bakeoff.core.record import TrialRecord
from bakeoff.stats.head_to_head import RolloutFigures, Verdict, figures


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
        if not self.done:
            return "waiting"
        if len(self.done) == 1:
            return self.done[0].verdict.value
        solved = sum(r.verdict is Verdict.SUCCESS for r in self.done)
        return f"{solved} of {len(self.done)} solved"

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


class BatchProgress:
    """The rows of a batch, kept by what happens in it."""

    def __init__(self, plan: Plan, names: dict[str, str], done: Iterable[TrialRecord] = ()) -> None:
        rollouts = max(block.rollouts for block in plan.blocks)
        self.rows = {
            candidate.id: ModelRow(name=one_line(names[candidate.id], width=60), planned=rollouts)
            for candidate in plan.candidates
        }
        for record in done:
            if record.attempt.status.final:
                self.rows[record.candidate_id].done.append(figures(record.rollout, record.attempt))

    def take(self, event: Event) -> str | None:
        """Count *event*; return a line where a rollout is over."""
        if isinstance(event, TrialStarted):
            self.rows[event.trial.candidate.id].running[event.trial.rollout] = monotonic()
        elif isinstance(event, TrialSpent):
            self.rows[event.trial.candidate.id].spent[event.trial.rollout] = event.spent
        elif isinstance(event, TrialEnded):
            return self._ended(event)
        return None

    def _ended(self, event: TrialEnded) -> str | None:
        row, rollout = self.rows[event.trial.candidate.id], event.trial.rollout
        row.spent.pop(rollout, None)
        if not event.last:
            return None
        row.running.pop(rollout, None)
        took = figures(rollout, event.attempt)
        row.done.append(took)
        which = f" rollout {rollout + 1}" if row.planned > 1 else ""
        told = f"{row.name}{which}: {took.verdict.value} in {took.seconds:.1f} s, {took.prompts} prompts"
        if took.tokens is not None:
            told += f", {took.tokens:,} tokens"
        fault = event.attempt.fault
        return told if fault is None else f"{told} ({one_line(fault.message, width=200)})"

    @property
    def finished(self) -> int:
        """How many models have all their rollouts behind them."""
        return sum(len(row.done) >= row.planned for row in self.rows.values())
