"""Every dialect in front of every adapter: what is said arrives as it was said, both ways."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bakeoff.core.outcome import Completion, Journal
from bakeoff.core.ports import close_model
from bakeoff.core.task import Message, ToolCall
from bakeoff.engine.meter import Meter
from bakeoff.gateway.model_access import TrialModelAccess
from bakeoff.gateway.server import open_gateway
from bakeoff.models.adapters.function import FunctionModel
from support.askers import ASKERS, Heard, Requester, Turn, result, system, user
from support.endpoints import CALL, ENDPOINTS, FINAL, LOOKING, TOKENS, Endpoint
from support.loopback import Loopback, chat

both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
every_asker = pytest.mark.parametrize("asker", ASKERS, ids=lambda a: a.name)
every_endpoint = pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: e.name)

Ask = Callable[[list[Turn]], Awaitable[Heard]]


async def through(
    folder: Path,
    model: Any,
    asker: Requester,
    talk: Callable[[Ask], Awaitable[None]],
    *,
    stream: bool,
    over_tcp: bool = True,
) -> tuple[Journal, TrialModelAccess, Meter]:
    """Let *talk* ask through a gateway in front of *model*."""
    journal, meter = Journal(), Meter(model)
    gateway = await open_gateway(folder)
    door = gateway.admit(meter, journal, rollout=0)
    connector = None if over_tcp else aiohttp.UnixConnector(gateway.address.socket)
    headers = {"Authorization": f"Bearer {door.token}"}
    try:
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

            async def ask(turns: list[Turn]) -> Heard:
                body = asker.body(turns, stream=stream, tools=("weather", "news"))
                url = gateway.address.url + asker.path(stream=stream)
                async with session.post(url, json=body) as answer:
                    assert answer.status == 200, await answer.text()
                    if stream:
                        assert answer.content_type == "text/event-stream"
                        return asker.streamed(await answer.text())
                    return asker.whole(await answer.json())

            await talk(ask)
    finally:
        await gateway.close()
    return journal, door, meter


@both_ways
@every_endpoint
@every_asker
def test_a_tool_is_called_and_its_result_comes_back(
    asker: Requester, endpoint: Endpoint, stream: bool, tmp_path: Path
) -> None:
    heard: list[Heard] = []

    async def talk(ask: Ask) -> None:
        turns = [system("Be brief."), user("How is it in Köln?")]
        heard.append(await ask(turns))
        turns = [*turns, heard[0].turn(), result(heard[0].calls[0], "rain: 3 mm")]
        heard.append(await ask(turns))

    async def main(server: Loopback) -> tuple[Journal, TrialModelAccess, Meter]:
        model = endpoint.model(server)
        try:
            return await through(tmp_path, model, asker, talk, stream=stream, over_tcp=stream)
        finally:
            await close_model(model)

    with Loopback(endpoint.answer) as server:
        journal, door, meter = asyncio.run(main(server))

    first, last = heard
    ((key, name, arguments),) = first.calls
    assert (first.text, name, arguments) == (LOOKING, *CALL[1:])
    assert key == CALL[0] if endpoint.gives_ids else key
    assert (last.text, last.calls) == (FINAL, [])
    assert (first.ended, last.ended) == (asker.ends["tools"], asker.ends["stop"])
    assert first.tokens == last.tokens == TOKENS
    assert first.model == last.model == "named-by-me"

    asked = [endpoint.seen(request.body) for request in server.requests]
    before = [system("Be brief."), user("How is it in Köln?")]
    called = Turn(role="assistant", text=LOOKING, calls=[(key, *CALL[1:])])
    assert asked[0] == before
    assert asked[1] == [*before, called, Turn(role="tool", text="rain: 3 mm", call_id=key)]

    assert [m.role for m in journal.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert journal.messages[2].tool_calls[0].id == journal.messages[3].tool_call_id == key
    assert door.requests == meter.spent.requests == len(server.requests) == 2
    assert (meter.spent.usage.input_tokens, meter.spent.usage.output_tokens) == (34, 10)


@every_endpoint
@every_asker
def test_no_key_of_a_provider_is_seen_and_no_token_is_sent_on(
    asker: Requester, endpoint: Endpoint, tmp_path: Path
) -> None:
    async def talk(ask: Ask) -> None:
        await ask([user("Hello")])

    async def main(server: Loopback) -> TrialModelAccess:
        model = endpoint.model(server)
        try:
            return (await through(tmp_path, model, asker, talk, stream=False))[1]
        finally:
            await close_model(model)

    with Loopback(endpoint.answer) as server:
        door = asyncio.run(main(server))
    (asked,) = server.requests
    sent = str(asked.headers) + str(asked.body)
    assert "the-real-key" in str(asked.headers)
    assert door.token not in sent


def answering(completion: Completion) -> FunctionModel:
    return FunctionModel(lambda _: completion)


def heard_of(asker: Requester, completion: Completion, folder: Path, *, stream: bool) -> Heard:
    heard: list[Heard] = []

    async def talk(ask: Ask) -> None:
        heard.append(await ask([user("Hello")]))

    asyncio.run(through(folder, answering(completion), asker, talk, stream=stream))
    return heard[0]


@both_ways
@every_asker
def test_reasoning_two_calls_and_no_text_arrive(
    asker: Requester, stream: bool, tmp_path: Path
) -> None:
    calls = (
        ToolCall(id="a", name="weather", arguments='{"city": "Bonn"}'),
        ToolCall(id="b", name="news", arguments="{}"),
    )
    # a server that calls tools and says `stop` is no rare thing
    completion = Completion(text="", reasoning="Hm …", tool_calls=calls, stop_reason="stop")
    heard = heard_of(asker, completion, tmp_path, stream=stream)
    assert heard.calls == [("a", "weather", {"city": "Bonn"}), ("b", "news", {})]
    assert (heard.text, heard.reasoning) == ("", "Hm …")
    assert heard.ended == asker.ends["tools"]
    assert heard.tokens == (0, 0)


@both_ways
@every_asker
def test_an_answer_that_was_cut_says_so(asker: Requester, stream: bool, tmp_path: Path) -> None:
    completion = Completion(text="It was", stop_reason="length")
    heard = heard_of(asker, completion, tmp_path, stream=stream)
    assert (heard.text, heard.ended) == ("It was", asker.ends["length"])


@both_ways
@every_asker
def test_an_answer_without_a_word_is_an_answer(
    asker: Requester, stream: bool, tmp_path: Path
) -> None:
    heard = heard_of(asker, Completion(text=""), tmp_path, stream=stream)
    assert (heard.text, heard.calls, heard.ended) == ("", [], asker.ends["stop"])


@every_asker
def test_the_model_gets_back_the_words_it_wrote(asker: Requester, tmp_path: Path) -> None:
    """Programs write arguments anew; adapters find signed thoughts by the words of a call."""
    wrote = '{ "city" :"K\\u00f6ln"}'
    asked: list[tuple[Message, ...]] = []

    def answer(request: Any) -> Completion:
        asked.append(request.messages)
        if len(asked) > 1:
            return Completion(text="done")
        call = ToolCall(id="call_0", name="weather", arguments=wrote)
        return Completion(text="Looking. ", reasoning="It asks.", tool_calls=(call,))

    async def talk(ask: Ask) -> None:
        first = await ask([user("Köln?")])
        said = first.turn()
        said.text = said.text.strip()
        await ask([user("Köln?"), said, result(first.calls[0], "rain")])

    asyncio.run(through(tmp_path, FunctionModel(answer), asker, talk, stream=True))
    again = asked[1][1]
    assert again.tool_calls[0].arguments == wrote
    assert (again.content, again.reasoning) == ("Looking. ", "It asks.")


@every_asker
def test_a_server_that_counts_its_calls_anew_does_not_mix_them_up(
    asker: Requester, tmp_path: Path
) -> None:
    asked: list[tuple[Message, ...]] = []

    def answer(request: Any) -> Completion:
        asked.append(request.messages)
        if len(asked) > 2:
            return Completion(text="done")
        arguments = f'{{"city": "{len(asked)}"}}'
        call = ToolCall(id="call_0", name="weather", arguments=arguments)
        return Completion(text="", tool_calls=(call,))

    async def talk(ask: Ask) -> None:
        turns = [user("Both?")]
        for text in ("rain", "snow"):
            heard = await ask(turns)
            turns += [heard.turn(), result(heard.calls[0], text)]
        await ask(turns)

    asyncio.run(through(tmp_path, FunctionModel(answer), asker, talk, stream=True))
    first, second = (m.tool_calls[0] for m in asked[2] if m.tool_calls)
    assert (first.arguments, second.arguments) == ('{"city": "1"}', '{"city": "2"}')
    results = {m.tool_call_id: m.content for m in asked[2] if m.role == "tool"}
    assert results == {first.id: "rain", second.id: "snow"}


@pytest.mark.parametrize("asker", ASKERS[2:], ids=lambda a: a.name)  # text in the others
def test_arguments_that_are_no_json_survive_the_way_there_and_back(
    asker: Requester, tmp_path: Path
) -> None:
    asked: list[tuple[Message, ...]] = []

    def answer(request: Any) -> Completion:
        asked.append(request.messages)
        if len(asked) > 1:
            return Completion(text="done")
        call = ToolCall(id="c", name="weather", arguments='{"city": ')
        return Completion(text="", tool_calls=(call,))

    async def talk(ask: Ask) -> None:
        heard = await ask([user("Köln?")])
        assert list(heard.calls[0][2].values()) == ['{"city": ']
        await ask([user("Köln?"), heard.turn(), result(heard.calls[0], "bad arguments")])

    asyncio.run(through(tmp_path, FunctionModel(answer), asker, talk, stream=True))
    assert asked[1][1].tool_calls[0].arguments == '{"city": '


@both_ways
@every_asker
def test_a_program_gets_its_answer_though_the_token_counts_are_no_numbers(
    asker: Requester, stream: bool, tmp_path: Path
) -> None:
    heard: list[Heard] = []

    async def talk(ask: Ask) -> None:
        heard.append(await ask([user("How is it in Köln?")]))

    async def main(server: Loopback) -> Meter:
        model = ENDPOINTS[0].model(server)
        try:
            return (await through(tmp_path, model, asker, talk, stream=stream))[2]
        finally:
            await close_model(model)

    usage = {"prompt_tokens": "7", "completion_tokens": [3], "cost": True}
    with Loopback(lambda _: chat(FINAL, usage=usage)) as server:
        meter = asyncio.run(main(server))
    assert heard[0].text == FINAL
    assert heard[0].tokens == (0, 0)
    assert meter.spent.usage.input_tokens is None
    assert meter.spent.flags == ("usage_unreadable",)
