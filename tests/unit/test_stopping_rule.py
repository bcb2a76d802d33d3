"""When an adaptive run may stop: exact looks, robust bets, and what whole simulated runs save."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from bakeoff.core.run_spec import Adaptive
from bakeoff.stats.estimate import MissingBounds
from bakeoff.stats.paired import TaskMeans, compare, mcnemar, sign_flip
from bakeoff.stats.sequential import Looks, SignWalk, spent_by
from bakeoff.stats.stopping_rule import Race, StoppingRule, TaskOrder, compare_drawn, decide_drawn
from support.simulated_runs import (
    FAULT_RULES,
    adaptive_run,
    drawn_scores,
    task_means,
    with_faults,
)

PAIRS, BEST, TEN_LOOKS = Adaptive(), Adaptive(goal="best"), Adaptive(looks=10)


def at_most(share: float, repetitions: int) -> float:
    return share + 2 * math.sqrt(share * (1 - share) / repetitions)


# Looks at signs


def walked(differences: Sequence[float], looks: dict[int, float]) -> SignWalk:
    """The walk after *differences*, looked at after some of them with what may be spent by then."""
    walk = SignWalk()
    for number, difference in enumerate(differences, start=1):
        walk.add(difference)
        if number in looks:
            walk.look(looks[number])
    return walk


@pytest.mark.parametrize("sizes", [[1.0] * 9, [0.5, 1, 0, 0.25, 1, 0.75, 0.5, 1, 0.5]])
def test_a_single_look_is_the_exact_test_of_signs(sizes: list[float]) -> None:
    for signs in ([1] * 9, [1, 1, -1, 1, 1, 1, -1, 1, 1]):
        differences = [size * sign for size, sign in zip(sizes, signs, strict=True)]
        exact = sign_flip(differences)
        assert exact is not None
        assert 2 * walked(differences, {9: 0.025}).p_above == pytest.approx(exact.p, abs=1e-12)


def test_a_single_look_at_0_and_1_is_mcnemars_test() -> None:
    differences = [1.0] * 15 + [0.0] * 80 + [-1.0] * 5
    walk = walked(differences, {100: 0.025})
    assert 2 * walk.p_above == pytest.approx(mcnemar(15, 5).p_exact, abs=1e-12)
    assert walk.crossed
    assert f"{2 * walk.p_above:.6f}" == "0.041389"


def test_the_error_over_all_looks_is_exact_counted_out_over_all_signs() -> None:
    looks = {4: 0.07, 7: 0.1, 10: 0.2}  # on each side
    sizes = [1.0, 0.5, 1.0, 0.5, 1.0, 0.25, 1.0, 1.0, 0.5, 1.0]
    crossed, smallest = 0, []
    for signs in product((1, -1), repeat=10):
        walk = walked([s * size for s, size in zip(signs, sizes, strict=True)], looks)
        crossed += walk.crossed
        smallest.append(min(walk.p_above, walk.p_below))
    share = crossed / 2**10
    assert 0.3 < share <= 0.4  # sums are steps: what may be spent is not always spent in whole
    # the chance of a p as small on either side is twice that p, at every p that a look can find
    for p in {p for p in smallest if p <= 0.2}:
        assert sum(q <= p + 1e-12 for q in smallest) / 2**10 == pytest.approx(2 * p, abs=1e-9)


def test_looks_are_equally_far_apart_and_the_last_one_is_apart() -> None:
    looks = Looks(count=10, tasks=500)
    assert [n for n in range(1, 501) if looks.due_after(n)] == list(range(50, 500, 50))
    few = Looks(count=10, tasks=4)
    assert [n for n in range(1, 5) if few.due_after(n)] == [1, 2, 3]
    assert [spent_by(share, alpha=0.05) for share in (0, 0.5, 1, 2)] == [0, 0.0125, 0.05, 0.05]


# Bets where signs would mislead


def lopsided(rng: np.random.Generator, tasks: int) -> list[float]:
    """Differences with a mean of 0: mostly a small gain, now and then a large loss."""
    return np.where(rng.random(tasks) < 0.9, 0.1, -0.9).tolist()


def test_many_small_gains_and_a_few_large_losses_are_no_early_win() -> None:
    rng, wrong = np.random.default_rng(5), 0
    for _ in range(200):
        rule = StoppingRule(pairs=1, tasks=200)
        for difference in lopsided(rng, 200):
            rule.see(difference)
        wrong += rule.decided
    assert wrong / 200 <= 0.01


def test_scores_of_0_and_1_until_another_one_comes_leave_the_rest_of_the_error_to_bets() -> None:
    rule = StoppingRule(pairs=1, tasks=20)
    for _ in range(4):
        rule.see(0.0)
    assert (rule.test, rule.for_last_look) == ("sign test after every task, exact", 0.0)
    rule.see(0.5)
    assert rule.test == "mixture of bets after every task, exact at the end"
    assert rule.for_last_look == pytest.approx(0.8 * (1 - (4 / 20) ** 2))


def test_the_last_look_decides_what_no_early_one_could() -> None:
    marks = {"a": [0.5] * 8 + [1.0] * 12, "b": [0.0] * 8 + [1.0] * 12}
    columns = [TaskMeans(candidate=n, means=marks[n], binary=False) for n in "ab"]
    for complete, better in ((frozenset("a"), None), (frozenset("ab"), "a")):
        drawn = TaskOrder(order=[str(n) for n in range(20)], complete=complete)
        pair = compare_drawn(*columns, pairs=1, drawn=drawn, level=0.95)
        (found,) = decide_drawn([pair], precision=None, level=0.95)
        assert (found.better, found.early) == (better, False)
        assert found.interval is not None
        assert (found.interval.low > 0) == (better == "a")


def test_what_is_decided_does_not_change_by_trials_that_were_under_way() -> None:
    rule = StoppingRule(pairs=1, tasks=40)
    for _ in range(20):
        rule.see(1.0)
    assert rule.decided
    p = rule.p
    for difference in (-1.0, -1.0, 0.5, -1.0):
        rule.see(difference)
    assert (rule.decided, rule.p, rule.test) == (True, p, "sign test after every task, exact")


def test_what_is_sure_whatever_the_faults_hide_is_sure_although_fewer_tasks_are_seen() -> None:
    # on every second task one of them faulted: with these counted against the leader, more of the
    # suite was seen, and more of the error may be spent
    count = 60
    lost = {n: MissingBounds(low=0.0, high=1.0, faults=1) for n in range(0, count, 2)}
    columns = (
        TaskMeans(candidate="a", means=[1.0] * count, binary=True, solved=True),
        TaskMeans(
            candidate="b",
            means=[math.nan, 0.0] * (count // 2),
            binary=True,
            bounds=lost,
            solved=True,
        ),
    )
    drawn = TaskOrder(order=[str(n) for n in range(count)])
    verdicts = []
    for seen in range(1, count + 1):
        some = [
            replace(c, means=c.means[:seen], bounds={n: b for n, b in c.bounds.items() if n < seen})
            for c in columns
        ]
        pair = compare_drawn(some[0], some[1], pairs=1, drawn=drawn, level=0.95)
        (found,) = decide_drawn([pair], precision=None, level=0.95)
        assert (found.better == "a") == pair.settled, seen
        verdicts.append(found.better)
    assert verdicts[-1] == "a"


# A race for the best


def race(scores: dict[str, list[float]]) -> Race:
    names = [(a, b) for n, a in enumerate(scores) for b in list(scores)[n + 1 :]]
    tasks = len(next(iter(scores.values())))
    rules = {pair: StoppingRule(pairs=len(names), tasks=tasks) for pair in names}
    run = Race(rules, best=True)
    for number in range(tasks):
        if run.open:
            apart = {(a, b): scores[a][number] - scores[b][number] for a, b in names}
            run.see(lambda a, b, apart=apart: (apart[a, b],) * 3)  # type: ignore[misc]
    return run


def test_one_that_is_surely_worse_leaves_and_all_its_pairs_with_it() -> None:
    good, bad = [1.0] * 60, [0.0] * 60
    run = race({"a": good, "b": bad, "c": good, "d": [0.0, 1.0] * 30})
    assert run.left["b"] < run.left["d"] < 60
    assert run.running == {"a", "c"}  # equals go on
    assert run.tasks == 60


# Whole runs: as often right, with far fewer tasks


def whole_suite_decides(scores: np.ndarray) -> bool:
    first, second = task_means(scores)
    return (compare(first, second).p or 0.0) < 0.05


RUNS = [25, pytest.param(1_000, marks=pytest.mark.soak)]


@pytest.mark.parametrize("rule", [PAIRS, TEN_LOOKS], ids=["default", "ten looks"])
@pytest.mark.parametrize("runs", RUNS)
def test_a_gap_of_ten_points_is_found_nearly_as_often_with_a_third_less_tasks(
    rule: Adaptive, runs: int
) -> None:
    rng = np.random.default_rng(22)
    decided = whole = trials = 0
    for _ in range(runs):
        scores = drawn_scores(rng, (0.1, 0.0), count=500)
        ended = adaptive_run(scores, rule)
        decided += ended.found.pairs[0].better == "a"
        whole += whole_suite_decides(scores)
        trials += ended.trials
    assert decided >= 0.95 * whole
    assert trials / runs <= 0.7 * 1_000


@pytest.mark.parametrize("runs", [4, pytest.param(200, marks=pytest.mark.soak)])
def test_one_best_of_five_by_twenty_points_is_found_with_two_fifths_of_the_trials(
    runs: int,
) -> None:
    rng, found, trials = np.random.default_rng(23), 0, 0
    for _ in range(runs):
        ended = adaptive_run(drawn_scores(rng, (0, 0, 0.2, 0, 0), count=500), BEST)
        found += (ended.found.ranks[0].candidate, ended.found.ranks[0].worst) == ("c", 1)
        trials += ended.trials
    assert found >= 0.99 * runs
    assert trials / runs <= 0.4 * 2_500


@pytest.mark.parametrize("faults", FAULT_RULES)
@pytest.mark.parametrize("runs", [25, pytest.param(1_000, marks=pytest.mark.soak)])
def test_faults_of_any_rule_rarely_make_equals_differ(faults: str, runs: int) -> None:
    rng, wrong = np.random.default_rng(26), 0
    for _ in range(runs):
        scores = with_faults(rng, drawn_scores(rng, (0.0, 0.0), count=80), of_whom=faults)
        wrong += adaptive_run(scores, PAIRS).found.pairs[0].better is not None
    assert wrong / runs <= at_most(0.05, runs)


@pytest.mark.parametrize(
    ("rule", "candidates", "rollouts"),
    [(PAIRS, 2, 1), (PAIRS, 2, 3), (TEN_LOOKS, 2, 1), (BEST, 4, 1)],
    ids=["two", "two, three rollouts", "ten looks", "best of four"],
)
@pytest.mark.parametrize("runs", [25, pytest.param(1_000, marks=pytest.mark.soak)])
def test_equals_are_rarely_told_apart(
    rule: Adaptive, candidates: int, rollouts: int, runs: int
) -> None:
    rng, wrong = np.random.default_rng(candidates), 0
    for _ in range(runs):
        scores = drawn_scores(rng, (0.0,) * candidates, count=120, rollouts=rollouts)
        wrong += any(p.better is not None for p in adaptive_run(scores, rule).found.pairs)
    assert wrong / runs <= at_most(0.05, runs)
