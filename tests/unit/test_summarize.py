"""From ledger rows to a summary."""

import json
import math
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.core.candidate import Candidate, ModelSpec
from bakeoff.core.plan import Plan
from bakeoff.core.record import TrialRow
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.reports.files import as_json
from bakeoff.stats.summarize import summarize
from bakeoff.stats.summary import BUCKET_NAMES, Buckets, Group
from support.plans import candidate, plan, task
from support.rows import fault, row


def _total(given_plan: Plan, rows: Iterable[TrialRow]) -> Group:
    return summarize(given_plan, rows).candidates[0].total


def _checked(name: str, **rest: Any) -> Task:
    return task(name, scorers=(ScorerSpec(name="exact"),), **rest)


def _planned(*ids: str, rollouts: int = 1) -> Plan:
    return plan(*(_checked(i) for i in ids), rollouts=rollouts)


def test_every_way_a_trial_can_end_has_a_bucket_of_its_own() -> None:
    ids = "abcdefghi"
    total = _total(
        _planned(*ids),
        [
            row("a"),
            row("b", score=None),
            row("c", status="limited", score=0.0),
            fault("d", fault_transient=False),
            fault("e"),
            fault("f", fault_boundary="scorer", fault_transient=False),
            row("g", score=None, status="cancelled"),
        ],
    )
    assert total.buckets == Buckets(
        scored=1, unchecked=1, limited=1, model_error=1, infrastructure_fault=2, cancelled=1, not_run=2
    )  # fmt: skip
    assert (total.buckets.planned, total.buckets.faults) == (9, 3)


_ends = st.sampled_from(
    [
        {"status": "completed", "score": 1.0},
        {"status": "completed", "score": 0.0},
        {"status": "completed", "score": 0.3},
        {"status": "completed", "score": None},
        {"status": "limited", "score": 0.0},
        {"status": "limited", "score": None},
        {"status": "cancelled", "score": None},
        {
            "status": "faulted",
            "score": None,
            "fault_boundary": "provider",
            "fault_transient": False,
        },
        {"status": "faulted", "score": None, "fault_boundary": "provider", "fault_transient": True},
        {"status": "faulted", "score": None, "fault_boundary": "scorer", "fault_transient": False},
        None,
    ]
)
_usage = st.fixed_dictionaries(
    {
        "requests": st.integers(0, 3),
        "model_s": st.floats(0, 10),
        "first_token_s": st.none() | st.floats(0, 1),
        "input_tokens": st.none() | st.integers(0, 100),
        "output_tokens": st.none() | st.integers(0, 100),
        "cost_usd": st.none() | st.floats(0, 1),
        "attempts": st.integers(1, 3),
    }
)


@settings(deadline=None, max_examples=40)
@given(st.data(), st.integers(1, 6), st.integers(1, 3), st.integers(1, 2))
def test_whatever_happens_every_planned_trial_is_in_exactly_one_bucket(
    data: st.DataObject, count: int, rollouts: int, seats: int
) -> None:
    categories = data.draw(
        st.lists(st.sampled_from([None, "x", "y"]), min_size=count, max_size=count)
    )
    tasks = [_checked(f"t{n}", category=c) for n, c in enumerate(categories)]
    given_plan = plan(
        *tasks, rollouts=rollouts, candidates=[candidate(f"m{n}") for n in range(seats)]
    )
    rows = []
    for trial in given_plan:
        if (end := data.draw(_ends)) is not None:
            seen = row(
                trial.task.id,
                category=trial.task.category,
                candidate_id=trial.candidate.id,
                rollout=trial.rollout,
                **end,
                **data.draw(_usage),
            )
            rows.append(seen)
    summary = summarize(given_plan, rows, run="r")

    assert summary.buckets.planned == len(given_plan)
    for seat in summary.candidates:
        total = seat.total
        mine = [r for r in rows if r.candidate_id == seat.candidate]
        assert total.buckets.planned == count * rollouts
        assert total.buckets.planned - total.buckets.not_run == len(mine)
        for name in BUCKET_NAMES:
            assert getattr(total.buckets, name) >= 0
        assert sum(g.buckets.planned for g in seat.categories) == rollouts * sum(
            c is not None for c in categories
        )
        scored = [r.score for r in mine if r.score is not None]
        assert total.score.trials == len(scored)
        assert 0 <= total.coverage <= 1
        assert total.passed <= len(scored)
        assert total.extra_attempts == sum(r.attempts - 1 for r in mine)
        if total.score_bounds:
            low, high = total.score_bounds
            assert 0 <= low <= high <= 1
            if scored:
                assert low <= math.fsum(scored) / len(scored) + 1e-12
                assert high >= math.fsum(scored) / len(scored) - 1e-12
    text = json.dumps(as_json(summary), allow_nan=False)
    assert "NaN" not in text


