"""exact, includes and pattern: what counts as the same text."""

import asyncio
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.core.errors import ScorerError, UsageError
from bakeoff.core.outcome import Completion, Outcome, Request
from bakeoff.core.ports import Context, Scorer
from bakeoff.core.record import Score
from bakeoff.core.task import Message, Task
from bakeoff.core.values import Json
from bakeoff.scorers.text import Exact, Includes, Pattern

FIVE_MB = 5_000_000


class Silent:
    async def complete(self, request: Request) -> Completion:
        raise AssertionError("this scorer asks no model")


def task(target: Json = None) -> Task:
    return Task(id="t1", messages=(Message(role="user", content="?"),), target=target)


def score(scorer: Scorer, answer: str, target: Json = None) -> Score:
    context = Context(model=Silent())
    return asyncio.run(scorer.score(task(target), Outcome(answer=answer), context))


def value(scorer: Scorer, answer: str, target: Json = None) -> float:
    return score(scorer, answer, target).value


@pytest.mark.parametrize(
    ("answer", "target"),
    [
        ("  Paris\n", "Paris"),
        ("New \n  York", "New York"),
        ("ﬁne", "fine"),
        ("e\u0301te\u0301", "été"),
        ("42", 42),
        ("0.5", 0.5),
        ("true", True),
        ("b", ["a", "b"]),
        ("", ""),
    ],
)
def test_an_answer_is_exact_whatever_its_spacing_and_code_points(answer: str, target: Json) -> None:
    assert value(Exact(), answer, target) == 1.0


@pytest.mark.parametrize(
    ("answer", "target"), [("paris", "Paris"), ("Paris.", "Paris"), ("", "x"), ("4 2", "42")]
)
def test_an_answer_is_not_exact_by_default_with_other_case_or_marks(
    answer: str, target: Json
) -> None:
    assert value(Exact(), answer, target) == 0.0


def test_case_and_punctuation_can_be_ignored() -> None:
    lenient = Exact(ignore_case=True, ignore_punctuation=True)
    assert value(lenient, "“PARIS”, France!", "paris france") == 1.0
    assert value(lenient, "STRASSE", "straße") == 1.0


def test_a_wrong_answer_is_explained_with_what_was_expected_and_what_came() -> None:
    explanation = score(Exact(), "Rome", ["Paris", "Lutetia"]).explanation
    assert explanation == "expected 'Paris' or 'Lutetia', got 'Rome'"


@given(st.text(max_size=40))
def test_every_text_is_exactly_itself(text: str) -> None:
    assert value(Exact(), text, text) == 1.0


@given(st.text(max_size=30), st.text(max_size=30), st.text(min_size=1, max_size=10))
def test_what_is_wrapped_around_a_target_does_not_hide_it(
    before: str, after: str, target: str
) -> None:
    # ASCII only: a combining mark may join the target and make it another word
    plain = target.encode("ascii", "ignore").decode().strip()
    if plain:
        wrapped = f"{before.encode('ascii', 'ignore').decode()}{plain} {after}"
        assert value(Includes(), wrapped, plain) == 1.0


@pytest.mark.parametrize("answer", ["It is 3.", "3", "(3)", "x=3, so", "3%", "1-3", "GPT-3", "$3"])
def test_a_number_is_included_where_it_stands_alone(answer: str) -> None:
    assert value(Includes(), answer, 3) == 1.0


@pytest.mark.parametrize("answer", ["13", "31", "3.5", "0.3", "x3", "-3", "−3", "3,000", "1,3"])
def test_a_number_is_not_included_in_another_number(answer: str) -> None:
    assert value(Includes(), answer, 3) == 0.0


def test_any_or_all_of_a_list_must_be_included() -> None:
    answer = "Red and GREEN."
    assert value(Includes(), answer, ["green", "blue"]) == 1.0
    verdict = score(Includes(all=True), answer, ["green", "blue"])
    assert (verdict.value, verdict.details["missing"]) == (0.0, ["blue"])
    assert value(Includes(all=True), answer, ["green", "red"]) == 1.0
    assert value(Includes(ignore_case=False), answer, "green") == 0.0


