"""Runs that end when their candidates are told apart: what is run, and what a resume makes of it."""

import asyncio
from random import Random

import pytest

from bakeoff.core.errors import ProviderError
from bakeoff.core.events import Event, ignore
from bakeoff.core.outcome import Request
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.ports import TrialParts
from bakeoff.core.record import Status
from bakeoff.core.run_spec import Adaptive
from bakeoff.core.stop import Stop
from bakeoff.engine.adaptive import AdaptiveSelection
from bakeoff.engine.run import LocalRunner, StopConditions, run_plan
from bakeoff.executors.local import LocalExecutor
from bakeoff.planning.expand import ordered
from bakeoff.stats.summarize import summarize
from bakeoff.stores.memory import MemoryStore
from support.plans import Workshop, candidate, plan, scored_by, tasks, workshop

RULE = Adaptive()
CHANCES = {"strong": 0.9, "weak": 0.2, "twin": 0.2, "fair": 0.6}


class Chances:
    """Each candidate is right with a chance of its own, always the same in the same trial."""

    def __init__(self, fails: str | None = None) -> None:
        self._fails = fails
        self.asked: list[str] = []

    def parts_for(self, trial: Trial) -> TrialParts:
        def answer(_: Request) -> str:
            self.asked.append(trial.name)
            if trial.name == self._fails:
                raise ProviderError("HTTP 400")
            right = Random(trial.name).random() < CHANCES[trial.candidate.id]
            return "right" if right else "wrong"

        return _judged(answer).parts_for(trial)

    async def close(self) -> None:
        """Nothing is open."""


def _judged(answer: object) -> Workshop:
    return workshop(answer, right=lambda answer: float(answer == "right"))  # type: ignore[arg-type]


def bench(*names: str, count: int = 150, rollouts: int = 1, rule: Adaptive = RULE) -> Plan:
    given = tasks(count, scorers=scored_by("right"))
    whole = plan(*given, candidates=[candidate(name) for name in names], rollouts=rollouts)
    return ordered(whole, rule)


def carry_out(
    given: Plan,
    rigs: Chances,
    *,
    rule: Adaptive = RULE,
    store: MemoryStore | None = None,
    stop_after: int | None = None,
    parallel: int = 4,
) -> MemoryStore:
    store, stop, ended = store or MemoryStore(), Stop(), [0]
    store.freeze(given)
    until = AdaptiveSelection(given, rule)
    until.restore(store.rows())

    def tell(event: Event) -> None:
        ended[0] += type(event).__name__ == "TrialEnded"
        if ended[0] == stop_after:
            stop.request()
        ignore(event)

    asyncio.run(
        run_plan(
            given,
            store=store,
            runner=LocalRunner(rigs),
            executor=LocalExecutor(parallel),
            listener=tell,
            until=StopConditions(stop=stop, selection=until),
        )
    )
    return store


def counts(store: MemoryStore) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in store.rows():
        found[row.candidate_id] = found.get(row.candidate_id, 0) + 1
    return found


def test_it_ends_when_it_is_sure_and_not_before() -> None:
    store = carry_out(bench("strong", "weak"), Chances())
    ran = counts(store)
    assert 8 <= ran["strong"] < 60
    assert abs(ran["strong"] - ran["weak"]) <= 4  # those that were under way


def test_a_candidate_of_which_all_is_known_is_not_asked_again() -> None:
    ran = counts(carry_out(bench("strong", "weak", "twin"), Chances()))
    assert ran["strong"] < 80
    assert ran["weak"] == ran["twin"] == 150


def test_those_who_are_the_same_are_run_to_the_end_or_until_it_is_known_well_enough() -> None:
    assert counts(carry_out(bench("weak", "twin"), Chances())) == {"weak": 150, "twin": 150}
    rule = Adaptive(precision=0.25)
    ran = counts(carry_out(bench("weak", "twin", rule=rule), Chances(), rule=rule))
    assert 20 < ran["weak"] < 150


