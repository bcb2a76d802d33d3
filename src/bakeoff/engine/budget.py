"""The budget of a run: a place for each request before it goes out, its real cost after.

What is spent and what is held never pass the cap together. A request that fits only once others
are settled waits for them; one that can never fit ends its trial, and the run starts no more.

* A request holds the most it can cost, and one such bound at a time: a try that the endpoint
  refused, or never received, is not billed, and the next one takes over its place.
* A try that may be billed though it brought nothing (cut, unreadable, timed out) is booked as
  `unsure` with its bound, and the next one needs a place of its own.
* An answer is booked with its cost, or with its bound where the cost is unknown.
"""

import asyncio
from functools import cached_property

from bakeoff.core.budget import NO_BILL, NO_CAP, Bill, Bound, Cap, Tariff
from bakeoff.core.errors import BudgetReached, UsageError
from bakeoff.core.outcome import Request, Usage

_ROUNDING = 1e-9  # of a cap: sums of many small costs must still reach it


class Budget:
    """What a run may spend; one for all its trials, roles and judges."""

    def __init__(self, cap: Cap = NO_CAP, *, before: Bill = NO_BILL) -> None:
        self.cap = cap
        self.spent = before
        self.reached = False
        self._held_usd = 0.0
        self._held_tokens = 0
        self._freed = asyncio.Event()

    async def hold(self, bound: Bound) -> None:
        """Hold a place for a request, waiting for others where it may still fit."""
        while self.reason_to_wait(bound):
            self._freed.clear()
            await self._freed.wait()
        self._hold(bound)

    def hold_now(self, bound: Bound) -> None:
        """Hold a place for a request that cannot wait."""
        if reason := self.reason_to_wait(bound):
            raise self._refusal(reason)
        self._hold(bound)

    def settle(self, bound: Bound, bill: Bill) -> None:
        """Give the place of a request back, and book what it cost instead."""
        self._held_usd -= bound.usd or 0.0
        self._held_tokens -= bound.tokens or 0
        self.spent += bill
        self._freed.set()

    def reason_to_wait(self, bound: Bound) -> str | None:
        """Return what keeps a request from going out now; raise where it can never go out."""
        cost, tokens = self.cap.cost_usd, self.cap.tokens
        why = None
        if cost is not None:
            if bound.usd is None:
                raise UsageError("what it may cost is unknown: set max_tokens, and a price")
            spent = self.spent.most_usd
            why = f"${spent:.4f} of ${cost:.4f} are spent; a request may cost ${bound.usd:.4f}"
            why = self._over(why, spent, self._held_usd, bound.usd, cost)
        if tokens is not None:
            if bound.tokens is None:
                raise UsageError("how long its answer may be is unknown: set max_tokens")
            spent = self.spent.most_tokens
            told = f"{spent:,} of {tokens:,} tokens are spent; a request may take {bound.tokens:,}"
            why = why or self._over(told, spent, self._held_tokens, bound.tokens, tokens)
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


class Tab:
    """What one attempt is billed for all its parties, under the budget of its run."""

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget or Budget()
        self.bill = NO_BILL
        self.refused: str | None = None

    async def open(self, tariff: Tariff, request: Request) -> "Place":
        """Return a place for *request*; where there can be none, remember it and raise."""
        place = Place(self, tariff, request)
        if self.budget.cap:
            try:
                await self.budget.hold(place.bound)
            except BudgetReached as error:
                self.refused = str(error)
                raise
        return place


class Place:
    """The place of one request in the budget, until it is known what it cost."""

    def __init__(self, tab: Tab, tariff: Tariff, request: Request) -> None:
        self._tab = tab
        self._tariff = tariff
        self._request = request
        self._open = True
        self.bill = NO_BILL

    @cached_property
    def bound(self) -> Bound:
        """The most one try can cost."""
        return self._tariff.bound(self._request)

    def lost(self) -> None:
        """Book a try that may be billed and brought nothing; the next one needs its own place."""
        self._close(self._unsure())
        if self._tab.budget.cap:
            try:
                self._tab.budget.hold_now(self.bound)
            except BudgetReached as error:
                self._tab.refused = str(error)
                raise
        self._open = True

    def answered(self, usage: Usage) -> None:
        """Book an answer, whose cost is known if anything tells it."""
        if not self._open:
            return
        cost, read, written = usage.cost_usd, usage.input_tokens, usage.output_tokens
        if cost is not None and read is not None and written is not None:
            self._close(Bill(cost_usd=cost, tokens=read + written))
            return
        unsure = self._unsure()
        if cost is not None:
            unsure = Bill(cost_usd=cost, unsure_tokens=unsure.unsure_tokens)
        elif read is not None and written is not None:
            unsure = Bill(
                tokens=read + written, unsure_usd=unsure.unsure_usd, unpriced=unsure.unpriced
            )
        self._close(unsure)

    def failed(self, *, billable: bool) -> None:
        """Book the last try, which brought nothing."""
        if self._open:
            self._close(self._unsure() if billable else NO_BILL)

    def _unsure(self) -> Bill:
        usd, tokens = self.bound.usd, self.bound.tokens
        return Bill(
            unsure_usd=usd or 0.0, unsure_tokens=tokens or 0, unpriced=1 if usd is None else 0
        )

    def _close(self, bill: Bill) -> None:
        self._open = False
        self.bill += bill
        self._tab.bill += bill
        if self._tab.budget.cap:
            self._tab.budget.settle(self.bound, bill)