def test_whole_words_are_not_parts_of_words() -> None:
    assert value(Includes(whole_words=True), "concatenate", "cat") == 0.0
    assert value(Includes(whole_words=True), "the cat.", "cat") == 1.0
    assert value(Includes(whole_words=True), "in C++, say", "C++") == 1.0
    assert value(Includes(), "concatenate", "cat") == 1.0


def test_a_pattern_is_found_on_any_line() -> None:
    assert value(Pattern(pattern=r"^done$"), "well\ndone\n") == 1.0
    assert value(Pattern(pattern=r"^done$", multiline=False), "well\ndone\n") == 0.0
    assert value(Pattern(pattern="DONE", ignore_case=True), "done") == 1.0


def test_the_last_match_of_a_group_is_compared() -> None:
    pattern = Pattern(pattern=r"answer:\s*(\w+)", group=1)
    assert value(pattern, "answer: A, no, answer: B", "B") == 1.0
    assert value(pattern, "answer: B, no, answer: A", "B") == 0.0
    assert value(pattern, "nothing", "B") == 0.0
    named = Pattern(pattern=r"n=(?P<n> *\d+ *)|stop", group="n", expected=[7, 8])
    assert value(named, "n= 7 stop") == 1.0


@pytest.mark.parametrize("text", ["a" * 60 + "b", "a" * 5000 + "b"])
def test_a_pattern_that_explodes_is_a_fault_and_not_a_hang(text: str) -> None:
    with pytest.raises(ScorerError, match="took more than 2 s"):
        score(Pattern(pattern=r"(?:a|a|aa)+$"), text)


@pytest.mark.parametrize(
    "settings",
    [
        {"pattern": "("},
        {"pattern": "a", "group": 1},
        {"pattern": "(?P<x>a)", "group": "y"},
        {"pattern": "a", "expected": "a"},
        {"pattern": "(" * 5000 + ")" * 5000},
    ],
)
def test_a_pattern_that_cannot_work_is_refused_when_it_is_built(settings: dict[str, Json]) -> None:
    with pytest.raises(UsageError, match="scorer 'pattern'"):
        msgspec.convert(settings, Pattern)


@pytest.mark.parametrize(
    "scorer", [Exact(), Includes(), Pattern(pattern="(a)", group=1)], ids=lambda s: type(s).__name__
)
@pytest.mark.parametrize("target", [None, [], {"a": 1}, [None], [["x"]]])
def test_a_task_without_a_usable_target_is_refused_before_the_run(
    scorer: Exact | Includes | Pattern, target: Json
) -> None:
    with pytest.raises(UsageError, match="task 't1'"):
        scorer.check(task(target))


def test_a_blank_target_cannot_be_included() -> None:
    with pytest.raises(UsageError, match="blank"):
        Includes().check(task(" "))
    Exact().check(task(""))


def test_a_pattern_without_a_group_needs_no_target() -> None:
    Pattern(pattern="a").check(task())
    Pattern(pattern="(a)", group=1, expected="a").check(task())


@pytest.mark.parametrize(
    "answer",
    [
        "a" * FIVE_MB,
        "3" * FIVE_MB,
        "é." * (FIVE_MB // 3),
        "a" + "\u0315\u0300" * (FIVE_MB // 4),
        "\ufdfa" * (FIVE_MB // 3),
        " " * FIVE_MB,
    ],
    ids=["letters", "digits", "accents", "marks", "ligatures", "blanks"],
)
@pytest.mark.parametrize(
    "scorer",
    [Exact(ignore_case=True, ignore_punctuation=True), Includes(), Includes(whole_words=True)],
    ids=["exact", "includes", "whole_words"],
)
def test_five_megabytes_take_less_than_a_second(scorer: Scorer, answer: str) -> None:
    began = time.process_time()
    score(scorer, answer, ["wanted", 7])
    assert time.process_time() - began < 1
