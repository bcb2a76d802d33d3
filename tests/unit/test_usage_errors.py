"""A mistake knows its place, its task and its parts: nothing reads them out of its message."""

import pytest

from bakeoff._lib.redact import Redactor
from bakeoff.app.known_secrets import redacted_errors
from bakeoff.core.candidate import ModelSpec, Origin
from bakeoff.core.errors import UsageError
from bakeoff.core.task import Message, Task
from bakeoff.formats.text.locate import about, about_task
from bakeoff.formats.text.problems import Problems, error_of

MODEL = ModelSpec(provider="", name="m", origin=Origin(where="run.toml:3"))
TASK = Task(id="a", messages=(Message(role="user", content="?"),))


def test_a_line_whose_number_begins_with_that_of_another_is_another_place() -> None:
    with pytest.raises(UsageError) as raised, about(MODEL):
        raise UsageError("run.toml:34: no such key", location="run.toml:34")
    assert str(raised.value) == "run.toml:3: run.toml:34: no such key"
    assert raised.value.location == "run.toml:3"


def test_the_place_of_a_mistake_is_told_once() -> None:
    with pytest.raises(UsageError) as raised, about(MODEL), about(MODEL):
        raise UsageError("no such model")
    assert str(raised.value) == "run.toml:3: no such model"


def test_a_message_that_mentions_a_task_is_not_yet_about_it() -> None:
    with pytest.raises(UsageError) as raised, about_task(TASK):
        raise UsageError("it repeats task 'a' of another suite")
    assert str(raised.value) == "task 'a': it repeats task 'a' of another suite"


def test_the_task_of_a_mistake_is_told_once() -> None:
    with pytest.raises(UsageError) as raised, about_task(TASK):
        raise UsageError("task 'a': no `expected`", task="a")
    assert str(raised.value) == "task 'a': no `expected`"


def test_mistakes_that_are_not_shown_are_still_counted_when_they_are_gathered_again() -> None:
    problems = Problems()
    for first in ("a", "b"):
        with problems.gathered():
            raise error_of([f"{first}{number}" for number in range(15 if first == "b" else 30)])
    with pytest.raises(UsageError) as raised:
        problems.raise_any()
    assert len(raised.value.problems) == 45
    assert str(raised.value).endswith("a19\n... and 25 more")


def test_a_mistake_of_two_lines_is_one_mistake() -> None:
    with pytest.raises(UsageError) as raised, about(MODEL):
        raise UsageError("no such model;\nthere are: none")
    assert raised.value.problems == ("run.toml:3: no such model;\nthere are: none",)


def test_a_secret_is_taken_out_of_each_part_of_a_mistake() -> None:
    with pytest.raises(UsageError) as raised, redacted_errors(Redactor(["sk-123456789"])):
        raise error_of(["key sk-123456789", "no key"], location="run.toml:3")
    assert "sk-123456789" not in repr((str(raised.value), raised.value.problems))
    assert raised.value.problems[1] == "no key"
    assert raised.value.location == "run.toml:3"
