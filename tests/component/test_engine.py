"""The engine with scripted parts and a store in memory: one trial, and one run."""

import asyncio
import math
import sys
from collections.abc import Callable
from typing import Any, NoReturn, cast

import pytest

from bakeoff.agents.dialogue.agent import InDialogue
from bakeoff.agents.direct import Direct
from bakeoff.agents.function import FunctionAgent
from bakeoff.core.candidate import Limits, ModelSpec
from bakeoff.core.dialogue import Dialogue
from bakeoff.core.errors import LedgerError, ProviderError
from bakeoff.core.events import Event, TrialEnded, TrialStarted
from bakeoff.core.outcome import Completion, Outcome, Request, Usage
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.ports import Agent, Context, Model, Scorer
from bakeoff.core.record import Attempt, Score, Status
from bakeoff.core.stop import Stop
from bakeoff.core.task import Task
from bakeoff.engine.run import LocalRunner, StopConditions, run_plan
from bakeoff.executors.local import LocalExecutor
from bakeoff.models.adapters.scripted import build as build_scripted
from bakeoff.stores.memory import MemoryStore
from support.dialogues import Script, instructs
from support.plans import Workshop, plan, scored_by, task, tasks, workshop


def carry_out(
    given: Plan,
    rigs: Workshop,
    *,
    parallel: int = 4,
    stop: Stop | None = None,
    store: MemoryStore | None = None,
    also: Callable[[Event], None] = lambda _: None,
) -> tuple[MemoryStore, list[Event]]:
    """Run *given* to its end; return the store and everything that was told."""
    store, events = store or MemoryStore(), []
    store.freeze(given)

    def tell(event: Event) -> None:
        events.append(event)
        also(event)

    work = run_plan(
        given,
        store=store,
        runner=LocalRunner(rigs),
        executor=LocalExecutor(parallel),
        listener=tell,
        until=StopConditions(stop=stop or Stop()),
    )
    asyncio.run(work)
    return store, events


def outcome_of(rigs: Workshop, given: Task | None = None, **rest: Any) -> Attempt:
    """Run one trial; return the attempt that counts."""
    store, _ = carry_out(plan(given or task(), **rest), rigs)
    (record,) = store.records()
    return record.attempt


def failing(times: int, *, transient: bool) -> Callable[[Request], str]:
    left = [times]

    def answer(_: Request) -> str:
        if left[0]:
            left[0] -= 1
            raise ProviderError("HTTP 503", transient=transient)
        return "four"

    return answer


async def hang(*_: object) -> NoReturn:
    await asyncio.sleep(30)
    raise AssertionError("it was not stopped")


def agent(function: Callable[..., object]) -> FunctionAgent:
    return FunctionAgent(function, {})


