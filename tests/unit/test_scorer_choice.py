"""choice: which option an answer names, and when it names none."""

import asyncio
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
from bakeoff.scorers.choice import Choice

FIVE_MB = 5_000_000


class Silent:
    async def complete(self, request: Request) -> Completion:
        raise AssertionError("this scorer asks no model")


def task(target: Json = None) -> Task:
    return Task(id="t1", messages=(Message(role="user", content="?"),), target=target)


def score(answer: str, target: Json, scorer: Choice | None = None) -> Score:
    scorer = scorer or Choice()
    return asyncio.run(scorer.score(task(target), Outcome(answer=answer), Context(model=Silent())))


@pytest.mark.parametrize(
    "answer",
    [
        "B",
        "b",
        "**B**",
        "(b)",
        "B)",
        "B.",
        "`B`",
        "The answer is (B).",
        "The answer is B because of x",
        "The answer to question 1 is B",
        "The correct option is **B**",
        "the answer is 'b'",
        "Answer: B",
        "**Answer:** B",
        "**Answer**: (B) Paris",
        "**Answer: B**",
        "ANSWER: B",
        "Answer:\n\nB",
        "Final answer: b",
        "My answer is: B\r\n",
        "Answer: **B) Paris**",
        "I choose B",
        "I'd go with option B!",
        "B is the correct answer",
        "Option A is incorrect. Option B is correct.",
        "The answer is B and A is wrong",
        r"$\boxed{B}$",
        r"$\boxed{\text{B}}$",
        "B) Paris",
        "(b) Paris",
        "B. Paris",
        "**B. Paris**",
        "B because of a rule",
        "B - Paris",
        "I'd say (B) here, as a guess.",
        "It must be option B.",
        "Suppose A is correct. No: so the answer is B.",
        "Answer: A\nWait.\nAnswer: B",
        "Answer: b, a fact which is known",
        "A) no\nB) yes\n\nAnswer: B",
    ],
)
def test_an_option_is_found_in_the_ways_people_name_it(answer: str) -> None:
    assert Choice().chosen(answer) == ["B"]


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "a dog",
        "A good question.",
        "The answer is a bit complicated",
        "Answer: A dog is a mammal",
        "I choose a good one",
        "Answer: A *good* example",
        "f(a) = 2",
        "A's",
        "A-level",
        "Is it? I think so, a lot.",
        "vitamin C is good",
        "The answer is not B",
        "The answer isn't B",
        "The answer is neither",
        "a.k.a. something",
        "E",
    ],
)
def test_no_option_is_guessed_from_words(answer: str) -> None:
    assert Choice().chosen(answer) == []


@pytest.mark.parametrize(
    "answer",
    [
        "A",
        "a",
        "Answer: A",
        "Answer: A.",
        "the answer is a.",
        "The answer is A because x",
        "Answer: A (Paris)",
        "A. Paris",
        "a) Paris",
        "A is correct",
    ],
)
def test_the_letter_a_is_found_where_it_is_set_apart(answer: str) -> None:
    assert Choice().chosen(answer) == ["A"]


@pytest.mark.parametrize(
    "answer", ["Answer: A or B", "Answer: A/B", "A) Paris\nB) Rome", "A\nB", "(A) or (B)"]
)
def test_two_options_are_ambiguous_and_the_score_says_so(answer: str) -> None:
    verdict = score(answer, "A")
    assert verdict.value == 0.0
    assert verdict.explanation == "ambiguous: the answer names A and B"


def test_the_chosen_option_is_compared_with_the_target() -> None:
    assert score("Answer: c", "C").value == 1.0
    assert score("Answer: C", "c").value == 1.0
    wrong = score("Answer: D", "C")
    assert (wrong.value, wrong.explanation) == (0.0, "expected C, got D")
    assert score("Hm.", "C").explanation == "the answer chooses none of A, B, C, D"


def test_options_may_be_numbers_or_words() -> None:
    numbers = Choice(options=["1", "2", "10"])
    assert score("Answer: 10", 10, numbers).value == 1.0
    assert numbers.chosen("(2)") == ["2"]
    words = Choice(options=["yes", "no"])
    assert words.chosen("Yes, because it is.") == ["yes"]
    assert words.chosen("Answer: no") == ["no"]
    assert words.chosen("There is no way to know") == []


@given(st.sampled_from("ABCD"), st.sampled_from(["Answer: {}", "({})", "{}.", "The answer is {}."]))
def test_every_option_is_found_alike(option: str, form: str) -> None:
    assert Choice().chosen(form.format(option)) == [option]


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert set(Choice().chosen(text)) <= set("ABCD")


@pytest.mark.parametrize("options", [[], ["A"], ["A", "a"], ["A", ""], ["A", "New York"]])
def test_options_that_cannot_be_told_apart_are_refused(options: list[str]) -> None:
    with pytest.raises(UsageError, match="scorer 'choice'"):
        Choice(options=options)


@pytest.mark.parametrize("target", [None, "E", "Paris", 1])
def test_a_task_whose_target_is_no_option_is_refused_before_the_run(target: Json) -> None:
    with pytest.raises(UsageError, match=r"task 't1'.*'choice'"):
        Choice().check(task(target))


@pytest.mark.parametrize(
    "unit", ["A", "A ", "A\n", "(", "answer is ", "answer to ", "Answer: A\n", "**", "\n", "A, B, "]
)
def test_five_megabytes_take_less_than_a_second(unit: str) -> None:
    answer = unit * (FIVE_MB // len(unit))
    began = time.process_time()
    score(answer, "D")
    assert time.process_time() - began < 1
