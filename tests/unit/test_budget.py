"""The budget of a run: what is spent and what is held never pass the cap together."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.agents.function import FunctionAgent
from bakeoff.core.budget import Bill, Bound, Cap, Price, Tariff
from bakeoff.core.candidate import Limits
from bakeoff.core.errors import BudgetReached, LimitReached, ProviderError, UsageError
from bakeoff.core.outcome import UNKNOWN_USAGE, Completion, Outcome, Request, Usage
from bakeoff.core.plan import Trial
from bakeoff.core.ports import Context, Model, TrialParts
from bakeoff.core.record import Score
from bakeoff.core.stop import Stop
from bakeoff.core.task import Message, Task
from bakeoff.engine.budget import AttemptBill, Budget
from bakeoff.engine.meter import Meter
from bakeoff.engine.run import LocalRunner, StopConditions, run_plan
from bakeoff.executors.local import LocalExecutor
from bakeoff.models.adapters.function import FunctionModel
from bakeoff.stores.memory import MemoryStore
from support.plans import Workshop, plan, scored_by, task, tasks, workshop

TARIFF = Tariff(price=Price(input=0.0, output=1.0))  # a dollar per million tokens written
TOKEN = 1e-6


def request(most: int) -> Request:
    return Request(messages=(Message(role="user", content="hi"),), parameters={"max_tokens": most})


@dataclass
class Endpoint:
    """Answers, fails and bills as it is told; `script` has one word for each try."""

    script: list[tuple[str, int]]
    chance: random.Random
    billed: int = 0
    on_every_step: Callable[[], None] = lambda: None
    asked: list[int] = field(default_factory=list)

    async def __call__(self, asked: Request) -> Completion:
        most = asked.parameters["max_tokens"]
        assert isinstance(most, int)
        assert asked.on_lost is not None
        while True:
            how, used = self.script.pop() if self.script else ("answer", most)
            used = min(used, most)
            for _ in range(self.chance.randrange(4)):
                await asyncio.sleep(0)
            self.on_every_step()
            if how == "refuse":
                continue  # the adapter tries again, and nobody bills a 429
            if how == "fail":
                raise ProviderError("HTTP 500", transient=True, billable=False)
            self.billed += used
            if how == "lose":
                await asked.on_lost()
                continue
            if how == "break":
                raise ProviderError("the answer was cut", transient=True)
            told = Usage(input_tokens=0, output_tokens=used)
            return Completion(text="", usage=UNKNOWN_USAGE if how == "mum" else told)


WORDS = st.sampled_from(["answer", "answer", "refuse", "fail", "lose", "break", "mum"])


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=64),
    script=st.lists(st.tuples(WORDS, st.integers(0, 1000)), max_size=200),
    cap=st.integers(1, 20_000),
    seed=st.integers(0, 2**16),
)
def test_the_cap_is_never_passed_whatever_comes_back_and_in_whatever_order(
    sizes: list[int], script: list[tuple[str, int]], cap: int, seed: int
) -> None:
    async def run() -> None:
        budget = Budget(Cap(cost_usd=cap * TOKEN))

        def check() -> None:
            assert endpoint.billed <= cap * (1 + 1e-9)

        endpoint = Endpoint(script, random.Random(seed), on_every_step=check)

        async def ask(most: int) -> None:
            meter = Meter(FunctionModel(endpoint), tariff=TARIFF, attempt_bill=AttemptBill(budget))
            with suppress(ProviderError, BudgetReached):
                await meter.complete(request(most))

        async with asyncio.TaskGroup() as group:
            for most in sizes:
                group.create_task(ask(most))
        check()
        assert endpoint.billed <= budget.spent.most_usd / TOKEN + 1e-6
        assert budget.spent.most_usd <= cap * TOKEN * (1 + 1e-9)
        assert budget.reason_to_wait(Bound(usd=0.0, tokens=0)) is None, "nothing is held any more"

    asyncio.run(run())


@settings(max_examples=50, deadline=None)
@given(sizes=st.lists(st.integers(1, 300), min_size=1, max_size=64), cap=st.integers(1, 20_000))
def test_the_cap_on_tokens_is_never_passed_either(sizes: list[int], cap: int) -> None:
    async def run() -> None:
        budget = Budget(Cap(tokens=cap))
        answered = 0

        async def answer(asked: Request) -> Completion:
            nonlocal answered
            await asyncio.sleep(0)
            most = asked.parameters["max_tokens"]
            assert isinstance(most, int)
            answered += most + 100
            return Completion(text="", usage=Usage(input_tokens=100, output_tokens=most))

        async def ask(most: int) -> None:
            with suppress(BudgetReached):
                await Meter(FunctionModel(answer), attempt_bill=AttemptBill(budget)).complete(
                    request(most)
                )

        async with asyncio.TaskGroup() as group:
            for most in sizes:
                group.create_task(ask(most))
        assert answered == budget.spent.tokens <= cap

    asyncio.run(run())


def ask_once(
    answer: Callable[[Request], object],
    *,
    budget: Budget | None = None,
    tariff: Tariff = TARIFF,
    most: int = 1000,
) -> tuple[AttemptBill, BaseException | None]:
    tab = AttemptBill(budget or Budget())
    try:
        asyncio.run(
            Meter(FunctionModel(answer), tariff=tariff, attempt_bill=tab).complete(request(most))
        )
    except (ProviderError, BudgetReached) as error:
        return tab, error
    return tab, None


def told(cost: float | None = None, read: int | None = 10, written: int | None = 20) -> Completion:
    return Completion(text="", usage=Usage(input_tokens=read, output_tokens=written, cost_usd=cost))


class TestBooking:
    def test_an_answer_is_booked_with_what_the_provider_says(self) -> None:
        tab, _ = ask_once(lambda _: told(cost=0.25))
        assert tab.total == Bill(cost_usd=0.25, tokens=30)

    def test_else_with_what_the_price_says(self) -> None:
        tab, _ = ask_once(lambda _: told())
        assert tab.total == Bill(cost_usd=20 / 1e6, tokens=30)

    def test_an_answer_of_unknown_cost_is_booked_as_the_most_it_can_be(self) -> None:
        tab, _ = ask_once(lambda _: Completion(text=""))
        assert tab.total.cost_usd is None
        assert tab.total.unsure_usd == pytest.approx(1000 * TOKEN)
        assert tab.total.unsure_tokens > 1000
        assert tab.total.tokens == 0

    def test_without_a_price_a_request_is_counted_as_unpriced_and_not_as_free(self) -> None:
        tab, _ = ask_once(lambda _: told(), tariff=Tariff())
        assert tab.total == Bill(cost_usd=None, tokens=30, unpriced=1)

    def test_a_local_model_is_on_no_bill_but_its_tokens_count(self) -> None:
        tab, _ = ask_once(lambda _: told(), tariff=Tariff(billed=False))
        assert tab.total == Bill(tokens=30)

    def test_an_answer_that_was_kept_from_before_costs_nothing(self) -> None:
        kept = Completion(
            text="", usage=Usage(input_tokens=10, output_tokens=20), flags=("cached",)
        )
        budget = Budget(Cap(cost_usd=1.0))
        tab, _ = ask_once(lambda _: kept, budget=budget)
        assert tab.total == budget.spent == Bill()

    @pytest.mark.parametrize(("billable", "unsure"), [(False, 0.0), (True, 1000 * TOKEN)])
    def test_a_fault_costs_nothing_unless_the_endpoint_had_begun(
        self, billable: bool, unsure: float
    ) -> None:
        def fail(_: Request) -> None:
            raise ProviderError("oh", billable=billable)

        budget = Budget(Cap(cost_usd=1.0))
        tab, error = ask_once(fail, budget=budget)
        assert isinstance(error, ProviderError)
        assert tab.total.most_usd == budget.spent.most_usd == pytest.approx(unsure)

    def test_a_request_that_is_cut_may_be_billed(self) -> None:
        async def hang(_: Request) -> None:
            await asyncio.sleep(30)

        async def run() -> AttemptBill:
            tab = AttemptBill(Budget(Cap(cost_usd=1.0)))
            meter = Meter(FunctionModel(hang), tariff=TARIFF, attempt_bill=tab)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(meter.complete(request(1000)), 0.01)
            return tab

        tab = asyncio.run(run())
        assert tab.total.unsure_usd == pytest.approx(1000 * TOKEN)
        assert isinstance(tab.budget, Budget)
        assert tab.budget.spent.unsure_usd == tab.total.unsure_usd

    def test_bills_add_up_and_unknown_costs_stay_unknown(self) -> None:
        a, b = Bill(cost_usd=1.0, tokens=5), Bill(unsure_usd=2.0, unsure_tokens=7, unpriced=1)
        assert a + b == Bill(cost_usd=1.0, tokens=5, unsure_usd=2.0, unsure_tokens=7, unpriced=1)
        assert (b + b).cost_usd is None
        assert (a + b).most_usd == 3.0


class TestRefusals:
    def test_what_was_spent_before_counts(self) -> None:
        budget = Budget(Cap(cost_usd=1500 * TOKEN), before=Bill(unsure_usd=501 * TOKEN))
        tab, error = ask_once(lambda _: told(), budget=budget)
        assert isinstance(error, BudgetReached)
        assert budget.reached
        assert tab.refused is error
        assert tab.total == Bill(), "nothing was sent"
        assert "are spent, and the next request may cost $0.0010" in str(error)

    def test_sums_that_are_exactly_the_cap_are_let_through(self) -> None:
        budget = Budget(Cap(cost_usd=0.3), before=Bill(cost_usd=0.1 + 0.2 - 1000 * TOKEN))
        _, error = ask_once(lambda _: told(), budget=budget)
        assert error is None

    def test_one_that_fits_when_others_are_answered_waits_for_them(self) -> None:
        most_at_once = 0
        under_way = 0

        async def answer(_: Request) -> Completion:
            nonlocal most_at_once, under_way
            under_way += 1
            most_at_once = max(most_at_once, under_way)
            await asyncio.sleep(0)
            under_way -= 1
            return told(written=1)

        async def run() -> Budget:
            budget = Budget(Cap(cost_usd=3500 * TOKEN))
            async with asyncio.TaskGroup() as group:
                for _ in range(50):
                    meter = Meter(
                        FunctionModel(answer), tariff=TARIFF, attempt_bill=AttemptBill(budget)
                    )
                    group.create_task(meter.complete(request(1000)))
            return budget

        budget = asyncio.run(run())
        assert most_at_once == 3
        assert not budget.reached
        assert budget.spent.cost_usd == pytest.approx(50 * TOKEN)

    def test_one_that_was_cut_while_it_waited_was_never_sent(self) -> None:
        async def run() -> tuple[AttemptBill, str | None]:
            budget = Budget(Cap(cost_usd=1000 * TOKEN))
            await budget.hold(Bound(usd=1000 * TOKEN, tokens=None))
            tab = AttemptBill(budget)
            meter = Meter(FunctionModel(lambda _: told()), tariff=TARIFF, attempt_bill=tab)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(meter.complete(request(1000)), 0.01)
            return tab, meter.trouble

        tab, trouble = asyncio.run(run())
        assert tab.total == Bill()
        assert trouble == "the budget of the run was held by other requests"

    def test_a_try_after_a_lost_one_needs_a_place_of_its_own(self) -> None:
        async def lose(asked: Request) -> Completion:
            assert asked.on_lost is not None
            await asked.on_lost()
            return told()

        _, error = ask_once(lose, budget=Budget(Cap(cost_usd=2000 * TOKEN)))
        assert error is None
        tight = Budget(Cap(cost_usd=1999 * TOKEN))
        tab, error = ask_once(lose, budget=tight)
        assert isinstance(error, BudgetReached)
        assert tab.total.most_usd == tight.spent.most_usd == pytest.approx(1000 * TOKEN)

    def test_a_bound_that_is_unknown_is_never_let_through(self) -> None:
        with pytest.raises(UsageError, match="max_tokens"):
            asyncio.run(Budget(Cap(cost_usd=1.0)).hold_now(Bound(usd=None, tokens=None)))
        with pytest.raises(UsageError, match="max_tokens"):
            asyncio.run(Budget(Cap(tokens=1)).hold_now(Bound(usd=None, tokens=None)))


class TestLimitsOfATrial:
    @pytest.mark.parametrize(
        ("limits", "requests", "told_so"),
        [
            (Limits(tokens=90), 3, "90 of 90 tokens are spent"),
            (Limits(cost_usd=70 * TOKEN), 4, "\\$0.0001 of \\$0.0001 are spent"),
        ],
    )
    def test_no_further_request_goes_out_once_they_are_spent(
        self, limits: Limits, requests: int, told_so: str
    ) -> None:
        meter = Meter(FunctionModel(lambda _: told()), limits, tariff=TARIFF)

        async def insist() -> None:
            while True:
                await meter.complete(request(1000))

        with pytest.raises(LimitReached, match=told_so):
            asyncio.run(insist())
        assert meter.spent.requests == requests


class TestRuns:
    def carry_out(self, rigs: Workshop, *, cap: float, count: int = 6) -> MemoryStore:
        store, stop = MemoryStore(), Stop()
        given = plan(*tasks(count, parameters={"max_tokens": 1000}, scorers=scored_by("said")))
        store.freeze(given)
        budget = Budget(Cap(cost_usd=cap * TOKEN))
        work = run_plan(
            given,
            store=store,
            runner=LocalRunner(rigs),
            executor=LocalExecutor(1),
            listener=lambda _: None,
            until=StopConditions(stop=stop, budget=budget),
        )
        asyncio.run(work)
        assert (stop.requested, budget.reached) == (True, True)
        assert store.billed() == budget.spent
        return store

    def test_at_the_cap_a_trial_is_cancelled_and_no_other_is_started(self) -> None:
        store = self.carry_out(priced(workshop(lambda _: told(written=500), said=yes)), cap=2000)
        assert [r.status for r in store.rows()] == ["completed"] * 3 + ["cancelled"]
        (refused,) = store.attempts("t0003")
        assert (refused.attempt.fault, refused.attempt.outcome) == (None, None)
        due = store.next_attempts(list(store.planned()))
        assert list(due) == [None, None, None, 2, 1, 1]

    @pytest.mark.parametrize("as_what", ["nothing", "another error"])
    def test_a_part_that_swallows_the_end_of_the_budget_has_no_result(self, as_what: str) -> None:
        async def stubborn(task: Task, model: Model) -> str:
            try:
                await model.complete(Request(messages=task.messages, parameters=task.parameters))
            except Exception as error:
                if as_what == "another error":
                    raise ValueError("oh") from error
            return "an answer all the same"

        rigs = workshop(lambda _: told(written=500), agent=FunctionAgent(stubborn, {}), said=yes)
        store = self.carry_out(priced(rigs), cap=1600)
        last = list(store.records())[-1].attempt
        assert (last.status, last.outcome, last.fault, last.score) == (
            "cancelled",
            None,
            None,
            None,
        )

    def test_an_answer_that_only_lacks_its_verdict_is_kept(self) -> None:
        class Judging:
            async def score(self, _task: Task, _outcome: Outcome, context: Context) -> Score:
                await context.roles["judge"].complete(request(1000))
                return Score(scorer="said", value=1.0)

        rigs = workshop(
            lambda _: told(written=500), roles={"judge": lambda _: told()}, said=Judging()
        )
        store = self.carry_out(priced(rigs), cap=1400)
        (record,) = store.records()
        assert record.attempt.status == "cancelled"
        assert record.attempt.outcome is not None
        assert record.attempt.score is None
        assert record.attempt.bill.cost_usd == pytest.approx(500 * TOKEN)

    def test_what_a_cancelled_attempt_had_spent_is_in_the_ledger(self) -> None:
        async def run() -> MemoryStore:
            store = MemoryStore()
            given = plan(task(parameters={"max_tokens": 1000}))
            store.freeze(given)

            async def hang(_: Request) -> None:
                await asyncio.sleep(30)

            work = run_plan(
                given,
                store=store,
                runner=LocalRunner(priced(workshop(hang))),
                executor=LocalExecutor(1),
                listener=lambda _: None,
                until=StopConditions(),
            )
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(work, 0.05)
            return store

        assert asyncio.run(run()).billed().unsure_usd == pytest.approx(1000 * TOKEN)


def yes(answer: str) -> float:
    return 1.0


def priced(rigs: Workshop) -> Workshop:
    """The same rigs, with a price for everybody."""

    class Priced(Workshop):
        def parts_for(self, trial: Trial) -> TrialParts:
            roles = dict.fromkeys(rigs.roles, TARIFF)
            return replace(rigs.parts_for(trial), tariff=TARIFF, role_tariffs=roles)

    return Priced(model=rigs.model)