class TestFaults:
    def test_a_transient_fault_adds_an_attempt_not_a_rollout(self) -> None:
        store, events = carry_out(plan(task(), attempts=3), workshop(failing(1, transient=True)))
        first, second = store.attempts("t1")
        assert (first.attempt.number, first.attempt.status) == (1, Status.FAULTED)
        assert (second.attempt.number, second.attempt.status) == (2, Status.COMPLETED)
        assert (first.rollout, second.rollout) == (0, 0)
        assert [e.last for e in events if isinstance(e, TrialEnded)] == [False, True]
        (row,) = store.rows()
        assert (row.status, row.attempts) == ("completed", 2)

    def test_a_conversation_that_broke_off_is_held_again_and_not_scored_as_it_was(self) -> None:
        talk = Task(
            id="t1",
            messages=(),
            dialogue=Dialogue(objective="x"),
            scorers=scored_by("right"),
        )
        rigs = workshop(
            failing(1, transient=True),
            agent=InDialogue(agent=Direct()),
            roles={"instructor": Script([instructs("Go.", end=True)], last_again=True)},
            right=lambda answer: float(answer == "four"),
        )
        store, _ = carry_out(plan(talk, attempts=2), rigs)
        first, second = (record.attempt for record in store.attempts("t1"))
        assert first.outcome is not None
        assert first.outcome.unfinished
        assert [message.content for message in first.outcome.transcript] == ["Go."]
        assert (second.status, second.score) == (Status.COMPLETED, 1.0)

    def test_attempts_end_when_they_are_spent(self) -> None:
        rigs = workshop(failing(99, transient=True))
        store, _ = carry_out(plan(task(), attempts=3), rigs)
        assert [r.attempt.number for r in store.attempts("t1")] == [1, 2, 3]

    def test_a_permanent_fault_is_not_tried_again(self) -> None:
        rigs = workshop(failing(1, transient=False))
        store, _ = carry_out(plan(task(), attempts=5), rigs)
        (record,) = store.attempts("t1")
        fault = record.attempt.fault
        assert fault is not None
        assert (fault.boundary, fault.is_model_error) == ("provider", True)

    def test_a_resume_tries_a_faulted_trial_again_and_leaves_a_finished_one_alone(self) -> None:
        given = plan(*tasks(3))
        store, _ = carry_out(given, workshop(failing(1, transient=False)), parallel=1)
        _, events = carry_out(given, workshop(), store=store)
        assert [e.trial.task.id for e in events if isinstance(e, TrialStarted)] == ["t0000"]
        assert {r.status for r in store.rows()} == {"completed"}
        assert sorted(r.attempts for r in store.rows()) == [1, 1, 2]

    def test_a_crash_of_the_agent_is_its_own_fault_and_no_zero(self) -> None:
        def crash(_task: Task, _model: Model) -> NoReturn:
            raise ZeroDivisionError("oh")

        attempt = outcome_of(
            workshop(agent=agent(crash), right=lambda answer: 1.0),
            task(scorers=scored_by("right")),
        )
        assert attempt.status is Status.FAULTED
        assert attempt.score is None
        assert attempt.fault is not None
        assert attempt.fault.boundary == "agent"
        assert "ZeroDivisionError: oh" in attempt.fault.message

    def test_a_crash_of_the_model_is_the_providers_fault(self) -> None:
        def crash(_: Request) -> NoReturn:
            raise KeyError("choices")

        attempt = outcome_of(workshop(crash))
        assert attempt.fault is not None
        assert attempt.fault.boundary == "provider"

    @pytest.mark.parametrize("leave", [SystemExit(2), asyncio.CancelledError()], ids=repr)
    def test_a_part_that_ends_itself_ends_its_trial_and_not_the_run(
        self, leave: BaseException
    ) -> None:
        def go(task: Task, _model: Model) -> str:
            if task.id == "t0000":
                raise leave
            return "four"

        store, _ = carry_out(plan(*tasks(3)), workshop(agent=agent(go)), parallel=1)
        assert [r.status for r in store.rows()] == ["faulted", "completed", "completed"]

    @pytest.mark.parametrize("left", ["four", None, Outcome(answer=4)], ids=repr)  # type: ignore[arg-type]
    def test_an_agent_that_leaves_no_outcome_is_at_fault(self, left: object) -> None:
        class Odd:
            async def solve(self, _task: Task, _context: Context) -> object:
                return left

        attempt = outcome_of(workshop(agent=cast("Agent", Odd())))
        assert attempt.fault is not None
        assert attempt.fault.boundary == "agent"


