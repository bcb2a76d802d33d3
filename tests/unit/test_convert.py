"""Plain data into typed values, and how a mistake is told."""

import re
from typing import Annotated, Any, Literal

import msgspec
import pytest

from bakeoff.core.errors import UsageError
from bakeoff.formats.run_file import RunFile
from bakeoff.formats.text.convert import convert, dotted


def _error(data: Any, kind: type = RunFile) -> str:
    asked: list[tuple[str | int, ...]] = []

    def line_of(path: tuple[str | int, ...]) -> int:
        asked.append(path)
        return 12

    with pytest.raises(UsageError) as caught:
        convert(data, kind, source="run.toml", line_of=line_of)
    return f"{caught.value} @ {dotted(asked[0])}"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"rolouts": 1}, "run.toml:12: unknown key 'rolouts'; did you mean 'rollouts'? @ rolouts"),
        (
            {"limits": {"timeout": 1}},
            "run.toml:12: unknown key 'timeout'; did you mean 'time_s'? @ limits.timeout",
        ),
        (
            {"limits": {"zzz": 1}},
            "run.toml:12: unknown key 'zzz'; there are: attempts, cost_usd, interventions, output_tokens, requests,",
        ),
        (
            {"models": ["a", {"model": "b", "base-url": "x"}]},
            "run.toml:12: unknown key 'base-url'; did you mean 'base_url'? @ models[1].base-url",
        ),
        (
            {"roles": {"judge": {"model": "a"}, "user": {"model": "b", "nam": "c"}}},
            "run.toml:12: unknown key 'nam'; did you mean 'name'? @ roles.user.nam",
        ),
        (
            {"tasks": [{"id": "a", "scorers": [{"scorer": "x", "wieght": 2}]}]},
            "unknown key 'wieght'; did you mean 'weight'? @ tasks[0].scorers[0].wieght",
        ),
        (
            {"rollouts": "3"},
            "run.toml:12: key 'rollouts': a whole number is expected, not a text: leave out the quotes @ rollouts",
        ),
        (
            {"rollouts": 0},
            "run.toml:12: key 'rollouts': a whole number of 1 or more is expected, not 0 @ rollouts",
        ),
        ({"limits": {"time_s": 0}}, "key 'limits.time_s': a number over 0 is expected, not 0"),
        ({"pass_threshold": 2}, "key 'pass_threshold': a number of at most 1 is expected, not 2"),
        (
            {"models": [{"model": "a", "headers": {"X-A": 1}}]},
            "key 'models[0].headers.X-A': a text is expected, not 1: write it in quotes @ models[0].headers.X-A",
        ),
        ({"models": [{"name": "a"}]}, "key 'models[0]': `model` is missing"),
        ([], "run.toml:12: a table of keys and values is expected, not a list"),
        ({"rollouts": 1.5}, "key 'rollouts': a whole number is expected, not 1.5"),
        (
            {"warm_up": "true"},
            "'warm_up': true or false is expected, not a text: leave out the quotes",
        ),
        ({"warm_up": 1}, "key 'warm_up': true or false is expected, not 1 @"),
        ({"suites": "a.json"}, "key 'suites': a list is expected, not a text: write it in [ ]"),
        ({"limits": 5}, "key 'limits': a table of keys and values is expected, not 5 @"),
        ({"name": None, "suites": None}, "key 'suites': a list is expected, not null"),
        (
            {"models": [7]},
            "'models[0]': a text or a table of keys and values is expected, not 7: write it in quotes",
        ),
    ],
)
def test_a_mistake_is_told_with_file_line_key_and_the_nearest_right_key(
    data: object, message: str
) -> None:
    assert message in _error(data)


def test_without_a_line_the_file_is_named_alone() -> None:
    with pytest.raises(UsageError, match=r"^suite\.json: key 'rollouts'"):
        convert({"rollouts": "x"}, RunFile, source="suite.json", line_of=lambda _: None)


class _Words(msgspec.Struct):
    words: dict[str, str]
    tables: dict[str, dict[str, int]] = {}


