"""Change points in a series of runs: hardly ever where there are none, and at the right run where there is one."""

import numpy as np
import pytest

from bakeoff.stats.change_points import ALPHA, changes
from support.simulated_series import series


def test_a_series_that_never_changes_is_hardly_ever_said_to_have_changed() -> None:
    alarms = sum(bool(changes(series(seed, runs=30, tasks=40))) for seed in range(300))
    assert alarms <= 300 * ALPHA + 3  # at most 1 in 100 ever, however often it is looked at


def test_with_few_tasks_that_hardly_move_it_is_not_either() -> None:
    alarms = 0
    for seed in range(300):
        chance = np.random.default_rng(seed)
        p = np.where(np.arange(20) < 4, 0.9, 1.0)[:, None]
        alarms += bool(changes(chance.binomial(1, p, size=(20, 25)).astype(float)))
    assert alarms <= 6


@pytest.mark.parametrize("jump", [-0.3, 0.3])
def test_a_jump_is_found_at_its_run(jump: float) -> None:
    found = [
        changes(series(seed, runs=24, tasks=100, rollouts=3, jumps={12: jump}))
        for seed in range(50)
    ]
    assert all(len(each) == 1 for each in found)
    assert sum(each[0].at == 12 for each in found) >= 48
    assert sum(each[0].found == 12 for each in found) >= 45, "with the first run after it"
    assert all((each[0].difference > 0) == (jump > 0) for each in found)
    assert all(each[0].interval.low > 0 or each[0].interval.high < 0 for each in found)


def test_a_small_change_comes_to_light_when_there_are_runs_enough() -> None:
    found = [changes(series(seed, runs=40, tasks=100, jumps={10: -0.1})) for seed in range(30)]
    assert sum(len(each) == 1 for each in found) >= 28
    near = [abs(each[0].at - 10) for each in found if each]
    assert sorted(near)[len(near) // 2] <= 1
    assert all(each[0].found > each[0].at for each in found if each)


def test_two_changes_are_two() -> None:
    found = changes(series(5, runs=30, tasks=150, rollouts=2, jumps={10: -0.25, 20: 0.25}))
    assert [change.at for change in found] == [10, 20]


def test_what_was_found_stays_found_whatever_comes_after() -> None:
    whole = series(7, runs=30, tasks=80, rollouts=2, jumps={9: -0.2, 21: 0.1})
    known = changes(whole)
    for length in range(1, 31):
        assert changes(whole[:, :length]) == tuple(c for c in known if c.found < length)


def test_tasks_are_compared_with_themselves_so_a_harder_selection_is_no_change() -> None:
    means = series(3, runs=20, tasks=120, rollouts=3)
    easy = means.mean(axis=1) > np.median(means)
    means[easy, 10:] = np.nan  # from then on, only the hard half is run
    assert np.nanmean(means[:, 10:]) < np.nanmean(means[:, :10]) - 0.1
    assert changes(means) == ()


def test_tasks_that_no_run_shares_say_nothing() -> None:
    means = np.full((40, 6), np.nan)
    means[:20, :3], means[20:, 3:] = 1.0, 0.0
    assert changes(means) == ()
    assert changes(np.empty((0, 3))) == ()
    assert changes(np.ones((10, 1))) == ()


def test_tasks_of_a_group_count_as_one() -> None:
    means = np.ones((40, 8))
    means[:20, 4:] = 0.0
    assert [change.at for change in changes(means)] == [4]
    groups = [f"text {n // 20}" for n in range(40)]
    assert changes(means, groups=groups) == ()


def test_all_tasks_falling_at_once_is_as_sure_as_their_number() -> None:
    means = np.ones((30, 6))
    means[:, 3:] = 0.0
    (found,) = changes(means)
    assert (found.at, found.found, found.before, found.after) == (3, 3, 1.0, 0.0)
    assert 0 < found.p < 1e-5
    few = np.ones((4, 6))
    few[:, 3:] = 0.0
    assert changes(few) == ()
