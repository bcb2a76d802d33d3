"""Counts what a model is asked for, prices it, and stops when a limit is reached."""

from collections.abc import Callable
from dataclasses import replace

from bakeoff._lib.deadline import until
from bakeoff.core.budget import NO_BILL, UNPRICED, Bill, Tariff
from bakeoff.core.candidate import Limits
from bakeoff.core.errors import LimitReached, NotRun, ProviderError, boundary
from bakeoff.core.outcome import Completion, Request, Spent
from bakeoff.core.ports import Model
from bakeoff.engine.budget import AttemptBill, Reservation

KEPT = "cached"  # the flag of an answer that was kept from an earlier request
_NO_LIMITS, _NOTHING = Limits(), Spent()
_WAITING = "the budget of the run was held by other requests"


class OutageDeadline:
    """The deadline of an attempt, which stands still while any of its requests meets an outage."""

    def __init__(self, deadline: until) -> None:
        self._deadline = deadline
        self._waiting = 0

    def hold(self, waits: bool) -> None:  # noqa: FBT001 -- a callback
        """Take note that one more request waits for an endpoint that is down, or one less."""
        self._waiting += 1 if waits else -1
        if waits and self._waiting == 1:
            self._deadline.pause()
        elif not waits and self._waiting == 0:
            self._deadline.resume()


class Meter:
    """A model as seen by one party of one attempt: every request is counted, priced and limited."""

    def __init__(
        self,
        model: Model,
        limits: Limits | None = None,
        *,
        tariff: Tariff = UNPRICED,
        tab: AttemptBill | None = None,
    ) -> None:
        self._model = model
        self._limits = limits or _NO_LIMITS
        self._tariff = tariff
        self._tab = tab or AttemptBill()
        self.bill = NO_BILL
        self.spent = _NOTHING
        self.last: Completion | None = None
        self.on_output: Callable[[Spent], None] | None = (
            None  # is told what is spent after each answer
        )
        self.deadline: OutageDeadline | None = None  # what stands still while the endpoint is down
        self.trouble: str | None = None  # why the request under way had to wait or be tried again

    def take_over(self, spent: Spent, bill: Bill) -> None:
        """Begin with what an attempt had spent that this one goes on from."""
        self.spent, self.bill = spent, bill

    async def complete(self, request: Request) -> Completion:
        """Ask the model, unless limits or budget say that there is nothing left to ask with."""
        self._check()
        place = Reservation(self._tab, self._tariff, request)
        try:
            with boundary(ProviderError, "model"):
                if self._tab.budget.capped:
                    await self._wait_for(place)
                completion = await self._ask(request, place)
                self.spent = self.spent.plus(completion)
        except ProviderError as error:
            self.trouble = None  # it was told; only a request that was cut leaves its trouble here
            place.failed(billable=error.billable)
            raise
        except NotRun as error:
            self.trouble = None
            self._tab.refused = error
            place.failed(billable=False)
            raise
        except BaseException:
            place.failed(billable=True)  # cut while the endpoint was at it
            if self.trouble is None:  # it was not waiting for its turn: it had been sent
                self.spent = replace(self.spent, cut=self.spent.cut + 1)
            raise
        finally:
            self.bill = place.bill if self.bill is NO_BILL else self.bill + place.bill
        self.trouble = None
        self._tab.begun = True
        self.last = completion
        if self.on_output is not None:
            self.on_output(self.spent)
        return completion

    async def _wait_for(self, place: Reservation) -> None:
        self.trouble = _WAITING
        await place.take()
        self.trouble = None

    async def _ask(self, request: Request, place: Reservation) -> Completion:
        asked = request.heard_by(
            self._on_retry,
            place.lost,
            on_outage=None if self.deadline is None else self.deadline.hold,
            begun=self._tab.begun,
        )
        completion = await self._model.complete(asked)
        usage = self._tariff.priced(completion.usage)
        if KEPT in completion.flags:
            place.failed(billable=False)  # it was paid for when it was asked
        else:
            place.answered(usage)
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