class TestScorers:
    def test_a_crash_of_a_scorer_is_a_fault_and_never_a_zero(self) -> None:
        def crash(answer: str) -> NoReturn:
            raise ValueError(answer)

        attempt = outcome_of(workshop(broken=crash), task(scorers=scored_by("broken")))
        assert attempt.status is Status.FAULTED
        assert (attempt.score, attempt.passed) == (None, None)
        assert attempt.fault is not None
        assert attempt.fault.boundary == "scorer"
        assert attempt.outcome is not None, "the answer was paid for: it can be scored again"

    @pytest.mark.parametrize("value", [math.nan, math.inf, 2.0, -0.1, "1", None])
    def test_a_value_that_is_no_score_is_a_fault(self, value: object) -> None:
        class Odd:
            async def score(self, _task: Task, _outcome: Outcome, _context: Context) -> Score:
                return Score(scorer="odd", value=value)  # type: ignore[arg-type]

        attempt = outcome_of(workshop(odd=Odd()), task(scorers=scored_by("odd")))
        assert attempt.score is None
        assert attempt.fault is not None
        assert attempt.fault.boundary == "scorer"

    def test_a_scorer_that_returns_no_score_at_all_is_a_fault(self) -> None:
        class Odd:
            async def score(self, _task: Task, _outcome: Outcome, _context: Context) -> float:
                return 1.0

        attempt = outcome_of(workshop(odd=cast("Scorer", Odd())), task(scorers=scored_by("odd")))
        assert attempt.fault is not None
        assert attempt.fault.boundary == "scorer"

    def test_a_scorer_that_asks_beyond_the_limits_is_a_fault_of_its_trial_alone(self) -> None:
        class Asking:
            async def score(self, task: Task, _outcome: Outcome, context: Context) -> Score:
                await context.model.complete(Request(messages=task.messages))
                return Score(scorer="asking", value=1.0)

        attempt = outcome_of(
            workshop(asking=Asking()),
            task(scorers=scored_by("asking")),
            limits=Limits(requests=1),
        )
        assert attempt.fault is not None
        assert attempt.fault.boundary == "scorer"

    @pytest.mark.parametrize(
        ("weights", "threshold", "score", "passed"),
        [((0.7, 0.3), 0.7, 0.7, True), ((0.7, 0.3), 0.71, 0.7, False), ((3, 1), 0.75, 0.75, True)],
    )
    def test_the_score_is_the_weighted_mean_and_the_threshold_decides(
        self, weights: tuple[float, float], threshold: float, score: float, passed: bool
    ) -> None:
        attempt = outcome_of(
            workshop(yes=lambda answer: 1.0, no=lambda answer: 0.0),
            task(scorers=scored_by("yes", "no", weights=weights), pass_threshold=threshold),
        )
        assert attempt.score == pytest.approx(score)
        assert attempt.passed is passed

    def test_many_small_weights_still_reach_a_threshold_of_one(self) -> None:
        names = [f"s{n}" for n in range(10)]
        scorers: dict[str, Any] = {name: lambda answer: 1.0 for name in names}
        attempt = outcome_of(
            workshop(**scorers),
            task(scorers=scored_by(*names, weights=[0.1] * 10), pass_threshold=1.0),
        )
        assert attempt.passed is True

    def test_a_scorer_without_weight_informs_and_changes_nothing(self) -> None:
        attempt = outcome_of(
            workshop(yes=lambda answer: 1.0, style=lambda answer: 0.2),
            task(scorers=scored_by("yes", "style", weights=(1, 0))),
        )
        assert (attempt.score, attempt.passed) == (1.0, True)
        assert [s.value for s in attempt.scores] == [1.0, 0.2]

    def test_where_no_scorer_has_a_weight_there_is_no_score(self) -> None:
        attempt = outcome_of(
            workshop(style=lambda answer: 0.2), task(scorers=scored_by("style", weights=(0,)))
        )
        assert attempt.status is Status.COMPLETED
        assert (attempt.score, attempt.passed) == (None, None)