def test_the_unit_is_the_task_not_the_trial() -> None:
    rows = [row("a", score=1.0, rollout=n) for n in range(8)]
    rows += [row("b", score=0.0, rollout=0)]
    total = _total(_planned("a", "b", rollouts=8), rows)
    assert total.score.mean == 0.5
    assert (total.score.tasks, total.score.trials) == (2, 9)


def test_a_fault_is_missing_and_not_a_zero() -> None:
    total = _total(_planned("a", "b", "c", "d"), [row("a"), row("b"), fault("c"), fault("d")])
    assert total.score.mean == 1.0
    assert total.coverage == 0.5
    assert total.score_bounds == (0.5, 1.0)


def test_a_limited_trial_counts_with_its_score() -> None:
    total = _total(_planned("a", "b"), [row("a"), row("b", status="limited", score=0.0)])
    assert total.score.mean == 0.5
    assert total.coverage == 1.0
    assert total.score_bounds == (0.5, 0.5)


def test_an_unchecked_answer_is_no_part_of_coverage() -> None:
    total = _total(plan(_checked("a"), task("b")), [row("a"), row("b", score=None)])
    assert (total.coverage, total.score.mean) == (1.0, 1.0)


def test_where_nothing_is_scored_there_is_no_mean_and_a_reason() -> None:
    total = _total(_planned("a", "b"), [fault("a")])
    assert total.score.mean is None
    assert total.score.reason == "no task has a score"
    assert total.score_bounds == (0.0, 1.0)
    assert total.passes == ()


def test_one_task_has_a_mean_but_no_interval_and_a_reason() -> None:
    total = _total(_planned("a", rollouts=3), [row("a", rollout=n) for n in range(3)])
    assert total.score.mean == 1.0
    assert (total.score.se, total.score.interval) == (None, None)
    assert "one task" in str(total.score.reason)
    data = as_json(summarize(_planned("a"), [row("a")]))
    assert data["candidates"][0]["total"]["score"]["interval"] is None


def test_tokens_per_second_are_all_tokens_over_all_seconds() -> None:
    rows = [
        row("a", output_tokens=100, model_s=1.0),
        row("b", output_tokens=10, model_s=9.0),
        row("c", output_tokens=None, model_s=90.0),  # unknown: neither tokens nor time count
        row("d", output_tokens=50, model_s=0.0),  # not timed
    ]
    tokens = _total(_planned("a", "b", "c", "d"), rows).tokens
    assert tokens.output_per_s == 11.0
    assert (tokens.output, tokens.input) == (160, 40)


def test_what_is_unknown_stays_unknown() -> None:
    rows = [row("a", input_tokens=None, output_tokens=None)]
    total = _total(_planned("a", "b"), rows)
    assert (total.tokens.input, total.tokens.output, total.tokens.output_per_s) == (None,) * 3
    assert total.tokens.cost_usd is None
    assert total.latency.first_token_p50_s is None


def test_money_is_told_only_where_all_of_it_is_known() -> None:
    known = [row("a", cost_usd=0.25), row("b", cost_usd=0.5)]
    assert _total(_planned("a", "b"), known).tokens.cost_usd == 0.75
    assert _total(_planned("a", "b"), [known[0], row("b")]).tokens.cost_usd is None