@pytest.mark.parametrize("parallel", [1, 16])
def test_stopped_and_resumed_it_decides_as_if_never_stopped(parallel: int) -> None:
    whole = carry_out(bench("strong", "weak", "twin"), Chances(), parallel=1)
    rigs = Chances()
    store = carry_out(bench("strong", "weak", "twin"), rigs, stop_after=25, parallel=parallel)
    assert len(list(store.rows())) < 60
    carry_out(bench("strong", "weak", "twin"), rigs, store=store, parallel=parallel)
    assert len(rigs.asked) == len(set(rigs.asked)), "nothing is asked twice"
    late = parallel - 1  # trials that were under way when it was decided
    assert counts(whole)["strong"] <= counts(store)["strong"] <= counts(whole)["strong"] + late


def test_for_the_best_alone_each_loser_is_dropped() -> None:
    rule = Adaptive(goal="best")
    given = bench("strong", "weak", "twin", "fair", rule=rule)
    ran = counts(carry_out(given, Chances(), rule=rule))
    assert max(ran["weak"], ran["twin"]) < ran["fair"] <= ran["strong"] < 150


@pytest.mark.parametrize("rule", [Adaptive(goal="best"), Adaptive(goal="best", looks=15)])
def test_the_best_is_found_at_the_same_task_whatever_runs_at_once_and_after_a_stop(
    rule: Adaptive,
) -> None:
    def found(parallel: int, stop_after: int | None = None) -> tuple[object, ...]:
        given = bench("strong", "weak", "twin", "fair", rule=rule)
        store = carry_out(given, Chances(), rule=rule, stop_after=stop_after, parallel=parallel)
        if stop_after is not None:
            assert len(list(store.rows())) < 100
            carry_out(given, Chances(), rule=rule, store=store, parallel=parallel)
        summary = summarize(given, store.rows(), adaptive=rule)
        assert summary.pairwise is not None
        assert summary.buckets.not_run == 0
        assert summary.pairwise.ranks[0].worst == 1
        return summary.pairwise.pairs

    one_by_one = found(1)
    assert found(16) == one_by_one
    assert found(4, stop_after=50) == one_by_one


def test_what_is_decided_needs_nothing_more_on_resume() -> None:
    rigs = Chances()
    store = carry_out(bench("strong", "weak"), rigs)
    before = len(rigs.asked)
    carry_out(bench("strong", "weak"), rigs, store=store)
    assert len(rigs.asked) == before


def test_a_task_is_looked_at_when_all_of_its_rollouts_are_over() -> None:
    store = carry_out(bench("strong", "weak", rollouts=3), Chances(), parallel=1)
    done: dict[tuple[str, str], int] = {}
    for row in store.rows():
        done[row.task_id, row.candidate_id] = done.get((row.task_id, row.candidate_id), 0) + 1
    assert set(done.values()) == {3}
    assert len(done) < 60


def test_a_task_that_faulted_is_missing_data_and_holds_nobody_up() -> None:
    given = bench("strong", "weak")
    first = next(iter(given)).name
    store = carry_out(given, Chances(fails=first))
    assert counts(store)["strong"] < 80
    assert [r.status for r in store.rows() if r.status == Status.FAULTED] == ["faulted"]


def test_the_order_is_drawn_by_the_seed_and_another_task_changes_nothing_of_it() -> None:
    def order(given: Plan) -> list[str]:
        return list(dict.fromkeys(trial.task.id for trial in given))

    ours = order(bench("strong", "weak", count=50))
    assert ours != sorted(ours)
    assert order(bench("weak", "strong", count=50)) == ours
    assert [one for one in order(bench("strong", count=60)) if one in ours] == ours
    assert order(bench("strong", count=50, rule=Adaptive(seed=1))) != ours
    assert sorted(t.name for t in bench("strong", "weak", rollouts=2)) == sorted(
        t.name for t in plan(*tasks(150, scorers=scored_by("right")), rollouts=2,
                             candidates=[candidate("strong"), candidate("weak")])
    )  # fmt: skip