class TestLimits:
    def test_a_spent_time_limit_is_a_result_and_scored_as_it_stands(self) -> None:
        async def think(task: Task, model: Model) -> str:
            await model.complete(Request(messages=task.messages))
            return await hang()

        attempt = outcome_of(
            workshop("half an answer", agent=agent(think), half=lambda answer: "half" in answer),
            task(scorers=scored_by("half")),
            limits=Limits(time_s=0.05),
        )
        assert attempt.status is Status.LIMITED
        assert (attempt.score, attempt.fault) == (1.0, None)
        assert attempt.outcome is not None
        assert attempt.outcome.answer == "half an answer"
        assert "time limit of 0.05 s" in (attempt.outcome.stop_reason or "")

    def test_the_tasks_own_time_limit_is_heeded_where_it_is_shorter(self) -> None:
        attempt = outcome_of(workshop(hang), task(time_s=0.05), limits=Limits(time_s=20))
        assert attempt.status is Status.LIMITED

    def test_time_that_an_endpoint_wasted_is_a_fault_and_not_the_candidates(self) -> None:
        async def retrying(request: Request) -> str:
            assert request.on_retry is not None
            request.on_retry("HTTP 429")
            return await hang()

        attempt = outcome_of(workshop(retrying), attempts=1, limits=Limits(time_s=0.05))
        assert attempt.status is Status.FAULTED
        assert attempt.fault is not None
        assert (attempt.fault.boundary, attempt.fault.transient) == ("provider", True)
        assert "HTTP 429" in attempt.fault.message

    def test_time_that_the_endpoint_of_a_role_wasted_is_a_fault_too(self) -> None:
        class Supervised:
            async def solve(self, task: Task, context: Context) -> Outcome:
                answer = await context.roles["supervisor"].complete(Request(messages=task.messages))
                return Outcome(answer=answer.text)

        async def retrying(request: Request) -> str:
            assert request.on_retry is not None
            request.on_retry("HTTP 429")
            return await hang()

        rigs = workshop(agent=Supervised(), roles={"supervisor": retrying})
        attempt = outcome_of(rigs, attempts=1, limits=Limits(time_s=0.05))
        assert attempt.status is Status.FAULTED

    def test_trouble_that_is_over_does_not_excuse_a_spent_time_limit(self) -> None:
        def troubled(request: Request) -> str:
            assert request.on_retry is not None
            request.on_retry("HTTP 429")
            raise ProviderError("HTTP 429", transient=True)

        async def undeterred(task: Task, model: Model) -> str:
            with pytest.raises(ProviderError):
                await model.complete(Request(messages=task.messages))
            return await hang()

        rigs = workshop(troubled, agent=agent(undeterred))
        assert outcome_of(rigs, limits=Limits(time_s=0.05)).status is Status.LIMITED

    def test_a_request_that_was_cut_was_made(self) -> None:
        async def never(_: Request) -> str:
            return await hang()

        attempt = outcome_of(workshop(never), limits=Limits(time_s=0.05))
        assert attempt.status is Status.LIMITED
        assert (attempt.spent.requests, attempt.spent.sent) == (0, 1)

    def test_spent_requests_limit_the_attempt(self) -> None:
        async def insist(task: Task, model: Model) -> NoReturn:
            while True:
                await model.complete(Request(messages=task.messages))

        attempt = outcome_of(workshop(agent=agent(insist)), limits=Limits(requests=3))
        assert attempt.status is Status.LIMITED
        assert attempt.spent.requests == 3
        assert attempt.outcome is not None
        assert attempt.outcome.stop_reason == "3 requests are spent"

    def test_spent_output_tokens_limit_the_attempt(self) -> None:
        async def insist(task: Task, model: Model) -> NoReturn:
            while True:
                await model.complete(Request(messages=task.messages))

        def wordy(_: Request) -> Completion:
            return Completion(text="word " * 40, usage=Usage(input_tokens=1, output_tokens=40))

        attempt = outcome_of(workshop(wordy, agent=agent(insist)), limits=Limits(output_tokens=100))
        assert attempt.status is Status.LIMITED
        assert attempt.spent.usage.output_tokens == 120

    def test_what_a_role_spends_is_not_booked_on_the_candidate(self) -> None:
        class Judge:
            async def score(self, task: Task, _outcome: Outcome, context: Context) -> Score:
                await context.roles["judge"].complete(Request(messages=task.messages))
                return Score(scorer="judge", value=1.0)

        rigs = workshop(roles={"judge": lambda _: "yes"}, judge=Judge())
        attempt = outcome_of(rigs, task(scorers=scored_by("judge")), limits=Limits(requests=1))
        assert (attempt.spent.requests, attempt.roles["judge"].requests) == (1, 1)


