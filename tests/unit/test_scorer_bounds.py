"""Bounds on latency, cost and length: what is unknown is a fault, never a zero."""

import asyncio
from typing import Any

import pytest

from bakeoff.core.errors import ScorerError, UsageError
from bakeoff.core.outcome import UNKNOWN_USAGE, Outcome, Spent, Usage
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.task import Message, Task
from bakeoff.models.adapters.function import FunctionModel
from bakeoff.scorers.bounds import CostBound, LatencyBound, LengthBound

_TASK = Task(id="t", messages=(Message(role="user", content="?"),))


def _score(scorer: Any, answer: str = "", spent: Spent | None = None) -> Score:
    context = Context(model=FunctionModel(lambda _: ""), spent=spent)
    verdict: Score = asyncio.run(scorer.score(_TASK, Outcome(answer=answer), context))
    return verdict


def test_an_answer_in_time_is_1_and_a_late_one_says_by_how_much() -> None:
    assert _score(LatencyBound(max_s=2), spent=Spent(model_s=2.0)).value == 1
    late = _score(LatencyBound(max_s=2), spent=Spent(model_s=2.5))
    assert (late.value, late.explanation) == (0, "it took 2.50 s, and may take 2 s")
    first = _score(LatencyBound(first_token_max_s=0.1), spent=Spent(model_s=9.0, first_token_s=0.3))
    assert (first.value, first.details["first_token_s"]) == (0, 0.3)


def test_length_counts_words_characters_or_reported_tokens() -> None:
    assert _score(LengthBound(max=3), "one two three").value == 1
    assert _score(LengthBound(min=4), "one two three").explanation == (
        "3 words, and at least 4 were expected"
    )
    assert _score(LengthBound(unit="characters", max=3), "four").value == 0
    spent = Spent(usage=Usage(output_tokens=7))
    assert _score(LengthBound(unit="tokens", min=7, max=7), "x", spent).value == 1


@pytest.mark.parametrize(
    ("scorer", "spent", "why"),
    [
        (CostBound(max_usd=1), Spent(usage=UNKNOWN_USAGE), "give the model its prices"),
        (LengthBound(unit="tokens", max=1), Spent(usage=UNKNOWN_USAGE), "reports no output tokens"),
        (LatencyBound(first_token_max_s=1), Spent(model_s=1), '"stream": true'),
        (CostBound(max_usd=1), None, "not known"),
    ],
)
def test_what_is_not_known_is_a_fault_and_no_verdict(
    scorer: Any, spent: Spent | None, why: str
) -> None:
    with pytest.raises(ScorerError, match=why):
        _score(scorer, spent=spent)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (LatencyBound, "set `max_s`"),
        (lambda: LatencyBound(max_s=0), "over 0"),
        (lambda: CostBound(max_usd=float("nan")), "over 0"),
        (LengthBound, "set `min`, `max` or both"),
        (lambda: LengthBound(min=3, max=2), "not below `min`"),
    ],
)
def test_a_bound_that_bounds_nothing_is_refused(make: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        make()
