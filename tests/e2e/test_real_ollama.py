"""A real Ollama with three real models: found, benchmarked in one run, and caught when it cuts."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff import Completion, Message, ModelSpec, Request, ScorerSpec, Task
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import Tool
from bakeoff.models.adapters.ollama import Window, build, window_of
from bakeoff.models.discovery import Places, discover, served_models
from support.cli import processes_of_session
from support.real_ollama import MODELS, Ollama, real_ollama

pytestmark = pytest.mark.timeout(600)  # the first run ever installs a server

QUICK = {"temperature": 0, "max_tokens": 8, "seed": 1}
# a request with another `num_ctx` makes Ollama load the model anew: all of them use the same
SMALL = {**QUICK, "num_ctx": 256}


@pytest.fixture(scope="module")
def ollama() -> Iterator[Ollama]:
    with real_ollama() as server:
        yield server
    assert processes_of_session(server.session) == []


def spec_of(ollama: Ollama, name: str = "smollm2:135m", **rest: Any) -> ModelSpec:
    return ModelSpec(provider="ollama", name=name, base_url=ollama.url, **rest)


def user(text: str) -> Message:
    return Message(role="user", content=text)


def ask(ollama: Ollama, *messages: Message, schema: Any = None, **spec: Any) -> Completion:
    given = {"parameters": SMALL, **spec}

    async def main() -> Completion:
        model = build(spec_of(ollama, **given))
        try:
            return await model.complete(Request(messages=messages, schema=schema))
        finally:
            await model.close()

    return asyncio.run(main())


def test_every_model_is_found_with_what_tells_it_from_the_others(ollama: Ollama) -> None:
    seen = asyncio.run(discover(Places(ollama=ollama.url)))
    assert not seen.troubles
    by_name = {model.name: model for model in seen.found}
    assert set(by_name) == {f"ollama/{name}" for name in MODELS}
    assert len({model.digest for model in seen.found}) == 3
    assert all(len(model.digest or "") == 64 for model in seen.found)
    assert {model.quantization for model in seen.found} == {"Q4_1", "Q8_0", "Q4_0"}
    plain = by_name["ollama/smollm2:135m"]
    assert (plain.family, plain.context_length) == ("llama", 8192)
    assert plain.parameter_count == 134_515_008
    assert 90_000_000 < (plain.size_bytes or 0) < 110_000_000


def test_it_is_found_through_openais_api_too(ollama: Ollama) -> None:
    seen = asyncio.run(served_models(f"{ollama.url}/v1"))
    assert {m.name for m in seen.found} == {f"openai-compatible/{name}" for name in MODELS}


def test_loading_a_model_is_told_apart_from_answering(ollama: Ollama) -> None:
    other_window = {**SMALL, "num_ctx": 320}  # nobody has asked for this one, so it is loaded now
    first = ask(ollama, user("What is the capital of France?"), parameters=other_window)
    again = ask(ollama, user("What is the capital of Italy?"), parameters=other_window)
    assert first.load_s is not None
    assert again.load_s is not None
    assert first.load_s > 0.15
    assert again.load_s < first.load_s / 3
    assert first.elapsed_s < first.load_s + 5
    assert "Paris" in first.text
    assert first.usage.input_tokens == 16
    assert (first.usage.output_tokens or 0) > 3
    assert first.flags == ()


def test_a_streamed_answer_is_counted_as_a_whole_one_and_has_a_first_token(ollama: Ollama) -> None:
    whole = ask(ollama, user("What is the capital of France?"))
    streamed = ask(ollama, user("What is the capital of France?"), settings={"stream": True})
    assert "Paris" in whole.text
    assert "Paris" in streamed.text
    assert streamed.usage == whole.usage
    assert streamed.stop_reason == whole.stop_reason
    assert streamed.first_token_s is not None
    assert 0 < streamed.first_token_s < streamed.elapsed_s


def test_an_answer_that_ran_out_of_tokens_says_so(ollama: Ollama) -> None:
    assert ask(ollama, user("Write a long story.")).stop_reason == "length"


def test_a_schema_shapes_the_answer(ollama: Ollama) -> None:
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "integer"}},
        "required": ["answer"],
    }
    parameters = {**SMALL, "max_tokens": 30}
    answer = ask(ollama, user("What is 2+2? Answer as JSON."), schema=schema, parameters=parameters)
    assert answer.text.replace(" ", "").replace("\n", "").startswith('{"answer":')


def test_a_prompt_longer_than_the_window_is_caught(ollama: Ollama) -> None:
    cut = ask(ollama, user("pear " * 400))
    assert cut.usage.input_tokens == 256
    assert cut.flags == ("truncated",)


def test_a_cut_text_without_spaces_is_caught_too(ollama: Ollama) -> None:
    assert ask(ollama, user("中文" * 300)).flags == ("truncated",)


def test_turns_that_ollama_drops_in_silence_are_caught(ollama: Ollama) -> None:
    turns = (user("pear " * 300), Message(role="assistant", content="ok"), user("Say hi."))
    dropped = ask(ollama, *turns)
    assert (dropped.usage.input_tokens or 0) < 50  # it read only the last turn
    assert dropped.flags == ("truncated",)


def test_a_prompt_that_just_fits_raises_no_alarm_even_from_the_cache(ollama: Ollama) -> None:
    for _ in range(2):
        fits = ask(ollama, user("pear " * 200))
        assert fits.usage.input_tokens == 211
        assert fits.flags == ()


def test_the_servers_own_default_window_is_known(ollama: Ollama) -> None:
    fits = ask(ollama, user("pear " * 300), parameters=QUICK)
    assert (fits.usage.input_tokens or 0) > 300
    assert fits.flags == ()
    assert asyncio.run(window_of(ollama.url, "smollm2:135m")) == Window(tokens=2048)


def test_a_model_that_is_not_there_is_told_with_how_to_get_it(ollama: Ollama) -> None:
    with pytest.raises(ProviderError, match="get it with: ollama pull llama3:8b"):
        ask(ollama, user("hi"), name="llama3:8b")


def test_a_model_without_tools_says_so_once(ollama: Ollama) -> None:
    tool = Tool(name="f", description="d")

    async def main() -> None:
        model = build(spec_of(ollama))
        try:
            await model.complete(Request(messages=(user("hi"),), tools=(tool,)))
        finally:
            await model.close()

    with pytest.raises(ProviderError, match="does not support tools") as caught:
        asyncio.run(main())
    assert not caught.value.transient


def test_an_answer_is_asked_for_again_when_the_models_process_dies_in_the_middle(
    ollama: Ollama,
) -> None:
    ask(ollama, user("hi"))  # it is loaded from here on
    parameters = {**SMALL, "max_tokens": 120}
    settings = {"stream": True, "max_retries": 3, "retry_delay_s": 0.2}

    async def main() -> Completion:
        model = build(spec_of(ollama, parameters=parameters, settings=settings))
        try:
            question = Request(messages=(user("Write a long story about the sea."),))
            answer = asyncio.create_task(model.complete(question))
            await asyncio.sleep(0.8)
            for runner in set(processes_of_session(ollama.session)) - {ollama.session}:
                os.kill(runner, signal.SIGKILL)
            return await answer
        finally:
            await model.close()

    completion = asyncio.run(main())
    assert completion.retries >= 1
    assert completion.stop_reason in {"stop", "length"}
    assert len(completion.text) > 50


TASKS = [
    Task(
        id=country.lower(),
        messages=(user(f"What is the capital of {country}?"),),
        target=capital,
        scorers=(ScorerSpec(name="includes"),),
        parameters=SMALL,
    )
    for country, capital in {"France": "Paris", "Italy": "Rome", "Japan": "Tokyo"}.items()
]


def test_all_three_are_benchmarked_in_one_run(ollama: Ollama, tmp_path: Path) -> None:
    long = Task(id="long", messages=(user("pear " * 400),), parameters=SMALL)
    run = bakeoff.run(
        [*TASKS, long],
        models=[spec_of(ollama, name) for name in MODELS],
        output=tmp_path,
        parallel=2,
    )
    trials = list(run.trials())
    assert len(trials) == 12
    assert {t.attempt.status for t in trials} == {"completed"}
    by_candidate = {
        c: [t for t in trials if t.candidate_id == c] for c in {t.candidate_id for t in trials}
    }
    assert len(by_candidate) == 3
    for its in by_candidate.values():
        assert all((t.attempt.spent.usage.input_tokens or 0) > 0 for t in its)
        assert all(t.attempt.spent.load_s is not None for t in its)
        flagged = {t.task_id for t in its if "truncated" in t.attempt.spent.flags}
        assert flagged == {"long"}
    slowest_load = {
        c: max(t.attempt.spent.load_s or 0 for t in its) for c, its in by_candidate.items()
    }
    assert all(slowest_load[f"ollama/smollm2:135m-{q}"] > 0.1 for q in ("q8_0", "q4_0"))
    solved = [t for t in trials if t.attempt.score == 1.0]
    assert len(solved) >= 4
