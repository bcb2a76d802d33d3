"""The gateway as programs meet it: over real sockets, with real tokens, limits and faults."""

import asyncio
import gzip
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bakeoff._lib import scratch
from bakeoff.core.budget import Cap, Tariff
from bakeoff.core.candidate import Limits, ModelSpec
from bakeoff.core.errors import BudgetReached, LimitReached, ProviderError
from bakeoff.core.outcome import Completion, Journal, Request, Usage
from bakeoff.core.task import Message, ToolCall
from bakeoff.engine.budget import AttemptBill, Budget
from bakeoff.engine.meter import Meter
from bakeoff.gateway.model_access import RequestBounds, TrialModelAccess
from bakeoff.gateway.server import GatewayServer, open_gateway
from bakeoff.models.adapters import openai_compatible
from bakeoff.models.adapters.function import FunctionModel
from support.askers import ASKERS, Requester, events_of, user
from support.loopback import Loopback, Reply, chat, silence
from support.pictures import RED, b64, uri

every_asker = pytest.mark.parametrize("asker", ASKERS, ids=lambda a: a.name)
both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def echo(request: Request) -> Completion:
    usage = Usage(input_tokens=3, output_tokens=2)
    return Completion(text=f"echo {request.messages[-1].content}", usage=usage)


class Program:
    """A program that knows the address of a gateway and a token."""

    def __init__(self, gateway: GatewayServer, session: aiohttp.ClientSession, token: str) -> None:
        self._root = gateway.address.url
        self._session = session
        self.token = token

    async def post(
        self, path: str, body: Any, *, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return the status, and the answer as data or as text."""
        given = {"Authorization": f"Bearer {self.token}"} if headers is None else headers
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        async with self._session.post(self._root + path, data=data, headers=given) as answer:
            text = await answer.text()
            whole = answer.content_type == "application/json"
            return answer.status, json.loads(text) if whole else text

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self._session.get(self._root + path, headers=headers) as answer:
            return answer.status, await answer.json()

    async def ask(self, asker: Requester, text: str = "Hello", *, stream: bool = False) -> Any:
        body = asker.body([user(text)], stream=stream)
        return await self.post(asker.path(stream=stream), body)


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[tuple[GatewayServer, Any]]:
    """Open a gateway, and a way to let programs in."""
    gateway = await open_gateway(folder, **settings)
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            def admit(
                model: Any, journal: Journal | None = None
            ) -> tuple[TrialModelAccess, Program]:
                asks = model if isinstance(model, Meter) else Meter(model)
                door = gateway.admit(asks, journal or Journal(), rollout=0)
                return door, Program(gateway, session, door.token)

            yield gateway, admit
    finally:
        await gateway.close()


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


# --- where it is


def test_whoever_is_shown_the_socket_may_connect_and_nobody_else_gets_at_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "gw") as (gateway, admit):
            path = Path(gateway.address.socket)
            assert path.parent == tmp_path / "gw"
            assert len(os.fsencode(path)) < 100
            assert stat.S_IMODE(path.stat().st_mode) == 0o666
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
            assert gateway.address.url.startswith("http://127.0.0.1:")
            door, _ = admit(FunctionModel(echo))
            connector = aiohttp.UnixConnector(str(path))
            async with aiohttp.ClientSession(connector=connector) as session:
                headers = {"x-api-key": door.token}
                body = {"messages": [{"role": "user", "content": "hi"}]}
                url = "http://gateway/v1/chat/completions"
                async with session.post(url, json=body, headers=headers) as answer:
                    assert (await answer.json())["choices"][0]["message"]["content"] == "echo hi"
        assert list((tmp_path / "gw").iterdir()) == []

    run(main)


def test_a_folder_too_deep_for_the_name_of_a_socket_will_do(tmp_path: Path) -> None:
    async def main() -> None:
        deep = tmp_path / ("d" * 90) / "gw"
        async with opened(deep) as (gateway, admit):
            socket = Path(gateway.address.socket)
            assert stat.S_ISSOCK(socket.stat().st_mode)
            short = tmp_path / "s"  # as a box is shown the socket: at a place of its own
            short.symlink_to(socket.parent)
            door, _ = admit(FunctionModel(echo))
            connector = aiohttp.UnixConnector(str(short / socket.name))
            async with aiohttp.ClientSession(connector=connector) as session:
                headers = {"x-api-key": door.token}
                async with session.get("http://gateway/v1/models", headers=headers) as answer:
                    assert answer.status == 200
        assert not socket.exists()

    run(main)


def test_what_a_killed_run_left_is_found() -> None:
    script = """
import asyncio, os, signal
from bakeoff._lib import scratch
from bakeoff.gateway.server import open_gateway
async def main():
    gateway = await open_gateway(scratch.new_folder("gateway"))
    print(gateway.address.socket, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    left = Path(ended.stdout.strip())
    assert left.exists()
    assert left.parent in scratch.orphans()
    scratch.remove(left.parent)


# --- who may ask


@every_asker
def test_every_way_to_show_the_token_lets_in(asker: Requester, tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (_, admit):
            door, program = admit(FunctionModel(echo))
            token = door.token
            body = asker.body([user("Hello")], stream=False)
            path = asker.path(stream=False)
            for headers in (
                {"Authorization": f"Bearer {token}"},
                {"authorization": f"bearer {token}"},
                {"x-api-key": token},
                {"x-goog-api-key": token},
                {"Authorization": "Bearer of-somebody-else", "x-api-key": token},
            ):
                assert (await program.post(path, body, headers=headers))[0] == 200
            assert (await program.post(f"{path}?key={token}", body, headers={}))[0] == 200
            assert door.requests == 6

    run(main)


@both_ways
@every_asker
def test_an_unknown_or_closed_token_is_refused_in_the_words_of_the_dialect(
    asker: Requester, stream: bool, tmp_path: Path
) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (_, admit):
            door, program = admit(FunctionModel(echo))
            token = program.token
            for wrong in ("", "x", token[:-1], token + "x", "ü"):
                program.token = wrong
                status, data = await program.ask(asker, stream=stream)
                assert status == 401
                assert "the token of the trial" in asker.error(data)
            status, _ = await program.post(asker.path(stream=stream), b"", headers={})
            assert status == 401
            program.token = token
            assert (await program.ask(asker, stream=stream))[0] == 200
            door.close()
            status, data = await program.ask(asker, stream=stream)
            assert status == 401
            assert token not in json.dumps(data)
            assert door.requests == 1

    run(main)


def test_two_trials_at_once_are_never_mixed_up(tmp_path: Path) -> None:
    async def slowly(request: Request, *, name: str) -> str:
        await asyncio.sleep(0.001)
        return f"{name}:{request.messages[-1].content}"

    async def main() -> None:
        async with opened(tmp_path) as (_, admit):
            journals = {name: Journal() for name in ("red", "blue")}
            programs = {
                name: admit(FunctionModel(slowly, {"name": name}), journal)[1]
                for name, journal in journals.items()
            }

            async def ask(name: str, number: int) -> None:
                asker = ASKERS[number % 4]
                _, data = await programs[name].ask(asker, f"{name}-{number}")
                assert asker.whole(data).text == f"{name}:{name}-{number}"

            async with asyncio.TaskGroup() as group:
                for number in range(40):
                    for name in programs:
                        group.create_task(ask(name, number))
            for name, journal in journals.items():
                assert len(journal.messages) == 80
                assert all(name in message.content for message in journal.messages)

    run(main)


def test_fifty_parallel_questions_of_one_trial_are_each_asked_and_counted(
    tmp_path: Path,
) -> None:
    most = 0
    under_way = 0

    async def together(request: Request) -> Completion:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        while most < 50:  # ends only if all of them are let in at once
            await asyncio.sleep(0.001)
        under_way -= 1
        return echo(request)

    async def main() -> None:
        async with opened(tmp_path) as (_, admit):
            meter = Meter(FunctionModel(together))
            door, program = admit(meter)

            async def ask(number: int) -> None:
                asker = ASKERS[number % 4]
                stream = number % 3 == 0
                status, data = await program.ask(asker, f"q{number}", stream=stream)
                assert status == 200
                heard = asker.streamed(data) if stream else asker.whole(data)
                assert heard.text == f"echo q{number}"

            async with asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task(ask(number))
            assert door.requests == meter.spent.requests == 50

    run(main)


# --- limits, faults, and clients that go


@both_ways
@every_asker
def test_a_limit_is_told_to_the_program_and_to_the_trial(
    asker: Requester, stream: bool, tmp_path: Path
) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (_, admit):
            meter = Meter(FunctionModel(echo), Limits(requests=2))
            door, program = admit(meter)
            waiting = asyncio.create_task(door.refused())
            for _ in range(2):
                assert (await program.ask(asker, stream=stream))[0] == 200
            assert not waiting.done()
            status, data = await program.ask(asker, stream=stream)
            assert status == 400
            assert asker.error(data) == "no more requests: 2 requests are spent"
            assert isinstance(await waiting, LimitReached)
            assert (await program.ask(asker, stream=stream))[0] == 400
            assert isinstance(await door.refused(), LimitReached)
            assert door.fault is None
            assert door.requests == 3

    run(main)


def test_the_end_of_the_budget_refuses_every_trial_that_asks(tmp_path: Path) -> None:
    async def main() -> None:
        budget = Budget(Cap(tokens=10))
        tariff = Tariff()
        async with opened(tmp_path) as (_, admit):
            meter = Meter(FunctionModel(echo), tariff=tariff, attempt_bill=AttemptBill(budget))
            door, program = admit(meter)
            body = {"max_tokens": 9000, "messages": [{"role": "user", "content": "hi"}]}
            status, data = await program.post("/v1/messages", body)
            assert status == 400
            assert "tokens" in data["error"]["message"]
            assert isinstance(await door.refused(), BudgetReached)

    run(main)


@both_ways
@every_asker
def test_a_fault_is_kept_until_a_question_is_answered(
    asker: Requester, stream: bool, tmp_path: Path
) -> None:
    broken = True

    def answer(request: Request) -> Completion:
        if broken:
            raise ProviderError("the endpoint is down", transient=True)
        return echo(request)

    async def main() -> None:
        nonlocal broken
        async with opened(tmp_path) as (_, admit):
            door, program = admit(FunctionModel(answer))
            assert door.fault is None
            status, data = await program.ask(asker, stream=stream)
            assert (status, asker.error(data)) == (502, "the endpoint is down")
            assert str(door.fault) == "the endpoint is down"
            broken = False
            assert (await program.ask(asker, stream=stream))[0] == 200
            assert door.fault is None

    run(main)


def test_a_program_that_asks_again_and_again_after_a_fault_is_told_to_stop(
    tmp_path: Path,
) -> None:
    """Agents try a 5xx again by themselves, some ten times; a 400 ends it."""

    async def main() -> None:
        with Loopback(lambda _: Reply(status=503, body=b"{}")) as server:
            settings = {"max_retries": 1, "retry_delay_s": 0.001}
            spec = ModelSpec(provider="x", name="m", base_url=server.url, settings=settings)
            model = openai_compatible.build(spec)
            async with opened(tmp_path) as (_, admit):
                door, program = admit(model)
                statuses = [(await program.ask(ASKERS[1], stream=True))[0] for _ in range(4)]
                assert statuses == [502, 502, 400, 400]
                assert "503" in str(door.fault)
                assert len(server.requests) == 8
                server.answer = lambda _: chat("up again")
                assert (await program.ask(ASKERS[0]))[0] == 200
                server.answer = lambda _: Reply(status=503, body=b"{}")
                assert (await program.ask(ASKERS[1]))[0] == 502
            await model.close()

    run(main)


def test_a_fault_that_will_not_pass_is_no_reason_to_ask_again(tmp_path: Path) -> None:
    async def main() -> None:
        error = json.dumps({"error": {"message": "no such model", "type": "not_found"}}).encode()
        with Loopback(lambda _: Reply(status=404, body=error)) as server:
            spec = ModelSpec(provider="x", name="m", base_url=server.url, api_key="sk-secret-key")
            model = openai_compatible.build(spec)
            async with opened(tmp_path) as (_, admit):
                door, program = admit(model)
                status, data = await program.ask(ASKERS[0])
                assert status == 400
                assert "no such model" in data["error"]["message"]
                assert "sk-secret-key" not in json.dumps(data)
                assert isinstance(door.fault, ProviderError)
            await model.close()

    run(main)


def test_a_client_that_goes_cancels_its_question(tmp_path: Path) -> None:
    async def main() -> None:
        cancelled = asyncio.Event()
        asked = asyncio.Event()

        async def never(_: Request) -> str:
            asked.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return ""

        async with opened(tmp_path, ping_s=0.05) as (_, admit):
            for stream in (False, True):
                door, program = admit(FunctionModel(never))
                asking = asyncio.create_task(program.ask(ASKERS[0], stream=stream))
                await asked.wait()
                await asyncio.sleep(0.15)  # a stream has begun by now
                asking.cancel()
                await cancelled.wait()
                await door.settled()
                assert door.fault is None
                asked.clear()
                cancelled.clear()

    run(main)


def test_a_question_under_way_is_cut_when_its_door_closes(tmp_path: Path) -> None:
    async def main() -> None:
        with Loopback(lambda _: Reply(raw=silence())) as server:
            spec = ModelSpec(provider="x", name="m", base_url=server.url)
            model = openai_compatible.build(spec)
            async with opened(tmp_path) as (_, admit):
                door, program = admit(model)
                asking = asyncio.create_task(program.ask(ASKERS[0]))
                while not server.requests:
                    await asyncio.sleep(0.01)
                door.close()
                await door.settled()
                status, data = await asking
                assert status == 401
                assert data["error"]["message"] == "the trial of this key is over"
            await model.close()

    run(main)


def test_a_question_that_comes_in_while_its_door_closes_is_not_asked(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (_, admit):
            door, program = admit(FunctionModel(echo))
            begun, closed = asyncio.Event(), asyncio.Event()

            async def slowly() -> AsyncIterator[bytes]:
                yield b'{"messages": [{"role": "user",'
                begun.set()
                await closed.wait()
                yield b' "content": "hi"}]}'

            asking = asyncio.create_task(program.post("/v1/chat/completions", slowly()))
            await begun.wait()
            await asyncio.sleep(0.1)  # the head has arrived, and its token was good
            door.close()
            await door.settled()
            closed.set()
            status, data = await asking
            assert (status, door.requests) == (401, 0)
            assert data["error"]["message"] == "the trial of this key is over"

    run(main)


def test_closing_the_gateway_does_not_wait_for_a_model(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def never(_: Request) -> str:
        asked.set()
        await asyncio.sleep(3600)
        return ""

    async def main() -> None:
        async with opened(tmp_path) as (gateway, admit):
            _, program = admit(FunctionModel(never))
            asking = asyncio.create_task(program.ask(ASKERS[2], stream=True))
            await asked.wait()
            await asyncio.wait_for(gateway.close(), 10)
            assert (await asking)[0] == 401
            with pytest.raises(aiohttp.ClientConnectionError):
                await program.ask(ASKERS[0])

    run(main)


# --- waiting


@every_asker
def test_a_client_that_waits_is_kept_awake_until_the_answer(
    asker: Requester, tmp_path: Path
) -> None:
    async def slowly(request: Request) -> Completion:
        await asyncio.sleep(0.5)
        return echo(request)

    async def main() -> None:
        async with opened(tmp_path, ping_s=0.1) as (_, admit):
            _, program = admit(FunctionModel(slowly))
            status, text = await program.ask(asker, stream=True)
            assert status == 200
            assert asker.streamed(text).text == "echo Hello"
            pings = {
                "chat": text.count(": waiting"),
                "responses": text.count("event: response.in_progress"),
                "messages": text.count("event: ping"),
                "gemini": text.count("\n\n") - 1,
            }
            assert pings[asker.name] >= 2

    run(main)


@every_asker
def test_a_fault_after_the_stream_began_is_its_last_event(asker: Requester, tmp_path: Path) -> None:
    async def fails(_: Request) -> str:
        await asyncio.sleep(0.3)
        raise ProviderError("it broke", transient=True)

    async def main() -> None:
        async with opened(tmp_path, ping_s=0.05) as (_, admit):
            door, program = admit(FunctionModel(fails))
            status, text = await program.ask(asker, stream=True)
            last = events_of(text)[-1]
            assert status == 200
            if asker.name == "responses":
                assert last["type"] == "response.failed"
                last = last["response"]
            assert last["error"]["message"] == "it broke"
            assert str(door.fault) == "it broke"

    run(main)


def test_a_limit_after_the_stream_began_is_named_so_that_codex_does_not_ask_again(
    tmp_path: Path,
) -> None:
    async def fails(_: Request) -> str:
        await asyncio.sleep(0.3)
        raise LimitReached("3 requests are spent")

    async def main() -> None:
        async with opened(tmp_path, ping_s=0.05) as (_, admit):
            door, program = admit(FunctionModel(fails))
            _, text = await program.ask(ASKERS[1], stream=True)
            assert events_of(text)[-1]["response"]["error"]["code"] == "insufficient_quota"
            assert isinstance(await door.refused(), LimitReached)

    run(main)


# --- what is not understood


@every_asker
def test_a_picture_reaches_the_model_and_the_transcript(asker: Requester, tmp_path: Path) -> None:
    seen: list[Message] = []

    async def looks(request: Request) -> str:
        seen.append(request.messages[-1])
        return "red"

    async def main() -> None:
        async with opened(tmp_path) as (_, admit):
            journal = Journal()
            _, program = admit(FunctionModel(looks), journal)
            status, _ = await program.post(asker.path(stream=False), asker.image)
            assert status == 200
            (shown,) = seen[0].attachments
            assert (shown.media_type, shown.read()) == ("image/png", RED)
            assert journal.messages[0].attachments == seen[0].attachments

    run(main)


@every_asker
def test_a_picture_without_its_content_is_refused_with_the_reason(
    asker: Requester, tmp_path: Path
) -> None:
    elsewhere = json.loads(json.dumps(asker.image).replace(uri(RED), "https://example.org/a.png"))
    broken = json.loads(json.dumps(elsewhere).replace(b64(RED), "AA=A"))

    async def main() -> None:
        async with opened(tmp_path) as (_, admit):
            journal = Journal()
            door, program = admit(FunctionModel(echo), journal)
            status, data = await program.post(asker.path(stream=False), broken)
            assert status == 400
            fetched = "the gateway fetches nothing" in asker.error(data)
            assert fetched or "not valid base 64" in asker.error(data)
            assert (door.requests, door.fault, journal.messages) == (0, None, [])

    run(main)


def test_a_picture_that_a_tool_gave_back_is_refused_with_the_reason(tmp_path: Path) -> None:
    block = {"type": "image", "source": {"type": "base64", "media_type": "x", "data": b64(RED)}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [block]}
    body = {"max_tokens": 9, "messages": [{"role": "user", "content": [result]}]}

    async def main() -> None:
        async with opened(tmp_path) as (_, admit):
            journal = Journal()
            _, program = admit(FunctionModel(echo), journal)
            status, data = await program.post("/v1/messages", body)
            assert status == 400
            assert "the gateway carries text there" in json.dumps(data)
            assert "carries text there" in (journal.log or "")

    run(main)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "the request is not JSON"),
        (b"<html>", "it begins '<html>'"),
        (b"\xff\xfe", "the request is not JSON"),
        (b"[]", "wrong shape"),
        (b'{"messages": 1}', "$.messages"),
        (b'{"messages": [{"content": "x"}]}', "role"),
        (b'{"messages": []}', "there is no message"),
        (b'{"messages": [{"role": "king", "content": "x"}]}', "'king'"),
        (b'{"messages": [], "tool_choice": ' + b"[" * 100_000 + b"}", "nested too deeply"),
        (b'{"messages": [{"role": "user", "content": "x"}], "n": 3}', "one choice"),
    ],
)
def test_a_body_that_is_no_question_is_told_what_is_wrong(
    body: bytes, why: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (_, admit):
            _, program = admit(FunctionModel(echo))
            status, data = await program.post("/v1/chat/completions", body)
            assert status == 400
            assert why in data["error"]["message"]

    run(main)


def test_half_a_character_is_replaced_and_asked(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (_, admit):
            _, program = admit(FunctionModel(echo))
            body = b'{"messages": [{"role": "user", "content": "a \\ud83d b"}]}'
            status, data = await program.post("/chat/completions", body)
            assert status == 200
            assert data["choices"][0]["message"]["content"] == "echo a � b"

    run(main)


def _cpu_of_inflating(packed: bytes) -> float:
    began = time.process_time()
    gzip.decompress(packed)
    return time.process_time() - began


def test_a_body_that_is_too_large_or_compressed_is_refused_and_never_inflated(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with opened(tmp_path, bounds=RequestBounds(body=100_000)) as (_, admit):
            door, program = admit(FunctionModel(echo))
            large = json.dumps({"messages": [{"role": "user", "content": "x" * 200_000}]}).encode()
            status, data = await program.post("/v1/messages", large)
            assert (status, data["error"]["type"]) == (413, "request_too_large")
            headers = {"x-api-key": door.token, "Content-Encoding": "gzip"}
            bomb = gzip.compress(b"x" * 50_000_000)
            began = time.process_time()
            status, data = await program.post("/v1/messages", bomb, headers=headers)
            assert status == 415
            assert "without Content-Encoding" in data["error"]["message"]
            assert time.process_time() - began < _cpu_of_inflating(bomb)

    run(main)


def test_an_address_that_is_not_spoken_lists_those_that_are(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (_, admit):
            _, program = admit(FunctionModel(echo))
            for path in ("/v1/embeddings", "/", "/v1beta/models/m:embedContent", "/v1/messages/x"):
                status, data = await program.post(path, {})
                assert status == 404
                assert "POST /v1/responses" in data["error"]["message"]
            status, data = await program.get("/v1/chat/completions")
            assert status == 404
            status, _ = await program.post("/v1beta/models/m:streamGenerateContent", {})
            assert status == 400

    run(main)


def test_the_one_model_is_listed_in_the_shape_of_each_dialect(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (_, admit):
            _, program = admit(FunctionModel(echo))
            token = program.token
            for path in ("/v1/models", "/models"):
                _, data = await program.get(path, Authorization=f"Bearer {token}")
                assert [model["object"] for model in data["data"]] == ["model"]
            version = {"anthropic-version": "2023-06-01", "x-api-key": token}
            _, data = await program.get("/v1/models", **version)
            assert [model["type"] for model in data["data"]] == ["model"]
            _, data = await program.get("/v1beta/models", **{"x-goog-api-key": token})
            assert [model["name"] for model in data["models"]] == ["models/bakeoff"]
            _, data = await program.get("/v1/models/gpt-9", Authorization=f"Bearer {token}")
            assert data["id"] == "gpt-9"
            assert (await program.get("/v1/models"))[0] == 401

    run(main)


def test_tokens_are_estimated_and_nothing_is_asked(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (_, admit):
            journal = Journal()
            door, program = admit(FunctionModel(echo), journal)
            text = "word " * 400
            body = {"model": "m", "messages": [{"role": "user", "content": text}]}
            status, data = await program.post("/v1/messages/count_tokens", body)
            assert status == 200
            assert 300 <= data["input_tokens"] <= 700
            contents = [{"role": "user", "parts": [{"text": text}]}]
            path = "/v1beta/models/m:countTokens"
            _, alone = await program.post(path, {"contents": contents})
            whole = {"generateContentRequest": {"model": "models/m", "contents": contents}}
            _, wrapped = await program.post(path, whole)
            assert alone == wrapped == {"totalTokens": data["input_tokens"]}
            assert (door.requests, journal.messages) == (0, [])

    run(main)


def test_what_is_left_out_is_noted_once_in_the_log_of_the_trial(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (_, admit):
            journal = Journal()
            _, program = admit(FunctionModel(echo), journal)
            body = {"input": "hi", "tools": [{"type": "web_search"}]}
            for _ in range(2):
                assert (await program.post("/v1/responses", body))[0] == 200
            assert journal.log == "gateway: not carried on: a tool of the type 'web_search'\n"

    run(main)


def test_a_program_cannot_flood_the_log_of_the_trial(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (_, admit):
            journal = Journal()
            _, program = admit(FunctionModel(echo), journal)
            for number in range(300):
                body = {"messages": [{"role": f"{number}{'x' * 5_000}", "content": "hi"}]}
                status, data = await program.post("/v1/chat/completions", body)
                assert status == 400
                assert len(data["error"]["message"]) <= 1000
            assert journal.log is not None
            assert 1_000 < len(journal.log) < 200_000

    run(main)


@every_asker
@both_ways
def test_half_a_character_in_an_answer_does_not_break_it(
    tmp_path: Path, asker: Requester, stream: bool
) -> None:
    def broken(_: Request) -> Completion:
        call = ToolCall(id="1", name="run", arguments=r'{"text": "a \ud83d b"}')
        return Completion(text="so \ud83d far", tool_calls=(call,))

    async def main() -> None:
        async with opened(tmp_path) as (_, admit):
            _, program = admit(FunctionModel(broken))
            status, data = await program.ask(asker, stream=stream)
            assert status == 200
            heard = asker.streamed(data) if stream else asker.whole(data)
            assert heard.text == "so \ufffd far"
            assert heard.calls[0][1] == "run"

    run(main)
