"""How far an attempt had come when it was cut off, and what that had cost by then.

An agent saves its steps; with each goes what every party has spent. An attempt that goes on from
there starts with these accounts, so that its record tells what the whole of it took.
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

    `tab` is what this attempt alone had been billed.
    """

    entry: dict[str, Json]
    number: int
    elapsed_s: float
    tab: Bill
    accounts: dict[str, _Account]


class AttemptProgress:
    """The checkpoint of one attempt, as its agent sees it; keeps the accounts along with it.

    `before_s` is how long earlier attempts worked on what this one goes on from.
    """

    def __init__(
        self,
        kept: Checkpoint,
        *,
        number: int,
        meters: Mapping[str, Meter],
        tab: AttemptBill,
        elapsed: Callable[[], float],
    ) -> None:
        self._kept = kept
        self._number = number
        self._meters = meters
        self._tab = tab
        self._elapsed = elapsed
        self._steps = [msgspec.convert(step, _Step) for step in kept.recorded()]
        self.before_s = self._steps[-1].elapsed_s if self._steps else 0.0
        if self._steps:
            self._take_over(self._steps[-1])

    def _take_over(self, last: _Step) -> None:
        for name, meter in self._meters.items():
            if name in last.accounts:
                meter.take_over(last.accounts[name].spent, last.accounts[name].bill)
        # an attempt that ended was booked when it did; one that was killed is booked with this one
        if last.number == self._number and last.tab != NO_BILL:
            self._tab.bill += last.tab
            self._tab.budget.spent += last.tab

    def recorded(self) -> Sequence[Entry]:
        """Return the steps that were saved before."""
        return [step.entry for step in self._steps]

    async def add(self, entry: Entry, *, at: int) -> None:
        """Save a step with what everything has cost until now."""
        step = _Step(
            entry=dict(entry),
            number=self._number,
            elapsed_s=self.before_s + self._elapsed(),
            tab=self._tab.bill,
            accounts={name: _Account(m.spent, m.bill) for name, m in self._meters.items()},
        )
        await self._kept.add(msgspec.to_builtins(step), at=at)
