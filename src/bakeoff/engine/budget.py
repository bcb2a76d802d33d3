"""The budget of a run: a reservation for each request before it is sent, its real cost after.

Spent plus reserved never exceeds the cap. A request that fits only once others are settled waits
for them; one that can never fit ends its trial, and the run starts no more.

* A request reserves the most it can cost, one bound at a time: a try that the endpoint refused, or
  never received, is not billed, and the next try reuses its reservation.
* A try that may be billed though it returned nothing (cut, unreadable, timed out) is booked as
  `unsure` with its bound, and the next try needs a reservation of its own.
* An answer is booked with its cost, or with its bound if the cost is unknown.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from bakeoff.core.budget import NO_BILL, NO_CAP, Bill, Bound, Cap, Tariff
from bakeoff.core.errors import BudgetReached, NotRun, UsageError
from bakeoff.core.outcome import Request, Usage

_ROUNDING = 1e-9  # of a cap: sums of many small costs must still reach it


class BudgetAccount(Protocol):
    """Where the requests of an attempt reserve and book: the budget itself, or a way to it."""

    @property
    def capped(self) -> bool:
        """Whether requests have to reserve."""

    async def hold(self, bound: Bound) -> None:
        """Reserve *bound* for a request; wait for others if it may still fit."""

    async def hold_now(self, bound: Bound) -> None:
        """Reserve *bound* for a request that cannot wait."""

    def settle(self, bound: Bound, bill: Bill) -> None:
        """Release the reservation of a request and book its cost."""

    def book(self, bill: Bill) -> None:
        """Book what was spent before, without a reservation."""


class Budget:
    """What a run may spend; one for all its trials, roles and judges."""

    def __init__(self, cap: Cap = NO_CAP, *, before: Bill = NO_BILL) -> None:
        self.cap = cap
        self.capped = bool(cap)
        self.spent = before
        self.reached = False
        self._held_usd = 0.0
        self._held_tokens = 0
        self._freed = asyncio.Event()

    async def hold(self, bound: Bound) -> None:
        """Reserve *bound* for a request; wait for others if it may still fit."""
        while self.reason_to_wait(bound):
            self._freed.clear()
            await self._freed.wait()
        self._hold(bound)

    async def hold_now(self, bound: Bound) -> None:
        """Reserve *bound* for a request that cannot wait."""
        if reason := self.reason_to_wait(bound):
            raise self._refusal(reason)
        self._hold(bound)

    def settle(self, bound: Bound, bill: Bill) -> None:
        """Release the reservation of a request and book its cost."""
        self._held_usd -= bound.usd or 0.0
        self._held_tokens -= bound.tokens or 0
        self.spent += bill
        self._freed.set()

    def book(self, bill: Bill) -> None:
        """Book what was spent before, without a reservation."""
        self.spent += bill

    def reason_to_wait(self, bound: Bound) -> str | None:
        """Return why a request cannot be sent now; raise if it can never be sent."""
        why = None
        if (cap := self.cap.cost_usd) is not None:
            if bound.usd is None:
                raise UsageError("what it may cost is unknown: it needs a price and max_tokens")
            spent = self.spent.most_usd
            why = f"${spent:.4f} of ${cap:.4f} are spent, and the next request may cost ${bound.usd:.4f}"
            why = self._over(why, spent, self._held_usd, bound.usd, cap)
        if (cap := self.cap.tokens) is not None:
            if bound.tokens is None:
                raise UsageError("how long its answer may be is unknown: it needs max_tokens")
            spent, most = self.spent.most_tokens, bound.tokens
            over = f"{spent:,} of {cap:,} tokens are spent, and the next request may take {most:,}"
            why = self._over(over, spent, self._held_tokens, most, cap) or why
        return why

    def _over(self, why: str, spent: float, held: float, bound: float, cap: float) -> str | None:
        most = cap * (1 + _ROUNDING)
        if spent + bound > most:
            raise self._refusal(why)
        return why if spent + held + bound > most else None

    def _hold(self, bound: Bound) -> None:
        self._held_usd += bound.usd or 0.0
        self._held_tokens += bound.tokens or 0

    def _refusal(self, why: str) -> BudgetReached:
        self.reached = True
        return BudgetReached(why)


class AttemptBill:
    """The running bill of one attempt for all its parties, under the budget of its run."""

    __slots__ = ("begun", "budget", "refused", "total")

    def __init__(self, budget: BudgetAccount | None = None) -> None:
        self.budget: BudgetAccount = budget or Budget()
        self.total = NO_BILL
        self.begun = False  # whether any of its requests was answered
        self.refused: NotRun | None = None  # a part may swallow the error; the attempt must not

    def add(self, bill: Bill) -> None:
        """Add what one try of a request cost."""
        self.total = bill if self.total is NO_BILL else self.total + bill

    @property
    def not_run(self) -> bool:
        """Whether the attempt never began: its first request was not to be sent."""
        refused = self.refused
        return refused is not None and not self.begun and not isinstance(refused, BudgetReached)


class Reservation:
    """What one request reserves of the budget until its cost is known."""

    __slots__ = ("_attempt_bill", "_bound", "_held", "_open", "_request", "_tariff", "bill")

    def __init__(self, attempt_bill: AttemptBill, tariff: Tariff, request: Request) -> None:
        self._attempt_bill = attempt_bill
        self._tariff = tariff
        self._request = request
        self._bound: Bound | None = None
        self._open = True
        self._held = False
        self.bill = NO_BILL

    async def take(self) -> None:
        """Reserve what the request may cost, waiting for others; needed under a cap."""
        self._open = False  # nothing was sent yet
        with self._refusals():
            await self._attempt_bill.budget.hold(self._most)
        self._open = self._held = True

    async def lost(self) -> None:
        """Book a try that may be billed and returned nothing; the next one reserves again."""
        held = self._held
        self._close(self._unsure())
        if held:
            with self._refusals():
                await self._attempt_bill.budget.hold_now(self._most)
            self._held = True
        self._open = True

    def answered(self, usage: Usage) -> None:
        """Book an answer; counts that it does not report are booked as their upper bound."""
        tariff = self._tariff
        cost = usage.cost_usd if tariff.billed else None
        read, written = usage.input_tokens, usage.output_tokens
        tokens = None if read is None or written is None else read + written
        unknown = cost is None and tariff.billed
        unsure = tokens is None or (unknown and tariff.price is not None)
        most = self._most if unsure else None
        self._close(
            Bill(
                cost_usd=cost,
                tokens=tokens or 0,
                unsure_usd=(most.usd or 0.0) if most and cost is None else 0.0,
                unsure_tokens=(most.tokens or 0) if most and tokens is None else 0,
                unpriced=1 if unknown and (most is None or most.usd is None) else 0,
            )
        )

    def failed(self, *, billable: bool) -> None:
        """Book the last try, which returned nothing, unless it is already booked."""
        if self._open:
            self._close(self._unsure() if billable else NO_BILL)

    @property
    def _most(self) -> Bound:
        if self._bound is None:  # computed on demand: it reads the whole request
            self._bound = self._tariff.bound(self._request)
        return self._bound

    def _unsure(self) -> Bill:
        usd, tokens = self._most.usd, self._most.tokens
        return Bill(
            unsure_usd=usd or 0.0, unsure_tokens=tokens or 0, unpriced=1 if usd is None else 0
        )

    def _close(self, bill: Bill) -> None:
        self._open = False
        self.bill = bill if self.bill is NO_BILL else self.bill + bill
        attempt_bill = self._attempt_bill
        attempt_bill.add(bill)
        if self._held:
            attempt_bill.budget.settle(self._most, bill)
            self._held = False

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except BudgetReached as error:
            self._attempt_bill.refused = error
            raise
