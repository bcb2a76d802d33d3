"""One task, several candidates: verdicts, rates, means and who is ahead."""

from dataclasses import replace

import pytest

from bakeoff.core.record import Attempt, Status
from bakeoff.stats.head_to_head import (
    Entry,
    HeadToHead,
    RolloutVerdict,
    figures,
    head_to_head,
    verdict,
)
from support.batches import (
    LIMIT_S,
    broken,
    failed,
    solved,
    solved_at_limit,
    timed_out,
    unchecked,
)


def compared(limit_s: float | None = LIMIT_S, **attempts: list[Attempt]) -> HeadToHead:
    return head_to_head(
        (
            Entry(
                candidate=name,
                planned=len(made),
                rollouts=tuple(figures(n, attempt) for n, attempt in enumerate(made)),
            )
            for name, made in attempts.items()
        ),
        limit_s=limit_s,
    )


def order(found: HeadToHead, name: str) -> list[str]:
    return [place.candidate for place in getattr(found, name).placed]


def test_only_a_check_can_say_success_or_failure() -> None:
    cancelled = replace(broken(), status=Status.CANCELLED, fault=None)
    assert [verdict(a) for a in (solved(1), failed(1), timed_out(), unchecked(1), broken(), cancelled)] == [
        RolloutVerdict.SUCCESS, RolloutVerdict.FAILED, RolloutVerdict.TIMED_OUT, RolloutVerdict.UNCHECKED, RolloutVerdict.ERROR,
        RolloutVerdict.CANCELLED,
    ]  # fmt: skip


def test_work_that_passes_is_a_success_even_if_its_agent_was_stopped_and_says_so() -> None:
    found = verdict(solved_at_limit())
    assert (found, found.solved, found.limited) == (RolloutVerdict.SUCCESS_AT_LIMIT, True, True)


def test_a_success_that_was_stopped_at_the_limit_wins_no_ranking_of_those_that_finished() -> None:
    found = compared(a=[solved(119.0, prompts=9)], stopped=[solved_at_limit(prompts=1)])
    for name in ("fastest", "most_efficient", "least_intervention"):
        assert order(found, name) == ["a"], name
    assert order(found, "to_solve") == ["a", "stopped"], "it is censored at the limit"
    assert (found.successful, found.overall.max_completion_time) == (2, 119.0)
    stopped = found.contenders[1]
    assert (stopped.success, stopped.finished, stopped.limited) == (True, False, 1)
    assert stopped.to_solve is not None
    assert (stopped.to_solve.solved, stopped.to_solve.restricted_mean_s) == (0, LIMIT_S)
    assert any(note.startswith("Stopped at the limit, with work that passes: stopped.")
               for note in found.notes)  # fmt: skip


def test_one_rollout_at_the_limit_is_enough_to_leave_the_ranking_of_those_that_finished() -> None:
    found = compared(steady=[solved(60)] * 3, lucky=[solved(1), solved(1), solved_at_limit()])
    assert order(found, "fastest") == ["steady"]
    assert order(found, "to_solve") == ["lucky", "steady"], "41 s on average, the limit counted"


def test_of_those_that_count_the_limit_who_solved_it_goes_first() -> None:
    found = compared(
        wrong=[failed(1)], late=[timed_out()], stopped=[solved_at_limit()], a=[solved(9)]
    )
    assert order(found, "to_solve") == ["a", "stopped", "wrong", "late"]


def test_where_nobody_finished_nobody_is_the_fastest() -> None:
    found = compared(a=[solved_at_limit()], b=[timed_out()])
    assert order(found, "fastest") == []
    assert found.to_solve is None
    assert (found.successful, found.overall.avg_completion_time) == (1, None)


def test_every_candidate_is_counted_once() -> None:
    found = compared(a=[solved(1)], b=[failed(1)], c=[broken()], d=[unchecked(1)], e=[timed_out()])
    counts = (found.successful, found.failed, found.broken, found.undecided)
    assert counts == (1, 2, 1, 1)
    assert sum(counts) == len(found.contenders)


