"""reasoning: the style heuristic, metric by metric."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Completion, Outcome, Request
from bakeoff.core.ports import Kit
from bakeoff.core.record import Score
from bakeoff.core.task import Message, Task
from bakeoff.core.values import Json
from bakeoff.scorers.reasoning import LABEL, TYPES, WEIGHTS, Reasoning, evaluate_reasoning

FILLER = " lorem ipsum dolor sit amet consectetur adipiscing elit sed do"  # 10 words, no indicator


class Silent:
    async def complete(self, request: Request) -> Completion:
        raise AssertionError("this scorer asks no model")


def task(**metadata: Json) -> Task:
    return Task(id="t1", messages=(Message(role="user", content="?"),), metadata=metadata)


def score(scorer: Reasoning, answer: str, of: Task) -> Score:
    return asyncio.run(scorer.score(of, Outcome(answer=answer), Kit(model=Silent())))


def test_the_weights_sum_to_one() -> None:
    assert sum(WEIGHTS.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("metric", "text", "expected"),
    [
        ("step_clarity", "FIRST, then, then. Finally step 1", 40),
        ("logical_consistency", "Because of x, therefore y, since z, since a", 24),
        ("evidence_integration", "according to data; based on data", 24),
        ("analysis_depth", "Analyze, evaluate, examine.", 30),
        ("verification_effort", "verify, double-check, examine", 45),
        (
            "verification_effort",
            "verify validate confirm double-check review examine question",
            100,
        ),
    ],
)
def test_a_metric_counts_distinct_indicators(metric: str, text: str, expected: float) -> None:
    assert evaluate_reasoning(text + FILLER).metrics[metric] == expected


def test_the_overall_score_is_the_weighted_sum_and_confidence_follows() -> None:
    report = evaluate_reasoning("first because" + FILLER * 10)
    assert report.word_count == 102
    assert report.metrics == {
        "step_clarity": 10,
        "logical_consistency": 8,
        "evidence_integration": 0,
        "analysis_depth": 0,
        "verification_effort": 0,
        "comprehensive_coverage": 2.04,
        "reasoning_pattern": 50,
    }
    overall = 0.15 * 10 + 0.2 * 8 + 0.1 * 2.04 + 0.15 * 50
    assert report.overall_score == pytest.approx(overall)
    confidence = (0.6 * 102 / 500 + 0.4 * overall / 100) * 100
    assert report.confidence_score == round(confidence, 1)
    assert len(report.recommendations) == 7


def test_a_short_text_has_no_style() -> None:
    report = evaluate_reasoning("first because therefore verify", "mathematical")
    assert set(report.metrics.values()) == {0}
    assert report.overall_score == 0


def test_coverage_is_capped() -> None:
    assert evaluate_reasoning("word " * 6000).metrics["comprehensive_coverage"] == 100


def test_a_pattern_is_measured_by_type() -> None:
    text = "Calculate the equation: substitute x = 3 and simplify." + FILLER
    assert evaluate_reasoning(text, "mathematical").metrics["reasoning_pattern"] == 100
    assert evaluate_reasoning(text, "backward").metrics["reasoning_pattern"] == 0
    assert evaluate_reasoning(text, "general").metrics["reasoning_pattern"] == 50


def test_expected_indicators_are_the_pattern() -> None:
    text = "The Base Case holds, and by induction so does the rest." + FILLER
    report = evaluate_reasoning(
        text, "mathematical", expected_indicators=["base case", "Induction", "QED", "hypothesis"]
    )
    assert report.metrics["reasoning_pattern"] == 50


def test_custom_weights_replace_those_they_name_and_are_scaled() -> None:
    only_steps = {**dict.fromkeys(WEIGHTS, 0.0), "step_clarity": 7.0}
    text = "first, second, third" + FILLER
    assert evaluate_reasoning(text, custom_weights=only_steps).overall_score == pytest.approx(30)
    same = evaluate_reasoning(text, custom_weights={"step_clarity": 0.15}).overall_score
    assert same == pytest.approx(evaluate_reasoning(text).overall_score)


def test_a_good_metric_gets_no_recommendation() -> None:
    text = "first second third next then finally" + FILLER
    report = evaluate_reasoning(text)
    assert report.metrics["step_clarity"] == 60
    assert not any("steps" in advice for advice in report.recommendations)


def test_the_score_says_that_it_is_about_style() -> None:
    verdict = score(Reasoning(), "first because" + FILLER, task())
    assert verdict.details["label"] == LABEL
    assert verdict.value == pytest.approx(float(str(verdict.details["overall_score"])) / 100)
    assert {*WEIGHTS, "confidence_score", "word_count", "recommendations"} <= set(verdict.details)


def test_the_task_fills_in_what_the_settings_leave_out() -> None:
    config: Json = {"reasoning_type": "backward", "expected_indicators": ["lorem"], "other": 1}
    of = task(evaluation_config=config)
    assert score(Reasoning(), FILLER, of).details["reasoning_type"] == "backward"
    assert score(Reasoning(), FILLER, of).details["reasoning_pattern"] == 100
    own = score(Reasoning(reasoning_type="multi_hop", expected_indicators=["none"]), FILLER, of)
    assert own.details["reasoning_type"] == "multi_hop"
    assert own.details["reasoning_pattern"] == 0


@pytest.mark.parametrize(
    "config",
    [
        {"reasoning_type": "backwards"},
        {"custom_weights": {"style": 1}},
        {"custom_weights": {"step_clarity": -1}},
        {"custom_weights": dict.fromkeys(WEIGHTS, 0)},
        {"custom_weights": [1]},
        {"expected_indicators": "one"},
        "general",
    ],
)
def test_a_config_that_makes_no_sense_is_refused_before_the_run(config: Json) -> None:
    with pytest.raises(UsageError, match="task 't1': `evaluation_config`"):
        Reasoning().check(task(evaluation_config=config))


def test_an_unknown_type_is_refused_with_a_hint() -> None:
    with pytest.raises(UsageError, match="did you mean 'backward'"):
        Reasoning(reasoning_type="backwards")


@given(st.text(), st.sampled_from(TYPES), st.lists(st.text(), max_size=4))
def test_every_metric_stays_between_0_and_100(text: str, kind: str, expected: list[str]) -> None:
    report = evaluate_reasoning(text * 20, kind, expected_indicators=expected)
    assert all(0 <= value <= 100 for value in report.metrics.values())
    assert 0 <= report.overall_score <= 100.0000001
    assert 0 <= report.confidence_score <= 100
