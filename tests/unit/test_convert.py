"""Plain data into typed values, and how a mistake is told."""

import msgspec
import pytest

from bakeoff.config.convert import convert, dotted
from bakeoff.config.run_file import RunFile
from bakeoff.core.errors import UsageError


def _error(data: object, kind: type = RunFile) -> str:
    asked: list[object] = []

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
        ({"rollouts": "3"}, "run.toml:12: key 'rollouts': expected `int`, got `str` @ rollouts"),
        ({"rollouts": 0}, "run.toml:12: key 'rollouts': expected `int` >= 1 @ rollouts"),
        ({"limits": {"time_s": 0}}, "key 'limits.time_s': expected `float` > 0.0"),
        ({"pass_threshold": 2}, "key 'pass_threshold': expected `float` <= 1.0"),
        (
            {"models": [{"model": "a", "headers": {"X-A": 1}}]},
            "key 'models[0].headers.X-A': expected `str`, got `int` @ models[0].headers.X-A",
        ),
        ({"models": [{"name": "a"}]}, "key 'models[0]': object missing required field `model`"),
        ([], "run.toml:12: expected `object`, got `array`"),
    ],
)
def test_a_mistake_is_told_with_file_line_key_and_the_nearest_right_key(
    data: object, message: str
) -> None:
    assert message in _error(data)


def test_without_a_line_the_file_is_named_alone() -> None:
    with pytest.raises(UsageError, match=r"^suite\.json: key 'rollouts'"):
        convert({"rollouts": "x"}, RunFile, source="suite.json", line_of=lambda _: None)


def test_which_of_several_keys_is_wrong_is_not_guessed() -> None:
    class Table(msgspec.Struct):
        words: dict[str, str]

    assert "key 'words': expected `str`, got `int`" in _error({"words": {"a": "b", "c": 1}}, Table)


def test_a_path_is_written_as_a_person_writes_it() -> None:
    assert dotted(("models", 0, "headers", "X-A")) == "models[0].headers.X-A"
    assert dotted(()) == ""
