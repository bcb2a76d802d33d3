"""A parameter that an endpoint refuses: asked once more without it, and said with the answer."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError
from bakeoff.core.events import Event, Notice
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.ports import close_model
from bakeoff.core.task import Message
from bakeoff.models.client.parameters import change_for
from support.endpoints import ENDPOINTS, Endpoint
from support.loopback import Asked, Loopback, Reply, chat

BY_NAME = {endpoint.name: endpoint for endpoint in ENDPOINTS}


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback() as running:
        yield running


def refusal(error: Any, status: int = 400) -> Reply:
    headers = {"Content-Type": "application/json"}
    return Reply(status=status, headers=headers, body=json.dumps({"error": error}).encode())


def openai_error(param: str, message: str, code: str | None = "unsupported_value") -> Any:
    return {"message": message, "type": "invalid_request_error", "param": param, "code": code}


OPENAI = openai_error(
    "temperature",
    "Unsupported value: 'temperature' does not support 0 with this model. "
    "Only the default (1) value is supported.",
)
ANTHROPIC = {
    "type": "invalid_request_error",
    "message": "`temperature` is deprecated for this model.",
}
GEMINI = {
    "code": 400,
    "message": 'Invalid JSON payload received. Unknown name "temperature" at '
    "'generation_config': Cannot find field.",
    "status": "INVALID_ARGUMENT",
}


def sent(asked: Asked) -> Mapping[str, Any]:
    """Return the parameters of a request, wherever its API has them."""
    return {**asked.body, **asked.body.get("generationConfig", {}), **asked.body.get("options", {})}


def refusing(endpoint: Endpoint, name: str, error: Any) -> Callable[[Asked], Reply]:
    return lambda asked: refusal(error) if name in sent(asked) else endpoint.answer(asked)


def asked_and_noted(
    server: Loopback, endpoint: Endpoint, *parameters: dict[str, Any]
) -> tuple[list[Completion], list[str]]:
    """Ask one model once for each of *parameters*; return the answers, and what it notes."""

    async def main() -> tuple[list[Completion], list[str]]:
        model: Any = endpoint.model(server)
        question = (Message(role="user", content="2 + 2?"),)
        try:
            requests = [Request(messages=question, parameters=p) for p in parameters]
            return [await model.complete(request) for request in requests], model.notes
        finally:
            await model.close()

    return asyncio.run(main())


def ask(server: Loopback, endpoint: Endpoint, *parameters: dict[str, Any]) -> list[Completion]:
    return asked_and_noted(server, endpoint, *parameters)[0]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("openai-compatible", OPENAI),
        ("openai-responses", OPENAI),
        ("anthropic", ANTHROPIC),
        ("gemini", GEMINI),
        ("ollama", OPENAI),
    ],
)
def test_a_refused_temperature_is_left_out_from_then_on_flagged_and_said_once(
    server: Loopback, name: str, error: Any
) -> None:
    endpoint = BY_NAME[name]
    server.answer = refusing(endpoint, "temperature", error)
    wish = {"temperature": 0, "top_p": 0.5}
    (first, second), (note,) = asked_and_noted(server, endpoint, wish, wish)
    assert first.flags == second.flags == ("without_temperature",)
    assert ["temperature" in sent(asked) for asked in server.requests] == [True, False, False]
    assert all({"top_p", "topP"} & set(sent(asked)) for asked in server.requests)
    assert f"{name}/m is asked without" in note
    assert "temperature" in note
    assert "HTTP 400" in note


def test_each_refused_parameter_is_left_out_once(server: Loopback) -> None:
    endpoint = BY_NAME["openai-compatible"]

    def answer(asked: Asked) -> Reply:
        for name in ("temperature", "top_p"):
            if name in asked.body:
                return refusal(openai_error(name, f"Unsupported parameter: '{name}'."))
        return endpoint.answer(asked)

    server.answer = answer
    (completion,) = ask(server, endpoint, {"temperature": 0, "top_p": 0.5, "seed": 1})
    assert completion.flags == ("without_temperature", "without_top_p")
    assert len(server.requests) == 3
    assert server.requests[-1].body["seed"] == 1


def test_a_limit_goes_under_the_name_that_the_model_takes_and_is_never_dropped(
    server: Loopback,
) -> None:
    endpoint = BY_NAME["openai-compatible"]
    error = openai_error(
        "max_tokens",
        "Unsupported parameter: 'max_tokens' is not supported with this model. "
        "Use 'max_completion_tokens' instead.",
        "unsupported_parameter",
    )
    server.answer = refusing(endpoint, "max_tokens", error)
    (completion,) = ask(server, endpoint, {"max_tokens": 9})
    assert completion.flags == ()
    assert server.requests[-1].body["max_completion_tokens"] == 9


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({"stop": "x"}, openai_error("stop", "Unsupported parameter: 'stop'.")),
        ({"max_tokens": 9}, openai_error("max_tokens", "Unsupported parameter: 'max_tokens'.")),
        ({"temperature": 5}, openai_error("temperature", "Invalid value: 5.", "invalid_value")),
        ({"temperature": 5}, openai_error("messages[0].role", "'system' is not supported.")),
        ({"top_p": 1}, {"message": "this model is not supported in your region"}),
    ],
)
def test_what_would_be_another_answer_and_a_wrong_value_stay_faults(
    server: Loopback, parameters: dict[str, Any], error: Any
) -> None:
    server.answer = lambda _: refusal(error)
    with pytest.raises(ProviderError, match="HTTP 400"):
        ask(server, BY_NAME["openai-compatible"], parameters)
    assert len(server.requests) == 1


def test_a_guess_that_did_not_help_is_not_kept(server: Loopback) -> None:
    endpoint = BY_NAME["anthropic"]
    server.answer = lambda _: refusal(ANTHROPIC)
    with pytest.raises(ProviderError):
        ask(server, endpoint, {"temperature": 0})
    assert ["temperature" in asked.body for asked in server.requests] == [True, False]


@pytest.mark.parametrize(
    ("error", "payload", "path"),
    [
        (
            {"message": "`temperature` may only be set to 1 when thinking is enabled."},
            {"thinking": {"type": "enabled"}, "temperature": 0},
            ("temperature",),
        ),
        (
            {"message": "temperature and top_p cannot both be specified for this model."},
            {"top_p": 0.5, "temperature": 0},
            ("temperature",),
        ),
        ({"message": "top_k: Extra inputs are not permitted"}, {"top_k": 1}, ("top_k",)),
        (
            {"message": "Penalty is not enabled for models/gemini-2.5-pro"},
            {"generationConfig": {"topP": 1, "presencePenalty": 1}},
            ("generationConfig", "presencePenalty"),
        ),
        (
            {"message": "Thinking level is not supported for this model."},
            {"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}}},
            ("generationConfig", "thinkingConfig", "thinkingLevel"),
        ),
        (
            openai_error("reasoning.effort", "Unsupported parameter: 'reasoning.effort'."),
            {"reasoning": {"effort": "low", "summary": "auto"}},
            ("reasoning", "effort"),
        ),
        (
            openai_error("response_format", "'json_schema' is not supported here.", None),
            {"response_format": {"type": "json_schema"}},
            ("response_format",),
        ),
    ],
)
def test_the_documented_refusals_name_the_parameter_that_goes(
    error: Any, payload: Any, path: tuple[str, ...]
) -> None:
    change = change_for(error, payload)
    assert change is not None
    assert change.path == path


def test_a_parameter_can_be_left_out_by_the_config(server: Loopback) -> None:
    endpoint = BY_NAME["openai-compatible"]
    server.answer = endpoint.answer
    spec = ModelSpec(
        provider="openai-compatible",
        name="m",
        base_url=server.url,
        parameters={"seed": None},
        settings={"omit": ["temperature"]},
    )

    async def main() -> Completion:
        model = endpoint.build(spec)
        asked = Request(
            messages=(Message(role="user", content="?"),),
            parameters={"temperature": 0, "seed": 1, "top_p": 1},
        )
        try:
            return await model.complete(asked)
        finally:
            await close_model(model)

    assert asyncio.run(main()).flags == ()
    body = server.requests[0].body
    assert ("temperature" in body, "seed" in body, body["top_p"]) == (False, False, 1)


def test_a_judge_that_refuses_temperature_judges_and_the_run_says_so_once(
    server: Loopback, tmp_path: Path
) -> None:
    def answer(asked: Asked) -> Reply:
        if asked.body["model"] != "reasoner":
            return chat("4")
        if "temperature" in asked.body:
            return refusal(OPENAI)
        return chat('{"reasoning": "right", "score": 10}')

    server.answer = answer
    run_file = tmp_path / "run.toml"
    run_file.write_text(
        f"""
