"""Count and price the requests to a model, and stop when a limit is reached."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec

from bakeoff._lib.clock import until
from bakeoff.core.budget import NO_BILL, UNPRICED, Bill, Tariff
from bakeoff.core.candidate import Limits
from bakeoff.core.errors import LimitReached, NotRun, ProviderError, boundary
from bakeoff.core.outcome import Completion, Request, Spent, Wait
from bakeoff.core.ports import Checkpoint, Entry, Model
from bakeoff.core.values import Json
from bakeoff.engine.budget import AttemptBill, Reservation

CACHED = "cached"  # the flag of an answer that came from the cache
_NO_LIMITS, _NOTHING = Limits(), Spent()
_WAITING = "the budget of the run was held by other requests"


class OutageDeadline:
    """The deadline of an attempt, paused while any of its requests waits out an outage."""

    def __init__(self, deadline: until) -> None:
        self._deadline = deadline
        self._waiting = 0

    def hold(self, waits: bool) -> None:  # noqa: FBT001 -- a callback
        """Count one more, or one fewer, request that waits for an endpoint that is down."""
        self._waiting += 1 if waits else -1
        if waits and self._waiting == 1:
            self._deadline.pause()
        elif not waits and self._waiting == 0:
            self._deadline.resume()


class Meter:
    """One party's metered model in one attempt: every request is counted, priced and limited."""

    def __init__(
        self,
        model: Model,
        limits: Limits | None = None,
        *,
        tariff: Tariff = UNPRICED,
        attempt_bill: AttemptBill | None = None,
        on_wait: Callable[[Wait | None], None] | None = None,
    ) -> None:
        self._model = model
        self._on_wait = on_wait
        self._limits = limits or _NO_LIMITS
        self._tariff = tariff
        self._attempt_bill = attempt_bill or AttemptBill()
        self.bill = NO_BILL
        self.spent = _NOTHING
        self.last: Completion | None = None
        self.on_spent: Callable[[Spent], None] | None = None  # called after each answer
        self.deadline: OutageDeadline | None = None  # paused while the endpoint is down
        self.trouble: str | None = None  # why the request in flight had to wait or be retried

    def restore(self, spent: Spent, bill: Bill) -> None:
        """Start from what the interrupted attempt had spent."""
        self.spent, self.bill = spent, bill

    async def complete(self, request: Request) -> Completion:
        """Call the model, unless a limit or the budget is used up."""
        self._check()
        reservation = Reservation(self._attempt_bill, self._tariff, request)
        try:
            with boundary(ProviderError, "model"):
                if self._attempt_bill.budget.capped:
                    await self._reserve(reservation)
                completion = await self._ask(request, reservation)
                self.spent = self.spent.plus(completion)
        except ProviderError as error:
            self.trouble = None  # it is in the error; only a cut request leaves its trouble here
            reservation.failed(billable=error.billable)
            raise
        except NotRun as error:
            self.trouble = None
            self._attempt_bill.refused = error
            reservation.failed(billable=False)
            raise
        except BaseException:
            reservation.failed(billable=True)  # cut while in flight
            if self.trouble is None:  # it was not queued: it had been sent
                self.spent = replace(self.spent, cut=self.spent.cut + 1)
            raise
        finally:
            self.bill = reservation.bill if self.bill is NO_BILL else self.bill + reservation.bill
        self.trouble = None
        self._attempt_bill.begun = True
        self.last = completion
        if self.on_spent is not None:
            self.on_spent(self.spent)
        return completion

    async def _reserve(self, reservation: Reservation) -> None:
        self.trouble = _WAITING
        await reservation.take()
        self.trouble = None

    async def _ask(self, request: Request, reservation: Reservation) -> Completion:
        observed = request.observed_by(
            self._on_retry,
            reservation.lost,
            on_outage=None if self.deadline is None else self.deadline.hold,
            on_wait=self._on_wait,
            begun=self._attempt_bill.begun,
        )
        completion = await self._model.complete(observed)
        usage = self._tariff.priced(completion.usage)
        if CACHED in completion.flags:
            reservation.failed(billable=False)  # it was paid for when it was first sent
        else:
            reservation.answered(usage)
        return completion if usage is completion.usage else replace(completion, usage=usage)

    def _on_retry(self, why: str) -> None:
        self.trouble = why

    def _check(self) -> None:
        limits, spent = self._limits, self.spent
        if limits.requests is not None and spent.requests >= limits.requests:
            raise LimitReached(f"{limits.requests} requests are spent")
        used = spent.usage.output_tokens
        if limits.output_tokens is not None and used is not None and used >= limits.output_tokens:
            raise LimitReached(f"{used} of {limits.output_tokens} output tokens are spent")
        tokens, cost = self.bill.most_tokens, self.bill.most_usd
        if limits.tokens is not None and tokens >= limits.tokens:
            raise LimitReached(f"{tokens} of {limits.tokens} tokens are spent")
        if limits.cost_usd is not None and cost >= limits.cost_usd:
            raise LimitReached(f"${cost:.4f} of ${limits.cost_usd:.4f} are spent")


# --- progress of an interrupted attempt -----------------------------------------------------------


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
            self._attempt_bill.add(last.tab)
            self._attempt_bill.budget.book(last.tab)

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
