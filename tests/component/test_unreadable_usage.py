"""Token counts that are no numbers: the answer is kept, its usage is unknown, and one note says so."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff.core.outcome import Completion, Request, Usage
from bakeoff.core.ports import close_model
from bakeoff.core.task import Message
from support.endpoints import ENDPOINTS, FINAL, LOOKING, Endpoint
from support.loopback import Asked, Loopback, Reply, chat, delta, sse

BAD: list[Any] = ["many", True, [1, 2], {"x": 1}, "<1e999>", "<NaN>"]
USAGE_KEYS = {"usage", "usageMetadata"}
OLLAMA_KEYS = {"prompt_eval_count", "eval_count"}


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback() as running:
        yield running


def spoiled(reply: Reply, bad: Any, *, whole: bool) -> Reply:
    """Return *reply* with *bad* in place of each token count, or of the usage as a whole."""
    data = json.loads(reply.body)
    for key in data.keys() & USAGE_KEYS:
        data[key] = bad if whole else dict.fromkeys(data[key], bad)
    data.update(dict.fromkeys(data.keys() & OLLAMA_KEYS, bad))
    text = json.dumps(data).replace('"<1e999>"', "1e999").replace('"<NaN>"', "NaN")
    return Reply(headers=reply.headers, body=text.encode())


def ask(endpoint: Endpoint, server: Loopback, **request: Any) -> Completion:
    async def main() -> Completion:
        model = endpoint.model(server)
        try:
            messages = (Message(role="user", content="Köln?"),)
            return await model.complete(Request(messages=messages, **request))
        finally:
            await close_model(model)

    return asyncio.run(main())


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: e.name)
@pytest.mark.parametrize("bad", BAD, ids=str)
@pytest.mark.parametrize("whole", [True, False])
def test_an_answer_with_token_counts_that_are_none_is_kept(
    server: Loopback, endpoint: Endpoint, bad: Any, *, whole: bool
) -> None:
    server.answer = lambda asked: spoiled(endpoint.answer(asked), bad, whole=whole)
    completion = ask(endpoint, server)
    assert completion.text in (LOOKING, FINAL)
    assert completion.tool_calls
    usage = completion.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == (None, None, None)
    if not (whole and bad == {"x": 1} and endpoint.name != "ollama"):  # counts nothing, and says so
        assert "usage_unreadable" in completion.flags
    assert sum(asked.path.endswith(server.requests[0].path) for asked in server.requests) == 1


def test_counts_that_can_be_read_stay_known_beside_those_that_cannot(server: Loopback) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": "3", "cost": True}
    server.answer = lambda _: chat("ok", usage=usage)
    completion = ask(ENDPOINTS[0], server)
    assert completion.usage.input_tokens == 7
    assert completion.usage.output_tokens is None
    assert completion.flags == ("usage_unreadable",)


def test_a_stream_with_unreadable_counts_is_kept(server: Loopback) -> None:
    last = {"choices": [], "usage": {"prompt_tokens": "7", "completion_tokens": [3]}}
    server.answer = lambda _: sse(delta("In "), delta("Köln", "stop"), last)
    completion = ask(ENDPOINTS[0], server, parameters={"stream": True})
    assert completion.text == "In Köln"
    assert completion.flags == ("usage_unreadable",)


def test_an_anthropic_stream_with_unreadable_counts_is_kept(server: Loopback) -> None:
    events: list[Any] = [
        {"type": "message_start", "message": {"content": [], "usage": {"input_tokens": "9"}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "Köln"},
        },
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 4},
        },
        {"type": "message_stop"},
    ]
    server.answer = lambda _: sse(*events)
    completion = ask(ENDPOINTS[2], server, parameters={"stream": True})
    assert completion.text == "Köln"
    assert completion.usage.input_tokens is None
    assert completion.usage.output_tokens == 4
    assert completion.flags == ("usage_unreadable",)


def test_a_model_of_ones_own_may_give_counts_that_are_none(tmp_path: Path) -> None:
    def mine(_: Request) -> Completion:
        return Completion(text="ok", usage=Usage(input_tokens="7", output_tokens=3))  # type: ignore[arg-type]

    task = bakeoff.Task(id="t", messages=(Message(role="user", content="?"),))
    run = bakeoff.run([task], models=[mine], output=tmp_path)
    (record,) = run.trials()
    assert record.attempt.outcome is not None
    assert record.attempt.outcome.answer == "ok"
    assert record.attempt.spent.usage.input_tokens is None
    notes = [note for note in bakeoff.summarize(run).notes if "token counts" in note]
    assert len(notes) == 1


@pytest.mark.parametrize("ending", [b"K\xc3", b"\xf0\x9f\x98"])
def test_a_stream_that_is_cut_inside_a_character_is_tried_again(
    server: Loopback, ending: bytes
) -> None:
    cut = b'data: {"choices":[{"delta":{"content":"' + ending

    def answer(asked: Asked) -> Reply:
        if asked.number == 0:
            head = (
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
            )
            return Reply(raw=head + cut)
        return sse(delta("Köln", "stop"))

    server.answer = answer
    endpoint = ENDPOINTS[0]

    async def main() -> Completion:
        spec = bakeoff.ModelSpec(
            provider="openai-compatible",
            name="m",
            base_url=server.url,
            settings={"stream": True, "retry_delay_s": 0.001},
        )
        model = endpoint.build(spec)
        try:
            return await model.complete(Request(messages=(Message(role="user", content="?"),)))
        finally:
            await close_model(model)

    completion = asyncio.run(main())
    assert (completion.text, completion.retries) == ("Köln", 1)
