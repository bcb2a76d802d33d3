"""What every model promises: run against each adapter that asks over HTTP, and those beside them."""

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import UNKNOWN_USAGE, Completion, Request
from bakeoff.core.ports import Model, close_model
from bakeoff.core.task import Message
from bakeoff.models.adapters import embedded, scripted
from bakeoff.models.adapters.function import FunctionModel, OwnModel
from support.adapters import WEATHER, question
from support.chances import chances
from support.loopback import Asked, Loopback, Reply
from support.model_wires import WIRES, Wire
from support.parts import require_embedded_model


@pytest.fixture(params=WIRES, ids=str)
def wire(request: pytest.FixtureRequest) -> Wire:
    chosen: Wire = request.param
    return chosen


@pytest.fixture
def server(wire: Wire) -> Iterator[Loopback]:
    with Loopback(lambda _: wire.whole()) as running:
        yield running


# ---- how it is made


def test_a_model_without_a_url_is_told_how_to_give_one(wire: Wire) -> None:
    if wire.no_url is not None:
        with pytest.raises(UsageError, match=wire.no_url):
            wire.adapter.build(ModelSpec(provider=wire.adapter.provider, name="m"))


def test_a_misspelt_setting_is_answered_with_the_right_one(wire: Wire, server: Loopback) -> None:
    with pytest.raises(UsageError, match=r"unknown setting 'timeout'.*'timeout_s'"):
        wire.adapter.build(wire.adapter.spec_of(server, settings={"timeout": 3}))


def test_the_key_goes_into_its_header_and_nowhere_else(wire: Wire, server: Loopback) -> None:
    wire.adapter.ask(server, api_key="k\n")
    (asked,) = server.requests
    name, value = wire.key_header
    assert asked.headers[name] == value
    assert name == "Authorization" or "Authorization" not in asked.headers


# ---- whole answers


def test_a_whole_answer_is_read(wire: Wire, server: Loopback) -> None:
    reply = wire.adapter.answered(server, wire.whole())
    assert (reply.text, reply.stop_reason, reply.model) == ("4", "stop", "served")
    assert (reply.reasoning, reply.tool_calls, reply.flags, reply.raw) == (None, (), (), None)
    assert (reply.retries, reply.first_token_s) == (0, None)
    assert reply.elapsed_s > 0
    assert reply.usage == wire.usage


@pytest.mark.parametrize(
    "counts", [None, {}, {"input_tokens": None}, {"input_tokens": -1, "promptTokenCount": -1}]
)
def test_counts_that_were_not_given_are_unknown(wire: Wire, server: Loopback, counts: Any) -> None:
    if wire.counts:  # in Ollama's answers each stands for itself
        reply = wire.adapter.answered(server, wire.whole(**{wire.counts: counts}))
        assert reply.usage == UNKNOWN_USAGE


def test_the_raw_answer_is_kept_where_asked_for(wire: Wire, server: Loopback) -> None:
    reply = wire.adapter.answered(server, wire.whole(extra=[1]), settings={"keep_raw": True})
    assert isinstance(reply.raw, dict)
    assert reply.raw["extra"] == [1]
    assert '"4"' in json.dumps(reply.raw)


def test_a_tool_call_is_read(wire: Wire, server: Loopback) -> None:
    server.answer = lambda _: Reply(body=json.dumps(wire.call).encode())
    reply = wire.adapter.ask(server, question(tools=(WEATHER,)))
    (call,) = reply.tool_calls
    assert (call.name, call.parsed) == ("weather", {"city": "Köln"})
    assert call.id


def test_half_a_character_in_an_answer_is_replaced(wire: Wire, server: Loopback) -> None:
    assert wire.adapter.answered(server, wire.whole("a\ud800b")).text == "a\ufffdb"


# ---- streams


@chances(3)
def test_a_stream_is_put_together_and_its_first_token_timed(wire: Wire, server: Loopback) -> None:
    opening, first, *rest = wire.pieces

    def chunks() -> Iterator[bytes]:
        yield opening
        time.sleep(0.1)
        yield first
        time.sleep(0.1)
        yield from rest

    reply = wire.adapter.answered(server, Reply(chunks=chunks()), settings={"stream": True})
    assert (reply.text, reply.stop_reason, reply.model) == ("The answer", "stop", "served")
    assert reply.first_token_s is not None
    assert 0.1 <= reply.first_token_s <= reply.elapsed_s - 0.05


def test_a_whole_answer_instead_of_a_stream_is_understood(wire: Wire, server: Loopback) -> None:
    assert wire.adapter.answered(server, wire.whole(), settings={"stream": True}).text == "4"


def test_a_stream_cut_before_its_end_may_be_tried_again(wire: Wire, server: Loopback) -> None:
    for first in range(wire.enough):
        fault = wire.adapter.faulted(server, wire.stream(first), stream=True)
        assert fault.transient, first
        assert wire.no_end in str(fault)
    assert wire.adapter.answered(
        server, wire.stream(wire.enough), settings={"stream": True}
    ).text == "The answer"  # fmt: skip


