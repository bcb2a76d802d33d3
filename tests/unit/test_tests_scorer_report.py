"""What is believed of a report of tests: signed lines only, and the worst of what they say."""

import hashlib
import hmac
import json
from typing import Any

import pytest

from bakeoff.scorers.testing.report import Report, read_report, split_signed

SECRET = b"known to two"


def line(said: object, secret: bytes = SECRET) -> str:
    text = json.dumps(said)
    seal = hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
    return f"bakeoff-report {seal} {text}"


def ran(name: str, how: str, phase: str = "call") -> dict[str, object]:
    return {"test": name, "phase": phase, "how": how, "text": ""}


def report(*records: Any, whole: bool = True, code: int = 0) -> Report:
    return read_report({"records": list(records), "whole": whole, "code": code})


def test_only_what_is_signed_is_heard_and_none_of_it_stays_in_the_output() -> None:
    forged = line({"whole": True}, b"guessed")
    output = f"before\n{line({'started': True})}\nin between\n{forged}\nbakeoff-report x\nafter"
    said, rest = split_signed(output, SECRET)
    assert said == [{"started": True}]
    assert rest == "before\nin between\nafter"


def test_a_line_that_was_changed_after_it_was_signed_is_not_heard() -> None:
    assert split_signed(line({"code": 1}).replace("1", "0"), SECRET)[0] == []


def test_names_that_cannot_be_stored_are_made_fit() -> None:
    (said,), _ = split_signed(line({"name": "\ud800"}), SECRET)
    assert said == {"name": "\N{REPLACEMENT CHARACTER}"}


@pytest.mark.parametrize(
    ("phases", "how"),
    [
        ([("passed", "setup"), ("passed", "call"), ("passed", "teardown")], "passed"),
        ([("passed", "setup"), ("passed", "call"), ("failed", "teardown")], "failed"),
        ([("failed", "setup"), ("passed", "teardown")], "failed"),
        ([("passed", "setup"), ("skipped", "call")], "skipped"),
        ([("passed", "setup")], "not run"),
        ([("failed", "call"), ("passed", "call")], "failed"),
        ([("passed", "call"), ("failed", "call")], "failed"),
        ([("rerun", "call"), ("passed", "call")], "failed"),
    ],
)
def test_a_test_has_passed_only_where_it_was_called_and_nothing_says_otherwise(
    phases: list[tuple[str, str]], how: str
) -> None:
    records = [ran("t", outcome, phase) for outcome, phase in phases]
    assert report({"collected": ["t"]}, *records).tests == {"t": how}


def test_a_test_that_was_collected_and_never_reached_has_not_passed() -> None:
    assert report({"collected": ["a", "b"]}, ran("a", "passed")).passed == ["a"]


def test_a_file_that_was_skipped_is_a_skipped_test_and_one_that_broke_is_not_collected() -> None:
    skipped = {"uncollected": "a.py", "how": "skipped", "text": "no such platform"}
    broken = {"uncollected": "b.py", "how": "failed", "text": "SyntaxError"}
    given = report(skipped, broken)
    assert given.tests == {"a.py": "skipped"}
    assert given.uncollected == {"b.py": "SyntaxError"}


@pytest.mark.parametrize(
    "name",
    [
        "tests/test_a.py::T::test_x[1]",
        "tests/test_a.py::T::test_x",
        "test_a.py::T::test_x",
        "test_x",
    ],
)
def test_a_test_is_named_in_full_or_without_file_and_parameters(name: str) -> None:
    given = report({"collected": ["tests/test_a.py::T::test_x[1]", "tests/test_a.py::test_y"]})
    assert given.named(name) == ["tests/test_a.py::T::test_x[1]"]
    assert given.named("x") == []


def test_the_tests_of_unittest_are_named_by_their_dots() -> None:
    given = report({"collected": ["tests.test_a.T.test_x", "tests.test_a.T.test_xy"]})
    assert given.named("test_x") == given.named("T.test_x") == ["tests.test_a.T.test_x"]
