"""When a trial has passed: by the threshold, or by what a scorer says itself."""

from typing import Any

import pytest

from bakeoff.core.record import Score, has_passed, pass_rule
from bakeoff.core.task import Message, ScorerSpec, Task

TESTED = {"rubrics": [], "test_scripts": [{"path": "t.py"}]}


def _task(threshold: float = 1.0, **scorer: Any) -> Task:
    spec = ScorerSpec(**{"name": "exact", **scorer})
    message = Message(role="user", content="?")
    return Task(id="t", messages=(message,), scorers=(spec,), pass_threshold=threshold)


def _score(value: float, *, passed: bool | None = None, weight: float = 1.0) -> Score:
    return Score(scorer="s", value=value, passed=passed, weight=weight)


@pytest.mark.parametrize(
    ("threshold", "scores", "total", "passed"),
    [
        (1.0, [_score(1.0)], 1.0, True),
        (1.0, [_score(0.99)], 0.99, False),
        (1.0, [_score(0.8, passed=True)], 0.8, True),
        (1.0, [_score(0.9, passed=False)], 0.9, False),
        (1.0, [_score(0.8, passed=True), _score(0.5)], 0.65, False),
        (1.0, [_score(1.0), _score(0.0, weight=0.0)], 1.0, True),
        (0.7, [_score(0.8, passed=False)], 0.8, True),
        (0.7, [_score(0.6, passed=True)], 0.6, False),
        (0.7, [_score(0.7 - 1e-12)], 0.7 - 1e-12, True),
        (1.0, [], None, None),
    ],
)
def test_a_scorer_may_say_itself_that_it_is_content_where_the_threshold_is_1(
    threshold: float, scores: list[Score], total: float | None, passed: bool | None
) -> None:
    assert has_passed(_task(threshold), scores, total) is passed


def test_the_rule_is_told_in_words() -> None:
    tested = _task(name="rubrics", settings=TESTED)
    assert pass_rule([_task(), _task()]) == "a pass is a score of 1"
    assert pass_rule([_task(0.7)]) == "a pass is a score of 0.7 or more"
    assert pass_rule([tested]) == "a pass is all tests passing, whatever a judge says"
    assert "depends on the task: a score of 1 or all tests" in pass_rule([_task(), tested])
    assert pass_rule([]) == ""
