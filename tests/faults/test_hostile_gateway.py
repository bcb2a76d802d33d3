"""Programs that mean harm to the gateway: they are refused in a sentence, and the host's memory stays small."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from bakeoff.app.run import new_event_loop
from bakeoff.core.outcome import Completion, Journal, Request
from bakeoff.core.task import ToolCall
from bakeoff.engine.meter import Meter
from bakeoff.gateway.model_access import RequestBounds
from bakeoff.gateway.server import GatewayServer, open_gateway
from bakeoff.models.adapters.function import FunctionModel
from support.askers import ASKERS, Requester, Turn, user

MB = 2**20

SERVER = """
import asyncio, sys
from bakeoff.app.run import new_event_loop
from pathlib import Path
from bakeoff.core.outcome import Journal
from bakeoff.engine.meter import Meter
from bakeoff.gateway.server import open_gateway
from bakeoff.models.adapters.function import FunctionModel

HOW = {
    "never": lambda: asyncio.sleep(3600),
    "at length": lambda: asyncio.sleep(0, "x" * 2**22),
    "at once": lambda: asyncio.sleep(0, "yes"),
}

def status(key):
    with open("/proc/self/status") as lines:
        return next(int(l.split()[1]) for l in lines if l.startswith(key))

async def main():
    gateway = await open_gateway(Path(sys.argv[1]))
    async def answer(request):
        return await HOW[sys.argv[2]]()
    door = gateway.admit(Meter(FunctionModel(answer)), Journal(), rollout=0)
    other = gateway.admit(Meter(FunctionModel(lambda _: "still here")), Journal(), rollout=0)
    print(gateway.address.url, door.token, other.token, status("VmRSS:"), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print(status("VmHWM:"), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await gateway.close()

with asyncio.Runner(loop_factory=new_event_loop) as runner:  # the loop that a run has
    runner.run(main())
"""


class Host:
    """A gateway in a process of its own, whose memory can be looked at."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        assert process.stdout is not None
        self.url, self.token, self.other, before = process.stdout.readline().split()
        self._before = int(before)

    def grown(self) -> float:
        """Return by how many megabytes it grew at its largest."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return (int(self._process.stdout.readline()) - self._before) / 1024

    def connect(self) -> socket.socket:
        parts = urlsplit(self.url)
        return socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=30)

    def request(self, body: bytes, *, length: int | None = None) -> bytes:
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Length: {len(body) if length is None else length}\r\n\r\n"
        )
        return head.encode() + body

    def asked_by_another(self) -> str:
        """Return what another trial of the same run is answered meanwhile."""
        body = question("are you there?")
        with self.connect() as sock:
            sock.sendall(self.request(body).replace(self.token.encode(), self.other.encode()))
            return sock.recv(65536).decode()


@contextmanager
def host(folder: Path, how: str) -> Iterator[Host]:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(folder), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Host(process)
        finally:
            process.kill()


def question(text: str) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text}]}).encode()


def status_of(sock: socket.socket, within_s: float) -> int | None:
    """Return the status that comes over *sock*, if one comes."""
    sock.settimeout(within_s)
    try:
        head = sock.recv(4096)
    except TimeoutError:
        return None
    return int(head.split()[1]) if head else None


def test_huge_questions_all_at_once_do_not_fill_the_memory(tmp_path: Path) -> None:
    with host(tmp_path, "never") as gateway, ExitStack() as opened:
        told = []
        for number in range(12):
            sock = opened.enter_context(gateway.connect())
            sock.sendall(gateway.request(question(f"{number:04}" + "x" * (15 * MB))))
            told.append(status_of(sock, 0.5))
        assert told.count(None) == 3, told  # 48 MB of questions wait for an answer
        assert told.count(429) == 9
        assert "still here" in gateway.asked_by_another()
        assert gateway.grown() < 250


def test_questions_that_never_end_do_not_fill_the_memory(tmp_path: Path) -> None:
    with host(tmp_path, "never") as gateway, ExitStack() as opened:
        sockets = [opened.enter_context(gateway.connect()) for _ in range(40)]
        piece, sent = b"x" * MB, 0
        for sock in sockets:
            sock.sendall(gateway.request(b'{"messages": "', length=16 * MB))
        for _ in range(12):
            for sock in sockets:
                try:
                    sock.settimeout(5)
                    sock.sendall(piece)
                    sent += 1
                except OSError:  # it was refused, and the door shut
                    continue
        assert sent > 100  # far more than is held
        assert 429 in [status_of(sock, 0.2) for sock in sockets]
        assert "still here" in gateway.asked_by_another()
        assert gateway.grown() < 250


def test_answers_that_nobody_reads_do_not_fill_the_memory(tmp_path: Path) -> None:
    with host(tmp_path, "at length") as gateway, ExitStack() as opened:
        sockets = [opened.enter_context(gateway.connect()) for _ in range(300)]
        for number, sock in enumerate(sockets):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(gateway.request(question(str(number))))
        time.sleep(1)
        told = [status_of(sock, 5) for sock in sockets]
        assert told.count(429) >= 300 - 128
        assert "still here" in gateway.asked_by_another()
        assert gateway.grown() < 900


def test_a_new_history_with_every_question_does_not_fill_the_memory(tmp_path: Path) -> None:
    with host(tmp_path, "at once") as gateway:
        for number in range(25):
            with gateway.connect() as sock:
                sock.sendall(gateway.request(question(f"{number:04}" + "y" * (10 * MB))))
                assert status_of(sock, 30) == 200
        assert gateway.grown() < 180


# --- what is refused, in the words of each dialect


@asynccontextmanager
async def opened(
    folder: Path,
    model: Callable[[Request], Any],
    bounds: RequestBounds,
    journal: Journal | None = None,
) -> AsyncIterator[tuple[GatewayServer, str, aiohttp.ClientSession]]:
    gateway = await open_gateway(folder, bounds=bounds)
    try:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(gateway.address.url, connector=connector) as session:
            door = gateway.admit(Meter(FunctionModel(model)), journal or Journal(), rollout=0)
            yield gateway, door.token, session
    finally:
        await gateway.close()


async def ask(
    session: aiohttp.ClientSession,
    token: str,
    asker: Requester,
    text: str = "hi",
    *,
    turns: int = 1,
) -> tuple[int, Any, Any]:
    both = (user(text), Turn(role="assistant", text="go on"))
    body = asker.body([both[n % 2] for n in range(turns)], stream=False)
    headers = {"Authorization": f"Bearer {token}"}
    async with session.post(asker.path(stream=False), json=body, headers=headers) as answer:
        return answer.status, await answer.json(), answer.headers


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:  # the loop that a run has
        runner.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("asker", ASKERS, ids=lambda a: a.name)
def test_one_question_too_many_is_told_to_come_back(asker: Requester, tmp_path: Path) -> None:
    async def main() -> None:
        resume = asyncio.Event()

        async def slowly(_: Request) -> str:
            await resume.wait()
            return "yes"

        async with opened(tmp_path, slowly, RequestBounds(requests=3)) as (_, token, session):
            async with asyncio.TaskGroup() as group:
                three = [group.create_task(ask(session, token, asker)) for _ in range(3)]
                await asyncio.sleep(0.2)
                status, told, headers = await ask(session, token, asker)
                assert status == 429
                assert "3 requests of this trial are under way" in json.dumps(told)
                assert headers["Retry-After"] == "1"
                assert "x-should-retry" not in headers
                resume.set()
            assert [task.result()[0] for task in three] == [200, 200, 200]
            assert (await ask(session, token, asker))[0] == 200  # the room is given back

    run(main)


@pytest.mark.parametrize("asker", ASKERS, ids=lambda a: a.name)
def test_a_question_in_too_many_pieces_is_refused(asker: Requester, tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path, lambda _: "yes", RequestBounds(parts=20)) as (
            _,
            token,
            session,
        ):
            status, told, _ = await ask(session, token, asker, turns=31)
            assert status == 413
            assert "more than 20 messages and tools" in json.dumps(told)
            assert (await ask(session, token, asker, turns=11))[0] == 200

    run(main)


def test_a_question_whose_program_went_takes_up_room_until_the_model_hears_of_it(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        resume = asyncio.Event()

        async def deaf(_: Request) -> str:
            while not resume.is_set():
                try:
                    await resume.wait()
                except asyncio.CancelledError:
                    continue
            return "yes"

        async with opened(tmp_path, deaf, RequestBounds(requests=2)) as (_, token, session):
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await ask(session, token, ASKERS[0])
            assert (await ask(session, token, ASKERS[0]))[0] == 429
            resume.set()
            await asyncio.sleep(0.1)
            assert (await ask(session, token, ASKERS[0]))[0] == 200

    run(main)


def test_a_flood_of_connections_shuts_nobody_out_who_has_a_token(tmp_path: Path) -> None:
    async def main() -> None:
        bounds = RequestBounds(all_connections=20, connections=5)
        async with opened(tmp_path, lambda _: "yes", bounds) as (gateway, token, session):
            assert (await ask(session, token, ASKERS[0]))[0] == 200
            parts = urlsplit(gateway.address.url)
            flood = [await asyncio.open_connection(parts.hostname, parts.port) for _ in range(100)]
            assert (await ask(session, token, ASKERS[0]))[0] == 200
            await asyncio.sleep(0.1)
            gone = sum(reader.at_eof() for reader, _ in flood)
            assert gone >= 100 - 20
            for _, writer in flood:
                writer.close()

    run(main)


def test_a_program_may_not_hold_connections_without_end(tmp_path: Path) -> None:
    async def main() -> None:
        bounds = RequestBounds(all_connections=200, connections=5)
        async with opened(tmp_path, lambda _: "yes", bounds) as (gateway, token, _):
            sessions = [aiohttp.ClientSession(gateway.address.url) for _ in range(8)]
            told = [(await ask(session, token, ASKERS[0]))[0] for session in sessions]
            assert told == [200] * 5 + [429] * 3
            await sessions[0].close()
            await asyncio.sleep(0.1)
            assert (await ask(sessions[7], token, ASKERS[0]))[0] == 200
            for session in sessions:
                await session.close()

    run(main)


def test_what_is_kept_of_a_conversation_ends_with_a_word_and_with_the_last_answers(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        journal, count = Journal(), iter(range(1000))

        def answer(_: Request) -> Completion:
            number = next(count)
            call = ToolCall(id=f"c{number}", name="run", arguments="{}")
            return Completion(text=f"answer {number}", tool_calls=(call,))

        bounds = RequestBounds(kept=20_000)
        async with opened(tmp_path, answer, bounds, journal) as (_, token, session):
            for number in range(50):
                assert (await ask(session, token, ASKERS[0], f"{number:05}" + "z" * 1000))[0] == 200
        heard = [m for m in journal.messages if m.role == "user"]
        assert 10 < len(heard) < 20
        cut = [m.content for m in journal.messages if m.role == "system"]
        assert cut == ["[... the conversation is longer than what is kept ...]"]
        assert journal.messages[-1].content == "answer 49"

    run(main)


def test_whoever_finds_it_full_is_told_so(tmp_path: Path) -> None:
    async def main() -> None:
        bounds = RequestBounds(all_connections=3)
        async with opened(tmp_path, lambda _: "yes", bounds) as (gateway, token, _):
            sessions = [aiohttp.ClientSession(gateway.address.url) for _ in range(4)]
            told = [(await ask(session, token, ASKERS[0]))[0] for session in sessions[:3]]
            assert told == [200] * 3
            async with sessions[3].get("/v1/models") as answer:
                assert answer.status == 503
                assert await answer.text() == "too many connections to the gateway are open\n"
            for session in sessions:
                await session.close()

    run(main)
