"""The progress of an interrupted attempt: its saved steps, and what each party had spent.

An agent saves its steps, each with what every party has spent so far. An attempt that continues
starts with these accounts, so its record covers the whole work.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from bakeoff.core.budget import NO_BILL, Bill
from bakeoff.core.checkpoint import Checkpoint, Entry
from bakeoff.core.outcome import Spent
from bakeoff.core.values import Json
from bakeoff.engine.budget import AttemptBill
from bakeoff.engine.meter import Meter


class _Account(msgspec.Struct, frozen=True):
    """What one party had spent."""

    spent: Spent
    bill: Bill


class _Step(msgspec.Struct, frozen=True):
    """One saved step, in attempt `number`, after `elapsed_s` of all attempts together.

    `tab` is the bill of this attempt alone.
    """

    entry: dict[str, Json]
    number: int
    elapsed_s: float
    tab: Bill
    accounts: dict[str, _Account]


class AttemptProgress:
    """The checkpoint of one attempt as its agent sees it; stores the accounts with each step.

    `before_s` is how long earlier attempts worked on what this one continues.
    """

    def __init__(
        self,
        saved: Checkpoint,
        *,
        number: int,
        meters: Mapping[str, Meter],
        attempt_bill: AttemptBill,
        elapsed: Callable[[], float],
    ) -> None:
        self._saved = saved
        self._number = number
        self._meters = meters
        self._attempt_bill = attempt_bill
        self._elapsed = elapsed
        self._steps = [msgspec.convert(step, _Step) for step in saved.recorded()]
        self.before_s = self._steps[-1].elapsed_s if self._steps else 0.0
        if self._steps:
            self._restore(self._steps[-1])

    def _restore(self, last: _Step) -> None:
        for name, meter in self._meters.items():
            if name in last.accounts:
                meter.restore(last.accounts[name].spent, last.accounts[name].bill)
        # an attempt that ended was booked then; one that was killed is booked with this one
        if last.number == self._number and last.tab != NO_BILL:
            self._attempt_bill.total += last.tab
            self._attempt_bill.budget.spent += last.tab

    def recorded(self) -> Sequence[Entry]:
        """Return the steps that were saved before."""
        return [step.entry for step in self._steps]

    async def add(self, entry: Entry, *, at: int) -> None:
        """Save a step with what has been spent so far."""
        step = _Step(
            entry=dict(entry),
            number=self._number,
            elapsed_s=self.before_s + self._elapsed(),
            tab=self._attempt_bill.total,
            accounts={name: _Account(m.spent, m.bill) for name, m in self._meters.items()},
        )
        await self._saved.add(msgspec.to_builtins(step), at=at)
