"""A user's own function as a scorer: how it is called, and what it may return."""

import asyncio
from collections.abc import Callable, Mapping
from fractions import Fraction

import pytest

from bakeoff.core.errors import ScorerError, UsageError
from bakeoff.core.outcome import Completion, Outcome, Request
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.task import Message, Task
from bakeoff.core.values import Json
from bakeoff.scorers.function import FunctionScorer

TASK = Task(id="t1", messages=(Message(role="user", content="?"),), target="yes")
OUTCOME = Outcome(answer="yes")


class Silent:
    async def complete(self, request: Request) -> Completion:
        raise AssertionError("this scorer asks no model")


def score(function: Callable[..., object], settings: Mapping[str, Json] | None = None) -> Score:
    scorer = FunctionScorer(function, settings=settings)
    scorer.check(TASK)
    return asyncio.run(scorer.score(TASK, OUTCOME, Context(model=Silent())))


def test_a_function_gets_what_it_names() -> None:
    def every(*, outcome: Outcome, task: Task, target: Json, answer: str) -> bool:
        return (outcome, task, target, answer) == (OUTCOME, TASK, "yes", "yes")

    assert score(every).value == 1.0
    assert score(lambda task: task is TASK).value == 1.0
    assert score(lambda answer, unused=1: answer == "yes").value == 1.0


def test_a_function_that_names_nothing_gets_answer_and_target_by_place() -> None:
    assert score(lambda a, b: (a, b) == ("yes", "yes")).value == 1.0
    assert score(lambda text: text == "yes").value == 1.0
    assert score(str.__eq__).value == 1.0
    assert score(lambda a, b, /: a == b).value == 1.0
    assert score(lambda *both: both == ("yes", "yes")).value == 1.0
    assert score(lambda text="": text == "yes").value == 1.0


def test_settings_are_passed_by_name() -> None:
    assert score(lambda answer, bonus: bonus, {"bonus": 0.25}).value == 0.25
    assert score(lambda a, b, bonus=0.0: bonus, {"bonus": 0.25}).value == 0.25
    assert score(lambda answer, **rest: rest["bonus"], {"bonus": 0.25}).value == 0.25


def test_a_function_may_be_async() -> None:
    async def patient(answer: str) -> float:
        await asyncio.sleep(0)
        return 0.5

    assert score(patient).value == 0.5


@pytest.mark.parametrize(
    ("result", "value"), [(True, 1.0), (False, 0.0), (1, 1.0), (0.3, 0.3), (Fraction(1, 4), 0.25)]
)
def test_a_truth_value_or_a_number_is_a_score(result: object, value: float) -> None:
    assert score(lambda answer: result).value == value


def test_a_mapping_carries_an_explanation_and_details() -> None:
    verdict = score(lambda answer: {"score": 0.5, "explanation": "half", "seen": (1, 2)})
    assert (verdict.value, verdict.explanation) == (0.5, "half")
    assert verdict.details == {"seen": [1, 2]}
    assert score(lambda answer: {"value": True}).value == 1.0


def test_a_score_is_taken_as_it_is() -> None:
    mine = Score(scorer="mine", value=0.5, explanation="half")
    assert score(lambda answer: mine) == mine


@pytest.mark.parametrize(
    "result", [None, "1.0", [1], {"explanation": "no score"}, {"score": "high"}, object()]
)
def test_anything_else_is_a_fault_that_shows_what_came_back(result: object) -> None:
    with pytest.raises(ScorerError, match=r"returned .*; return a bool"):
        score(lambda answer: result)


@pytest.mark.parametrize("detail", [object(), float("nan"), {1, 2}])
def test_details_that_cannot_be_stored_are_a_fault(detail: object) -> None:
    with pytest.raises(ScorerError, match="not plain data"):
        score(lambda answer: {"score": 1, "detail": detail})


@pytest.mark.parametrize(
    "function",
    [lambda a, b, c: 1, lambda answer, other: 1, lambda *, other: 1, lambda: 1],
    ids=["three", "mixed", "keyword", "none"],
)
def test_a_function_that_cannot_be_called_is_refused_when_it_is_built(
    function: Callable[..., object],
) -> None:
    with pytest.raises(UsageError, match="there are: answer, target, task, outcome"):
        FunctionScorer(function)


@pytest.mark.parametrize("settings", [{"bonus": 1}, {"answer": "x"}])
def test_a_setting_the_function_does_not_take_is_refused(settings: dict[str, Json]) -> None:
    with pytest.raises(UsageError, match="has no setting"):
        FunctionScorer(lambda answer: 1, settings=settings)


def test_an_error_in_the_function_is_left_to_the_engine() -> None:
    with pytest.raises(ZeroDivisionError):
        score(lambda answer: 1 / 0)
