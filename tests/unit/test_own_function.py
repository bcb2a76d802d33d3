"""Functions and classes of one's own: wrong settings come before the start, parameters arrive."""

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff._lib.redact import Redactor
from bakeoff.app.trial_parts import PartBuilder
from bakeoff.core.candidate import AgentSpec, ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.ports import close_model
from bakeoff.core.task import Message
from bakeoff.formats.text.entries import check_call


def plain(request: object, *, tone: str = "calm") -> str:
    return f"{request}{tone}"


def demanding(request: object, tone: str) -> str:
    return f"{request}{tone}"


def anything(*args: object, **kwargs: object) -> str:
    return f"{args}{kwargs}"


def nothing() -> str:
    return ""


@pytest.mark.parametrize(
    ("function", "settings"),
    [
        (plain, {}),
        (plain, {"tone": "loud"}),
        (demanding, {"tone": "loud"}),
        (anything, {"whatever": 1}),
        (functools.partial(demanding, tone="x"), {}),
        (str, {}),
    ],
)
def test_what_can_be_called_is_accepted(
    function: Callable[..., object], settings: dict[str, Any]
) -> None:
    check_call(function, settings, gets=("request",), what="model 'm'")


@pytest.mark.parametrize(
    ("function", "settings", "message"),
    [
        (plain, {"tonne": 1}, "unknown setting 'tonne'; did you mean 'tone'?"),
        (plain, {"request": 1}, "unknown setting 'request'; there are: tone"),
        (demanding, {}, "it needs the setting 'tone'; write it under `settings`"),
        (nothing, {}, "must take `request`"),
        (nothing, {"x": 1}, "must take `request`"),
    ],
)
def test_what_cannot_be_called_is_refused_with_the_settings_there_are(
    function: Callable[..., object], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_call(function, settings, gets=("request",), what="model 'm'")
    assert message in str(caught.value)
    assert str(caught.value).startswith("model 'm'")


async def waits(task: object, model: object, depth: int = 1) -> str:
    return f"{task}{model}{depth}"


def blocks(task: object, model: object, depth: int = 1) -> str:
    return f"{task}{model}{depth}"


@pytest.mark.parametrize("name", ["waits", "blocks"])
def test_an_agent_with_a_wrong_setting_is_not_even_built(name: str) -> None:
    spec = AgentSpec(name=f"{__name__}:{name}", settings={"deph": 3})
    with pytest.raises(UsageError, match=r"unknown setting 'deph'; did you mean 'depth'\?"):
        PartBuilder(redactor=Redactor()).agent(spec)


def test_a_wrong_setting_of_a_model_is_told_before_the_start_with_its_place(
    tmp_path: Path,
) -> None:
    (tmp_path / "own_function_a.py").write_text("def answer(request, tone='x'):\n    return tone\n")
    path = tmp_path / "run.toml"
    path.write_text(
        '[[tasks]]\nid = "a"\nprompt = "x"\n\n[[models]]\nmodel = "own_function_a:answer"\n'
        'settings = { tune = "y" }\n'
    )
    with pytest.raises(UsageError, match=r"run\.toml:5: model .*unknown setting 'tune'; .*'tone'"):
        bakeoff.run(path, output=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


class Echo:
    """A model that tells the parameters it is asked with."""

    def __init__(self) -> None:
        self.closed = False

    async def complete(self, request: Request) -> Completion:
        return Completion(text=str(dict(request.parameters)))

    async def close(self) -> None:
        self.closed = True


def tells(request: Request) -> str:
    return str(dict(request.parameters))


@pytest.mark.parametrize("part", [tells, Echo()])
def test_the_parameters_of_a_model_of_ones_own_come_with_each_request(part: object) -> None:
    own = {"temperature": 0.1, "top_p": 1}
    spec = ModelSpec(provider="python", name="mine", parameters=own)

    async def ask() -> str:
        model = PartBuilder(redactor=Redactor(), own={"mine": part}).model(spec)
        asked = {"temperature": 1, "seed": 2}
        said = await model.complete(
            Request(messages=(Message(role="user", content="x"),), parameters=asked)
        )
        await close_model(model)
        return said.text

    assert asyncio.run(ask()) == str({"temperature": 0.1, "seed": 2, "top_p": 1})
    assert getattr(part, "closed", True)