# ---- faults


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_request_that_is_refused_is_not_repeated(
    wire: Wire, server: Loopback, status: int
) -> None:
    fault = wire.adapter.faulted(server, wire.error("no good", status), max_retries=3)
    assert (fault.transient, fault.billable, fault.status) == (False, False, status)
    assert "no good" in str(fault)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_a_service_that_is_busy_is_asked_again(wire: Wire, server: Loopback, status: int) -> None:
    busy = wire.error("Overloaded", status)
    server.answer = lambda asked: wire.whole() if asked.number == 2 else busy
    reply = wire.adapter.ask(server)
    assert (reply.text, reply.retries) == ("4", 2)
    fault = wire.adapter.faulted(server, busy)
    assert (fault.transient, fault.status) == (True, status)


def test_a_rate_limit_is_waited_for_as_long_as_it_says(wire: Wire, server: Loopback) -> None:
    limit = wire.error("slow down", 429, **{"retry-after": "0.3"})
    server.answer = lambda asked: wire.whole() if asked.number else limit
    began = time.monotonic()
    assert wire.adapter.ask(server).retries == 1
    assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize(
    ("reply", "transient", "words"),
    [
        (Reply(body=b"<html>Log in</html>"), False, "not JSON"),
        (Reply(body=b""), True, "empty"),
        (Reply(body=b'{"content": [{"ty'), True, "broken JSON"),
        (Reply(body=b'{"error": ' + b"[" * 100_000), False, "nested too deeply"),
        (Reply(body=b"[]"), False, "wrong shape"),
    ],
    ids=["html", "empty", "broken", "nested", "list"],
)
def test_what_is_no_answer_is_a_clear_fault(
    wire: Wire, server: Loopback, reply: Reply, transient: bool, words: str
) -> None:
    fault = wire.adapter.faulted(server, reply)
    assert fault.transient is transient
    assert words in str(fault)


# ---- connections


@pytest.mark.parametrize("stream", [False, True])
def test_a_connection_is_used_again(wire: Wire, server: Loopback, stream: bool) -> None:
    server.answer = lambda _: wire.stream() if stream else wire.whole()
    ask = [lambda _: question()] * 3
    wire.adapter.conversation(server, *ask, settings={"stream": stream})
    assert len({asked.connection for asked in server.requests}) == 1


def test_a_model_can_be_used_after_it_was_closed(wire: Wire, server: Loopback) -> None:
    async def main() -> list[str]:
        model = wire.adapter.build(wire.adapter.spec_of(server))
        texts = []
        for _ in range(2):
            texts.append((await model.complete(question())).text)
            await close_model(model)
        await close_model(model)
        return texts

    assert asyncio.run(main()) == ["4", "4"]


def test_many_requests_run_at_once_and_each_gets_its_own_answer(
    wire: Wire, server: Loopback
) -> None:
    def slowly(asked: Asked) -> Reply:
        time.sleep(0.3)
        number = re.search(r"question (\d+)", json.dumps(asked.body))
        return wire.whole(number[1] if number else "")

    server.answer = slowly

    async def main() -> list[str]:
        model = wire.adapter.build(wire.adapter.spec_of(server))
        questions = [Message(role="user", content=f"question {i}") for i in range(20)]
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(model.complete(question(q))) for q in questions]
        await close_model(model)
        return [task.result().text for task in asked]

    assert asyncio.run(main()) == [str(i) for i in range(20)]
    assert server.peak_in_flight > 10


# ---- models in this process


def _in_this_process() -> dict[str, Callable[[], Model]]:
    spec = ModelSpec(provider="embedded", name="smollm2-135m", parameters={"max_tokens": 4})
    return {
        "scripted": lambda: scripted.build(ModelSpec(provider="scripted", name="echo")),
        "function": lambda: FunctionModel(lambda request: request.messages[-1].content),
        "own": lambda: OwnModel(_Plain(), {"temperature": 0}),
        "embedded": lambda: embedded.build(spec),
    }


class _Plain:
    """The least that is a model: it cannot even be closed."""

    async def complete(self, request: Request, /) -> Completion:
        return Completion(text=request.messages[-1].content)


@pytest.mark.parametrize("name", [*_in_this_process()])
def test_a_model_in_this_process_is_asked_in_the_same_way(name: str) -> None:
    if name == "embedded":
        require_embedded_model()

    async def main() -> list[Completion]:
        model = _in_this_process()[name]()
        questions = [Message(role="user", content=f"question {i}") for i in range(3)]
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(model.complete(question(q))) for q in questions]
        await close_model(model)
        await close_model(model)
        return [task.result() for task in asked]

    replies = asyncio.run(main())
    assert all(type(reply) is Completion and reply.text for reply in replies)
    if name in {"function", "own"}:
        assert all(reply.elapsed_s > 0 for reply in replies), "what they do not say is measured"
    if name != "embedded":  # that one says what it likes
        assert [reply.text for reply in replies] == [f"question {i}" for i in range(3)]
