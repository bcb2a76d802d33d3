"""edit-similarity and token-f1 against their definitions."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.task import Message, Task
from bakeoff.core.values import Json
from bakeoff.models.adapters.function import FunctionModel
from bakeoff.scorers.similarity import EditSimilarity, TokenF1, edit_distance, edit_similarity


def _task(target: Json) -> Task:
    return Task(id="t", messages=(Message(role="user", content="?"),), target=target)


def _value(scorer: EditSimilarity | TokenF1, answer: str, target: Json) -> float:
    context = Context(model=FunctionModel(lambda _: ""))
    return asyncio.run(scorer.score(_task(target), Outcome(answer=answer), context)).value


def _by_the_table(a: str, b: str) -> int:
    """Return the distance by the textbook's table."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        above, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (x != y))
    return row[-1]


@given(st.text("abc", max_size=90), st.text("abc", max_size=90))
def test_the_distance_is_that_of_the_textbook(a: str, b: str) -> None:
    assert edit_distance(a, b) == _by_the_table(a, b)


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "", 3), ("", "", 0), ("flaw", "lawn", 2)],
)
def test_known_distances(a: str, b: str, distance: int) -> None:
    assert edit_distance(a, b) == distance


def test_the_similarity_is_one_minus_the_distance_by_the_longer_text() -> None:
    assert _value(EditSimilarity(), "kitten", "sitting") == pytest.approx(1 - 3 / 7)
    assert _value(EditSimilarity(), "  kitten\n", ["mitten", "kitten"]) == 1
    assert _value(EditSimilarity(), "KITTEN", "kitten") == 0
    assert _value(EditSimilarity(ignore_case=True), "KITTEN", "kitten") == 1


def test_an_answer_without_end_is_near_nothing_and_costs_little() -> None:
    def seconds(answer: str) -> float:
        began = time.perf_counter()
        assert edit_similarity(answer, "b" * 1_000) < 0.2
        return time.perf_counter() - began

    # what goes beyond twice the target and 10 000 characters is not compared at all
    assert seconds("a" * 5_000_000) < 20 * seconds("a" * 12_000)


def test_a_target_too_long_to_be_compared_is_refused_before_the_run() -> None:
    with pytest.raises(UsageError, match=r"20,001 characters.*20,000 at most; use 'token-f1'"):
        EditSimilarity().check(_task("x" * 20_001))


@pytest.mark.parametrize(
    ("answer", "target", "value"),
    [
        ("The cat sat.", "a cat sat", 1.0),
        ("cat cat", "cat", 2 / 3),
        ("It was Paris, France", "Paris", 2 * 1 / (4 + 1)),
        ("", "Paris", 0.0),
        ("dog", ["cat", "dog"], 1.0),
        ("the", "a", 1.0),  # both are nothing but articles
        (42, 42, 1.0),
    ],
)
def test_f1_is_that_of_squad(answer: object, target: Json, value: float) -> None:
    assert _value(TokenF1(), str(answer), target) == pytest.approx(value)