models = [{{ model = "m", base_url = "{server.url}", parameters = {{ temperature = 0.5 }} }}]
scorers = [{{ scorer = "judge", settings = {{ rubric = "right?" }} }}]
tasks = [{{ id = "a", prompt = "2+2?" }}, {{ id = "b", prompt = "1+3?" }}]
parallel = 1
[roles.judge]
model = "reasoner"
base_url = "{server.url}"
"""
    )
    told: list[Event] = []
    run = bakeoff.run(run_file, output=tmp_path / "runs", listener=told.append)
    attempts = [record.attempt for record in run.trials()]
    assert [attempt.score for attempt in attempts] == [1.0, 1.0]
    assert [a.roles["judge"].flags for a in attempts] == [("without_temperature",)] * 2
    assert [a.spent.flags for a in attempts] == [(), ()]
    notices = [e.text for e in told if isinstance(e, Notice) and "temperature" in e.text]
    assert len(notices) == 1
    assert "reasoner is asked without `temperature`" in notices[0]
    assert len(server.requests) == 5


def test_a_candidates_own_parameter_that_was_refused_is_a_note_of_the_summary(
    server: Loopback, tmp_path: Path
) -> None:
    server.answer = refusing(BY_NAME["openai-compatible"], "temperature", OPENAI)
    spec = ModelSpec(
        provider="openai-compatible",
        name="m",
        base_url=server.url,
        parameters={"temperature": 0.5},
    )
    task = bakeoff.Task(id="t", messages=(Message(role="user", content="?"),))
    run = bakeoff.run([task], models=[spec], output=tmp_path)
    notes = bakeoff.summarize(run).notes
    assert any("1 answer asked without `temperature`" in note for note in notes)