class TestRuns:
    def test_the_scripted_model_answers_each_rollout_in_its_turn(self) -> None:
        spec = ModelSpec(provider="scripted", name="s", settings={"replies": ["a", "b"]})
        rigs = Workshop(model=build_scripted(spec))
        store, _ = carry_out(plan(task(), rollouts=4), rigs)
        answers = [r.attempt.outcome.answer for r in store.records() if r.attempt.outcome]
        assert answers == ["a", "b", "a", "b"]

    def test_never_more_trials_are_under_way_than_allowed(self) -> None:
        busy, peak = 0, 0

        async def count(_: Request) -> str:
            nonlocal busy, peak
            busy += 1
            peak = max(peak, busy)
            await asyncio.sleep(0.001)
            busy -= 1
            return "four"

        carry_out(plan(*tasks(50)), workshop(count), parallel=7)
        assert peak == 7

    def test_a_stop_finishes_what_is_under_way_and_starts_nothing(self) -> None:
        stop = Stop()

        async def answer(_: Request) -> str:
            await asyncio.sleep(0.01)
            return "four"

        def also(event: Event) -> None:
            if isinstance(event, TrialEnded):
                stop.request()

        store, events = carry_out(
            plan(*tasks(40)), workshop(answer), parallel=4, stop=stop, also=also
        )
        assert sum(isinstance(e, TrialStarted) for e in events) == 4
        assert [r.status for r in store.rows()] == ["completed"] * 4

    def test_a_stop_keeps_a_transient_fault_from_being_tried_again(self) -> None:
        stop = Stop()

        def answer(_: Request) -> NoReturn:
            stop.request()
            raise ProviderError("HTTP 503", transient=True)

        store, events = carry_out(plan(task(), attempts=5), workshop(answer), stop=stop)
        assert len(store.attempts("t1")) == 1
        assert [e.last for e in events if isinstance(e, TrialEnded)] == [True]

    def test_a_trial_is_announced_only_after_it_was_kept(self) -> None:
        store = MemoryStore()
        kept: list[bool] = []

        def also(event: Event) -> None:
            if isinstance(event, TrialEnded):
                kept.append(any(r.attempt is event.attempt for r in store.records()))

        carry_out(plan(*tasks(10)), workshop(), store=store, also=also)
        assert kept == [True] * 10

    def test_a_ledger_that_cannot_be_written_stops_the_run_with_one_error(self) -> None:
        class Full(MemoryStore):
            async def append(self, trial: Trial, attempt: Attempt) -> None:
                if trial.task.id == "t0005":
                    raise LedgerError("the disk is full")
                await super().append(trial, attempt)

        with pytest.raises(LedgerError, match="the disk is full"):
            carry_out(plan(*tasks(20)), workshop(), store=Full())

    def test_memory_does_not_grow_with_the_number_of_trials(self) -> None:
        class Forgetful(MemoryStore):
            async def append(self, trial: Trial, attempt: Attempt) -> None:
                await asyncio.sleep(0)

        def grown(rollouts: int) -> int:
            before = sys.getallocatedblocks()
            most = before

            def also(_: Event) -> None:
                nonlocal most
                most = max(most, sys.getallocatedblocks())

            given = plan(*tasks(10), rollouts=rollouts)
            store = Forgetful()
            work = run_plan(
                given, store=store, runner=LocalRunner(workshop()), executor=LocalExecutor(4),
                listener=also, until=StopConditions(),
            )  # fmt: skip
            asyncio.run(work)
            return most - before

        few, many = grown(100), grown(2000)
        assert many < 2 * few + 5000