def test_latency_is_per_request_and_only_of_trials_that_asked() -> None:
    rows = [
        row("a", model_s=4.0, requests=2, first_token_s=0.1),
        row("b", model_s=4.0, requests=1, first_token_s=0.3),
        fault("c", model_s=0.0, requests=0),
    ]
    latency = _total(_planned("a", "b", "c"), rows).latency
    assert latency.p50_s == 3.0
    assert latency.first_token_p50_s == pytest.approx(0.2)


def test_categories_are_summarized_each_for_itself() -> None:
    given_plan = plan(task("a", category="x"), task("b", category="y"), task("c"))
    rows = [
        row("a", category="x"),
        row("b", category="y", score=0.0),
        row("c", score=0.0),
    ]
    (seat,) = summarize(given_plan, rows).candidates
    assert {g.category: g.score.mean for g in seat.categories} == {"x": 1.0, "y": 0.0}
    assert seat.total.score.mean == pytest.approx(1 / 3)


def test_pass_rates_go_as_far_as_the_task_with_the_fewest_rollouts() -> None:
    rows = [row("a", score=float(n % 2), rollout=n) for n in range(4)]
    rows += [row("b", score=1.0, rollout=n) for n in range(2)]
    passes = _total(_planned("a", "b", rollouts=4), rows).passes
    assert [p.k for p in passes] == [1, 2]
    assert passes[0].pass_at == 0.75
    assert passes[1].pass_at == pytest.approx((5 / 6 + 1) / 2)
    assert passes[1].pass_hat == pytest.approx((1 / 6 + 1) / 2)


def test_a_script_is_marked_and_many_faults_are_noted() -> None:
    scripted = Candidate(id="s", model=ModelSpec(provider="scripted", name="echo"))
    given_plan = plan(task("a"), task("b"), candidates=[scripted])
    rows = [row("a", candidate_id="s"), fault("b", candidate_id="s")]
    summary = summarize(given_plan, rows)
    assert summary.candidates[0].scripted
    assert "s: scripted answers, not a measurement" in summary.notes
    assert "s: 1 of 2 trials that ran faulted (over 2 %)" in summary.notes


def test_faults_are_counted_among_the_trials_that_ran() -> None:
    names = [f"t{number}" for number in range(200)]
    rows = [*map(row, names[:37]), *(fault(name) for name in names[37:57])]
    summary = summarize(_planned(*names), rows)
    assert summary.notes == (
        "m: 20 of 57 trials that ran faulted (over 2 %)",
        "m: all of the tasks are solved, they are too easy to say how good it is",
    )
    # one of 40 that ran is over 2 %, whatever was planned
    few = summarize(_planned(*names), [*map(row, names[:39]), fault(names[39])])
    assert few.warnings == ("m: 1 of 40 trials that ran faulted (over 2 %)",)


def test_notes_that_say_the_same_of_several_candidates_are_one() -> None:
    given = plan(_checked("a"), _checked("b"), candidates=[candidate(name) for name in "xyz"])
    rows = [
        row(task_id, candidate_id=name, load_s=seconds)
        for task_id in "ab"
        for name, seconds in (("x", 1.0), ("y", 0.4), ("z", None))
    ]
    summary = summarize(given, rows)
    assert summary.notes == (
        "every candidate: all of the tasks are solved, they are too easy to say how good it is",
        "went into loading, apart from latency: x 2.0 s, y 0.8 s",
    )
    assert summary.warnings == ()


def test_what_puts_a_result_in_doubt_is_a_warning_and_what_explains_it_is_not() -> None:
    rows = [row("a", flags="truncated", load_s=2.0), fault("b")]
    summary = summarize(_planned("a", "b"), rows)
    assert summary.warnings == (
        "m: 1 of 2 trials that ran faulted (over 2 %)",
        "m: 1 answer read with its prompt truncated: the context is too small",
    )
    assert set(summary.warnings) < set(summary.notes)


@pytest.mark.parametrize(("score", "told"), [(1.0, "all of the tasks are solved"),
                                             (0.0, "none of the tasks are solved")])  # fmt: skip
def test_a_suite_that_says_nothing_of_a_candidate_is_noted(score: float, told: str) -> None:
    summary = summarize(_planned("a", "b"), [row("a", score), row("b", score)])
    assert any(told in note and "too" in note for note in summary.notes)