def test_which_of_several_keys_is_wrong_is_found_out() -> None:
    words = {**{f"w{n}": "b" for n in range(50)}, "c": 1, **{f"x{n}": "b" for n in range(50)}}
    assert "key 'words.c': a text is expected, not 1: write it in quotes @" in _error(
        {"words": words}, _Words
    )
    nested = {"a": {"x": 1}, "b": {"x": 1, "y": "no", "z": 1}}
    assert "key 'tables.b.y': a whole number is expected" in _error(
        {"words": {}, "tables": nested}, _Words
    )


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        ({"rolouts": 1, "rollouts": "3", "limits": {"time_s": 0, "requests": -1}},
         ["rollouts", "limits.time_s", "limits.requests", "rolouts"]),
        ({"tasks": [{"id": 5}, {"id": "a", "prompt": 1, "expectd": 2}, {"prompt": "x"}, {"id": "b"}, 7]},
         ["tasks[0].id", "tasks[1].prompt", "expectd", "tasks[2]", "tasks[4]"]),
        ({"roles": {"judge": {"model": 1}, "user": {"nam": "c"}, "x": {"model": "y"}}},
         ["roles.judge.model", "nam", "roles.user"]),
        ({"models": [], "rollouts": 0, "suites": "a"}, ["rollouts", "suites"]),
    ],
)  # fmt: skip
def test_all_mistakes_are_told_each_with_its_key(data: Any, keys: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        convert(data, RunFile, source="run.toml", line_of=lambda _: None)
    lines = str(caught.value).split("\n")
    assert sorted(re.search(r"key '(.*?)'", line)[1] for line in lines) == sorted(keys)
    assert all(line.startswith("run.toml: ") for line in lines)


class _Numbers(msgspec.Struct, kw_only=True):
    numbers: Annotated[list[int], msgspec.Meta(min_length=1)]
    name: str


def test_a_mistake_that_only_follows_from_another_is_not_told() -> None:
    with pytest.raises(UsageError) as caught:
        convert({"numbers": ["x"], "name": 1}, _Numbers, source="f", line_of=lambda _: None)
    assert str(caught.value).split("\n") == [
        "f: key 'numbers[0]': a whole number is expected, not a text",
        "f: key 'name': a text is expected, not 1: write it in quotes",
    ]


def test_of_very_many_mistakes_some_are_told() -> None:
    tasks = [{"id": number} for number in range(500)]
    with pytest.raises(UsageError) as caught:
        convert({"tasks": tasks}, RunFile, source="f", line_of=lambda _: None)
    lines = str(caught.value).split("\n")
    assert len(lines) == 21
    assert lines[-1].startswith("... and ")


class _Choosy(msgspec.Struct):
    """A table with what the other formats have and a run file has not."""

    id: str
    runner: Literal["pytest", "script"] = "pytest"
    root: Annotated[str, msgspec.Meta(pattern="^/")] = "/"
    name: Annotated[str, msgspec.Meta(min_length=1)] = "x"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"id": "a", "runner": "pytset"},
            "'runner': 'pytset' is not allowed here; did you mean 'pytest'?",
        ),
        ({"id": "a", "runner": "x"}, "'x' is not allowed here; there are: pytest, script"),
        ({"id": "a", "root": "b"}, "key 'root': a text is expected that begins with '/'"),
        ({"id": "a", "name": ""}, "key 'name': a text is expected that is not empty"),
        ({"name": "a"}, "run.toml:12: `id` is missing @"),
        ({"idd": "a"}, "run.toml:12: `id` is missing; is 'idd' a misspelling of it?"),
    ],
)
def test_a_word_that_is_not_one_of_the_few_is_told_with_those(data: object, message: str) -> None:
    assert message in _error(data, _Choosy)


def test_a_text_that_may_be_a_secret_is_not_shown() -> None:
    assert "hush" not in _error({"models": [{"model": "a", "headers": "Bearer hush"}]})


def test_a_path_is_written_as_a_person_writes_it() -> None:
    assert dotted(("models", 0, "headers", "X-A")) == "models[0].headers.X-A"
    assert dotted(()) == ""
