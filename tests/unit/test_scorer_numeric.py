"""numeric: which numbers are read, and what is close enough."""

import asyncio
import time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Completion, Outcome, Request
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.task import Message, Task
from bakeoff.core.values import Json
from bakeoff.scorers.numeric import Numeric, first_number, last_number

FIVE_MB = 5_000_000


class Silent:
    async def complete(self, request: Request) -> Completion:
        raise AssertionError("this scorer asks no model")


def task(target: Json = None) -> Task:
    return Task(id="t1", messages=(Message(role="user", content="?"),), target=target)


def score(scorer: Numeric, answer: str, target: Json) -> Score:
    return asyncio.run(scorer.score(task(target), Outcome(answer=answer), Context(model=Silent())))


def value(answer: str, target: Json, **settings: float) -> float:
    return score(Numeric(**settings), answer, target).value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("Answer: 42.", "42"),
        ("1,234.5", "1234.5"),
        ("12,345,678 people", "12345678"),
        ("-7", "-7"),
        ("it is −7 °C", "-7"),
        ("GPT-4", "4"),
        ("from 1-3", "3"),
        ("- 5 apples", "5"),
        ("6.02e23", "6.02E23"),
        ("6.02 × 10^23", "6.02E23"),
        (r"$3\times 10^{-8}$", "3E-8"),
        ("3×10⁻⁸ m", "3E-8"),
        ("3/4", "0.75"),
        ("x = -3/4.", "-0.75"),
        ("-$5.50", "-5.5"),
        ("$1,000", "1000"),
        ("€-5", "-5"),
        ("45%", "45"),
        ("**42**", "42"),
        ("_42_", "42"),
        (r"\boxed{42}", "42"),
        ("...42", "42"),
        ("about .5", "0.5"),
        ("1,2,3", "3"),
        ("5km", "5"),
        ("on 3/4/2024", "2024"),
        ("version 1.2.3", "1.2"),
    ],
)
def test_the_last_number_is_read_as_people_write_numbers(text: str, number: str) -> None:
    found = last_number(text)
    assert found is not None
    assert found.value == Decimal(number)


@pytest.mark.parametrize("text", ["", "none", "x2", "H2O", "3/0", "1e99999999999999999999"])
def test_no_number_is_read_where_there_is_none(text: str) -> None:
    assert last_number(text) is None
    assert first_number(text) is None
    assert score(Numeric(), text, 2).explanation == "no number in the answer"


@given(st.integers())
def test_every_integer_is_read_back_with_and_without_separators(number: int) -> None:
    assert value(f"So it is {number}.", number) == 1.0
    assert value(f"So it is {number:,}.", number) == 1.0
    assert value(f"{number} and more", number) == 1.0


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_is_read_back(number: float) -> None:
    assert value(f"= {number!r}", number) == 1.0
    assert value(f"= {number!r}", repr(number)) == 1.0


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert value(text, 1) in {0.0, 1.0}


def test_take_decides_which_number_counts() -> None:
    answer = "2 plus 3 is 5"
    assert score(Numeric(take="last"), answer, 5).value == 1.0
    assert score(Numeric(take="first"), answer, 2).value == 1.0
    assert score(Numeric(take="first"), answer, 5).value == 0.0


def test_without_a_tolerance_only_equal_numbers_match() -> None:
    assert value("1.0", 1) == 1.0
    assert value("0.30000000000000004", 0.3) == 0.0
    assert value("12345678901234567891", 12345678901234567890) == 0.0
    assert value(str(10**400), 10**400) == 1.0


def test_a_tolerance_includes_its_bound() -> None:
    assert value("0.3", 0.2, tolerance=0.1) == 1.0
    assert value("0.3001", 0.2, tolerance=0.1) == 0.0
    assert value("-99", -100, relative=0.01) == 1.0
    assert value("-98.9", -100, relative=0.01) == 0.0
    assert value("101", 100, relative=0.001, tolerance=1) == 1.0
    assert value("1e999999", 1, tolerance=5) == 0.0


def test_a_percent_sign_on_one_side_has_two_readings() -> None:
    assert value("45%", 45) == 1.0
    assert value("45 %", 0.45) == 1.0
    assert value("0.45", "45%") == 1.0
    assert value("45", "45%") == 1.0
    assert value("0.45%", "45%") == 0.0


def test_a_target_may_be_a_numeric_text() -> None:
    assert value("0.75", "3/4") == 1.0
    assert value("1234", "1,234") == 1.0


@pytest.mark.parametrize("target", [None, "x", "12 apples", True, [1], float("nan"), {}])
def test_a_task_whose_target_is_no_number_is_refused_before_the_run(target: Json) -> None:
    with pytest.raises(UsageError, match="task 't1': scorer 'numeric' needs a number"):
        Numeric().check(task(target))


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_a_tolerance_that_makes_no_sense_is_refused(wrong: float) -> None:
    with pytest.raises(UsageError, match="use 0 or more"):
        Numeric(tolerance=wrong)
    with pytest.raises(UsageError, match="use 0 or more"):
        Numeric(relative=wrong)


@pytest.mark.parametrize("unit", ["1", "1 ", "1,", "1.", "1/", "-", "$-", " ", "1e", ",111", "\n1"])
@pytest.mark.parametrize("scorer", [Numeric(), Numeric(take="first")], ids=["last", "first"])
def test_five_megabytes_take_less_than_a_second(scorer: Numeric, unit: str) -> None:
    answer = unit * (FIVE_MB // len(unit))
    began = time.process_time()
    score(scorer, answer, 7)
    assert time.process_time() - began < 1
