"""reasoning: the style heuristic, metric by metric."""

import asyncio
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Completion, Outcome, Request
from bakeoff.core.ports import Context
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
    return asyncio.run(scorer.score(of, Outcome(answer=answer), Context(model=Silent())))


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
        "comprehensive_coverage": 2.0,
        "reasoning_pattern": 50,
    }
    overall = 0.15 * 10 + 0.2 * 8 + 0.1 * 2.04 + 0.15 * 50
    assert report.overall_score == round(overall, 1)
    confidence = (0.6 * 102 / 500 + 0.4 * overall / 100) * 100
    assert report.confidence_score == round(confidence, 1)
    assert len(report.recommendations) == 7


def test_a_short_text_has_no_style() -> None:
    report = evaluate_reasoning("first because therefore verify", "mathematical")
    assert set(report.metrics.values()) == {0}
    assert report.overall_score == report.confidence_score == 0
    assert report.word_count == 4


def test_coverage_is_capped() -> None:
    assert evaluate_reasoning("word " * 6000).metrics["comprehensive_coverage"] == 100


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        # 10 a word: step, first, second, then, therefore; 20 a sequence: "step 1", "then … therefore"
        ("chain_of_thought", "Step 1: first. Second, then it follows therefore", 90),
        ("chain_of_thought", "first of all, second to that, third in line", 40),
        ("chain_of_thought", "first of all\nsecond to that\nthird in line", 20),
        ("verification", "let me check it, then review the conclusion", 60),
        ("verification", "let mecheck", 10),  # nothing stands between the two
        ("mathematical", "The probability is 7%, as the equation equals one.", 80),
        ("multi_hop", "according to the notes from x", 30),
        ("multi_hop", "this is a document. according to the notes from", 20),
        ("multi_hop", "evidence A suggests B because of a source", 30),
        ("multi_step", "step 1, step 2, step 3", 50),
        ("scaffolded", "a framework", 50),
        ("backward", "backward from the end", 50),
        ("general", "first, second", 50),
    ],
)
def test_a_pattern_is_10_a_word_and_20_a_sequence_of_its_type(
    kind: str, text: str, expected: float
) -> None:
    padded = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do\n" + text
    assert evaluate_reasoning(padded, kind).metrics["reasoning_pattern"] == expected


def test_a_full_pattern_is_100() -> None:
    text = "step 1: first, second, third, next, then, finally, therefore" + FILLER
    assert evaluate_reasoning(text, "chain_of_thought").metrics["reasoning_pattern"] == 100


WORDS = ("first", "second", "third", "then", "therefore", "step 1", "step", "\n", " ", "x")


@given(st.lists(st.sampled_from(WORDS), max_size=30))
def test_a_sequence_is_found_wherever_its_parts_come_in_order_on_a_line(parts: list[str]) -> None:
    text = FILLER + "\n" + "".join(parts)
    words = sum(word in text for word in ("step", "first", "second", "then", "therefore"))
    sequences = (r"step \d", "first.+second.+third", "then.+therefore")
    found = sum(bool(re.search(sequence, text)) for sequence in sequences)
    report = evaluate_reasoning(text, "chain_of_thought")
    assert report.metrics["reasoning_pattern"] == min(10 * words + 20 * found, 100)


def test_a_hostile_text_is_measured_in_linear_time() -> None:
    text = "first second " * 40_000 + "probability " * 40_000
    began = time.perf_counter()
    evaluate_reasoning(text, "chain_of_thought")
    evaluate_reasoning(text, "mathematical")
    assert time.perf_counter() - began < 2


def test_expected_indicators_are_reported_and_change_no_metric() -> None:
    text = "The Base Case holds, and by induction so does the rest." + FILLER
    expected = ["base case", "Induction", "QED", "hypothesis"]
    for kind in TYPES:
        with_them = evaluate_reasoning(text, kind, expected_indicators=expected)
        without = evaluate_reasoning(text, kind)
        assert with_them.metrics == without.metrics
        assert with_them.overall_score == without.overall_score
        assert with_them.indicators == {
            "base case": True,
            "Induction": True,
            "QED": False,
            "hypothesis": False,
        }


ANSWER = """\
First, I examine what is given. According to the notes, the tank holds 240 litres.
Then I calculate the rate: because two pumps run, it is 2 times 15 litres a minute.
Therefore 8 minutes are needed. Let me check: 8 times 30 equals 240, so I can confirm the result.
"""


@pytest.mark.parametrize(
    ("kind", "pattern", "overall", "confidence"),
    [
        # steps 20 (first, then), logic 16 (because, therefore), evidence 12 (according to), depth 10
        # (examine), verification 30 (confirm, examine), 51 words: 1.02
        # 3 + 3.2 + 1.8 + 1.5 + 3 + 0.102 = 12.602, and 0.15 of the pattern
        # confidence: 60 · 51 / 500 = 6.12, and 0.4 of the overall score before it is rounded
        ("general", 50.0, 20.1, 14.2),  # 20.102; 6.12 + 8.0408
        ("chain_of_thought", 30.0, 17.1, 13.0),  # first, then, therefore: 17.102; 12.9608
        ("verification", 40.0, 18.6, 13.6),  # check, confirm, let me … check: 18.602; 13.5608
        ("mathematical", 10.0, 14.1, 11.8),  # calculate: 14.102; 11.7608
        ("multi_hop", 10.0, 14.1, 11.8),  # according to
        ("backward", 50.0, 20.1, 14.2),
    ],
)
def test_an_answer_has_the_scores_that_the_rules_give_by_hand(
    kind: str, pattern: float, overall: float, confidence: float
) -> None:
    report = evaluate_reasoning(ANSWER, kind, expected_indicators=["step", "verify"])
    assert report.word_count == 51
    assert report.metrics == {
        "step_clarity": 20.0,
        "logical_consistency": 16.0,
        "evidence_integration": 12.0,
        "analysis_depth": 10.0,
        "verification_effort": 30.0,
        "comprehensive_coverage": 1.0,  # 51 / 50, rounded to one decimal
        "reasoning_pattern": pattern,
    }
    assert report.overall_score == overall
    assert report.confidence_score == confidence


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
    assert score(Reasoning(), FILLER, of).details["expected_indicators"] == {"lorem": True}
    own = score(Reasoning(reasoning_type="multi_hop", expected_indicators=["none"]), FILLER, of)
    assert own.details["reasoning_type"] == "multi_hop"
    assert own.details["expected_indicators"] == {"none": False}


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
