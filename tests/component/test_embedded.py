"""A real small LLM in this process."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from bakeoff.app.run import new_event_loop
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError, UsageError
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.task import Message
from bakeoff.models.adapters.embedded import EmbeddedModel, build
from support.parts import require_embedded_model

pytestmark = pytest.mark.embedded
T = TypeVar("T")


@pytest.fixture(autouse=True)
def _needs_the_model() -> None:
    require_embedded_model()


def spec_of(name: str = "smollm2-135m", **settings: Any) -> ModelSpec:
    return ModelSpec(provider="embedded", name=name, settings=settings)


def question(text: str, **parameters: Any) -> Request:
    given = {"temperature": 0, "max_tokens": 16, **parameters}
    return Request(messages=(Message(role="user", content=text),), parameters=given)


CAPITAL = question("What is the capital of France?")
ENDLESS = question("Write a long story about the sea.", max_tokens=1800, ignore_eos=True)


def with_model(work: Callable[[EmbeddedModel], Awaitable[T]], **settings: Any) -> T:
    """Run *work* on a fresh model; afterwards no thread of it may be left."""

    async def main() -> T:
        model = build(spec_of(**settings))
        try:
            return await work(model)
        finally:
            await model.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        result = runner.run(main())
    assert ours() == []
    return result


def ours() -> list[threading.Thread]:
    """Return the threads of embedded models; one that has just delivered may take a moment."""
    left = [t for t in threading.enumerate() if t.name.startswith("bakeoff-embedded")]
    for thread in left:
        thread.join(timeout=2)
    return [thread for thread in left if thread.is_alive()]


def test_it_answers_and_counts() -> None:
    reply = with_model(lambda model: model.complete(CAPITAL))
    assert "Paris" in reply.text
    assert reply.stop_reason == "stop"
    assert reply.model == "embedded/smollm2-135m"
    assert reply.usage.input_tokens is not None
    assert reply.usage.input_tokens > 5
    assert reply.usage.output_tokens is not None
    assert 3 <= reply.usage.output_tokens <= 16
    assert reply.first_token_s is not None
    assert 0 < reply.first_token_s <= reply.elapsed_s


def test_at_temperature_zero_the_same_question_gets_the_same_answer() -> None:
    async def work(model: EmbeddedModel) -> list[str]:
        poem = question("Write a line about rain.", max_tokens=24)
        first = await model.complete(poem)
        await model.complete(CAPITAL)
        return [first.text, (await model.complete(poem)).text]

    first, again = with_model(work)
    assert first
    assert first == again


def test_an_answer_that_was_cut_says_so() -> None:
    reply = with_model(lambda model: model.complete(question("Count to ten.", max_tokens=1)))
    assert reply.stop_reason == "length"
    assert reply.usage.output_tokens == 1


def test_an_answer_follows_a_schema() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    }
    request = Request(
        messages=CAPITAL.messages,
        parameters={"temperature": 0, "max_tokens": 40},
        schema=schema,
    )
    reply = with_model(lambda model: model.complete(request))
    assert reply.text.lstrip().startswith("{")
    assert '"city"' in reply.text


def test_a_prompt_that_is_too_long_is_told_with_the_size_there_is() -> None:
    async def work(model: EmbeddedModel) -> Completion:
        with pytest.raises(ProviderError, match=r"context size.*256") as caught:
            await model.complete(question("very " * 600 + "long"))
        assert not caught.value.transient
        return await model.complete(CAPITAL)

    assert "Paris" in with_model(work, context=256).text


def test_a_cancelled_request_frees_its_slot_at_once() -> None:
    async def timed(model: EmbeddedModel) -> float:
        began = time.monotonic()
        assert "Paris" in (await model.complete(CAPITAL)).text
        return time.monotonic() - began

    async def work(model: EmbeddedModel) -> float:
        await model.complete(CAPITAL)  # loads the weights
        alone = await timed(model)
        long = asyncio.create_task(model.complete(ENDLESS))
        await asyncio.sleep(0.5)
        assert not long.done()
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long
        return await timed(model) / alone

    # with one slot the next request waits for the one before it: 400 tokens take fifty times as long
    assert with_model(work, slots=1) < 10


def test_a_request_cancelled_in_the_queue_leaves_the_others_alone() -> None:
    async def work(model: EmbeddedModel) -> Completion:
        first = asyncio.create_task(model.complete(CAPITAL))
        queued = asyncio.create_task(model.complete(CAPITAL))
        third = asyncio.create_task(model.complete(CAPITAL))
        await asyncio.sleep(0.05)
        queued.cancel()
        assert "Paris" in (await first).text
        return await third

    assert "Paris" in with_model(work, slots=1).text


def test_a_deadline_ends_a_generation() -> None:
    async def work(model: EmbeddedModel) -> None:
        await model.complete(CAPITAL)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await model.complete(ENDLESS)
        assert time.monotonic() - began < 2

    with_model(work)


@pytest.mark.parametrize("_", range(3))  # it once hung as often as not, holding the interpreter
def test_closing_while_the_model_is_loaded_ends_what_waits_for_it(_: int) -> None:
    async def work(model: EmbeddedModel) -> None:
        long = asyncio.create_task(model.complete(ENDLESS))
        await asyncio.sleep(0)  # it has begun to load
        await model.close()
        with pytest.raises(ProviderError, match="closed during the request"):
            await long

    with_model(work)


def test_closing_ends_what_runs_and_leaves_no_thread() -> None:
    async def work(model: EmbeddedModel) -> None:
        long = asyncio.create_task(model.complete(ENDLESS))
        await asyncio.sleep(2)
        began = time.monotonic()
        await model.close()
        assert time.monotonic() - began < 3
        with pytest.raises(ProviderError, match="closed during the request"):
            await long

    with_model(work)


def test_a_model_that_was_never_asked_closes_too() -> None:
    async def work(model: EmbeddedModel) -> None:
        pass

    with_model(work)


def test_two_run_at_once() -> None:
    async def work(model: EmbeddedModel) -> list[Completion]:
        await model.complete(CAPITAL)
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(model.complete(question(text, max_tokens=20, ignore_eos=True)))
                for text in ("What is the capital of France?", "What is the capital of Italy?")
            ]
            await asyncio.sleep(0.1)
            assert len(ours_now()) == 2
        return [task.result() for task in asked]

    france, italy = with_model(work)
    assert "Paris" in france.text
    assert "Rome" in italy.text


def ours_now() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("bakeoff-embedded")]


def test_weights_nobody_knows_are_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"'gpt-7'.*there is 'smollm2-135m'.*path"):
        build(spec_of("gpt-7"))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match=r"there is no file /nowhere/x\.gguf"):
        build(spec_of(path="/nowhere/x.gguf"))


def test_a_file_that_holds_no_weights_is_a_clear_fault(tmp_path: Any) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(b"not weights at all")

    async def work(model: EmbeddedModel) -> None:
        for _ in range(2):
            with pytest.raises(ProviderError, match=r"x\.gguf") as caught:
                await model.complete(CAPITAL)
            assert not caught.value.transient

    with_model(work, path=str(file))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"thread": 2}, r"unknown setting 'thread'; did you mean 'threads'\?"),
        ({"slots": 0}, r"slots"),
        ({"context": "big"}, r"context"),
    ],
)
def test_a_wrong_setting_is_told_with_the_right_one(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(spec_of(**settings))


def test_more_than_one_choice_is_refused() -> None:
    with pytest.raises(ProviderError, match="leave `n` out"):
        with_model(lambda model: model.complete(question("Hi", n=2)))