def test_the_time_is_that_of_the_agent_without_set_up_and_grading() -> None:
    attempt = solved(9.0)
    assert figures(0, attempt).seconds == 9.0
    assert figures(0, replace(attempt, phases={})).seconds == attempt.elapsed_s


def test_rankings_are_among_the_successful_and_ties_go_to_the_faster() -> None:
    found = compared(a=[solved(9, prompts=3)], b=[solved(5, prompts=4)], c=[solved(7, prompts=3)],
                     wrong=[failed(1)], broken=[broken()], late=[timed_out()])  # fmt: skip
    assert order(found, "fastest") == ["b", "c", "a"]
    assert order(found, "most_efficient") == ["c", "a", "b"]
    assert order(found, "least_intervention") == ["b", "c", "a"]
    assert (found.successful, found.failed, found.broken, found.undecided) == (3, 2, 1, 0)


def test_time_with_failures_counted_puts_the_sure_before_the_lucky() -> None:
    found = compared(lucky=[solved(5), solved(5), failed(2)], sure=[solved(20)] * 3)
    assert order(found, "fastest") == ["lucky", "sure"]
    assert order(found, "to_solve") == ["sure", "lucky"]


def test_where_nobody_solves_anything_nobody_is_ranked() -> None:
    found = compared(a=[failed(3)], b=[timed_out()])
    assert order(found, "fastest") == []
    assert found.to_solve is None
    assert found.overall.avg_completion_time is None


def test_a_success_is_more_than_half_of_what_could_be_decided() -> None:
    found = compared(most=[solved(1), solved(1), failed(1), broken()], half=[solved(1), failed(1)])
    most, half = found.contenders
    assert (most.success, half.success) == (True, False)
    assert (most.passed, most.decided, most.rate) == (2, 3, pytest.approx(2 / 3))


def test_unchecked_is_neither_and_says_so() -> None:
    found = compared(a=[unchecked(3)])
    (one,) = found.contenders
    assert (one.success, one.rate, one.rate_interval, one.to_solve) == (None, None, None, None)
    assert found.undecided == 1
    assert any("unchecked" in note for note in found.notes)


def test_a_fault_is_no_zero_and_leaves_the_means() -> None:
    (one,) = compared(a=[solved(4.0), broken()]).contenders
    assert one.means.seconds.value == 4.0
    assert one.rate == 1.0
    assert one.to_solve is not None
    assert one.to_solve.rollouts == 2, "it is censored where it broke"


def test_what_is_unknown_of_one_rollout_is_unknown_on_average() -> None:
    (one,) = compared(a=[solved(4.0, cost=0.1), solved(4.0)]).contenders
    assert one.means.cost_usd.value is None


def test_means_have_intervals_only_where_there_is_a_spread() -> None:
    (one, two) = compared(a=[solved(4.0)], b=[solved(4.0), solved(6.0)]).contenders
    assert one.means.seconds.interval is None
    interval = two.means.seconds.interval
    assert interval is not None
    assert (interval.low, interval.high) == (0.0, pytest.approx(5 + 12.706205, abs=1e-5))
    assert two.means.prompts.interval is None


def test_one_rollout_each_is_called_a_single_observation() -> None:
    assert any("single observation" in note for note in compared(a=[solved(1)]).notes)
    assert not compared(a=[solved(1), solved(2)]).notes


def test_what_was_not_run_is_told() -> None:
    found = head_to_head([Entry(candidate="a", planned=3, name="Ada")], limit_s=None)
    assert found.notes == ("Not run yet: Ada (3 of 3 rollouts). Resume the batch to run the rest.",)
    assert not found.complete
    assert found.contenders[0].success is None


def test_without_a_limit_the_longest_rollout_is_the_horizon() -> None:
    assert compared(limit_s=None, a=[solved(4), failed(9)]).horizon_s == 9


def test_overall_figures_are_over_those_that_solved_it() -> None:
    found = compared(a=[solved(2, prompts=2)], b=[solved(6, prompts=4)], c=[failed(100)])
    overall = found.overall
    assert (overall.avg_completion_time, overall.median_completion_time) == (4, 4)
    assert (overall.min_completion_time, overall.max_completion_time) == (2, 6)
    assert (overall.avg_prompts, overall.avg_interventions) == (3, 0)
