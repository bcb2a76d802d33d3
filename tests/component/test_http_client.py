"""The HTTP client of models: which connections are kept, and what is left when a request is cut."""

import asyncio
import gc
import gzip
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvloop

from bakeoff.core.errors import ProviderError
from bakeoff.models.client.connection import plain_origin
from bakeoff.models.client.http import HttpClient, lines_of
from bakeoff.models.client.retry import RetryableError, UnreachableError
from support.cli import until
from support.loopback import Loopback, Reply, dripping
from support.parts import require

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}
OK = Reply(body=b"ok")
Runner = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=sorted(LOOPS))
def run(request: pytest.FixtureRequest) -> Runner:
    """Run a coroutine on each event loop; one that leaves a socket open fails (a ResourceWarning)."""

    def run_on(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(asyncio.wait_for(work, 30))
        gc.collect()

    return run_on


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback(lambda _: OK) as running:
        yield running


def open_sockets() -> int:
    """Count the sockets of this process; a loop that is the first of its kind leaves a pipe open."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # of the folder that is being read
            links.append(str(entry.readlink()))
    return sum(link.startswith("socket:") for link in links)


def connections(server: Loopback) -> int:
    return len({asked.connection for asked in server.requests})


async def post(client: HttpClient, server: Loopback) -> bytes:
    return (await client.post(f"{server.url}/x?a=1", b"{}")).body


def test_answers_and_refusals_keep_the_connection(run: Runner, server: Loopback) -> None:
    replies = iter([OK, Reply(status=429, body=b"busy"), Reply(status=204), OK, OK])
    server.answer = lambda _: next(replies)

    async def main() -> None:
        client = HttpClient({"X-Key": "k"})
        assert await post(client, server) == b"ok"
        with pytest.raises(RetryableError, match=r"HTTP 429 from 127\.0\.0\.1: busy"):
            await post(client, server)
        assert await post(client, server) == b""
        async with client.stream(f"{server.url}/x", b"{}") as lines:
            assert [line async for line in lines] == [b"ok"]
        assert await post(client, server) == b"ok"
        await client.close()

    run(main())
    assert connections(server) == 1
    first = server.requests[0]
    assert first.path == "/v1/x?a=1"
    sent = {name.lower(): value for name, value in first.headers.items()}
    assert (sent["x-key"], sent["host"]) == ("k", f"127.0.0.1:{server.port}")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(headers={"Connection": "close"}, body=b"ok"),
        Reply(raw=b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n"),
    ],
    ids=["it says so", "HTTP/1.0", "more behind the answer"],
)
def test_some_answers_do_not_keep_it(run: Runner, server: Loopback, reply: Reply) -> None:
    server.answer = lambda _: reply

    async def main() -> None:
        client = HttpClient({})
        assert [await post(client, server) for _ in range(3)] == [b"ok"] * 3
        await client.close()

    run(main())
    assert connections(server) == 3


def test_what_precedes_an_answer_is_not_the_answer(run: Runner, server: Loopback) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n"
    late = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Twice: a\r\nX-Twice: b\r\n\r\nok"
    server.answer = lambda _: Reply(raw=[early, early + late[:9], late[9:]])
    headers: list[dict[str, str]] = []

    async def main() -> None:
        client = HttpClient({})
        client.on_headers = lambda given: headers.append(dict(given))
        assert await post(client, server) == b"ok"
        await client.close()

    run(main())
    assert headers == [{"content-length": "2", "x-twice": "a"}]


@pytest.mark.parametrize(
    "pieces",
    [
        [b"Transfer-Encoding: chunked\r\n\r\n1;", *[b"x" * 60_000] * 4],
        [b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", *[b"X-T: " + b"x" * 60_000] * 4],
        [b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", *[b"X: y\r\n" * 10_000] * 4],
        [b"X-Folded: 1\r\n", *[b" x" * 30_000] * 4],
        [*[b"X: y\r\n" * 10_000] * 4],
        [b"\r\n" + b"HTTP/1.1 102 Processing\r\n\r\n" * 4_000],
        [b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 60_000, *[b"0" * 60_000] * 4],
    ],
    ids=[
        "a chunk's extension",
        "a trailer",
        "trailers",
        "a folded header",
        "headers",
        "answers before the answer",
        "a chunk's size",
    ],
)
def test_framing_without_an_end_is_refused(
    run: Runner, server: Loopback, pieces: list[bytes]
) -> None:
    def raw() -> Iterator[bytes]:
        yield b"HTTP/1.1 102 OK\r\n" if b"102" in pieces[0] else b"HTTP/1.1 200 OK\r\n"
        for piece in pieces:
            yield piece
            time.sleep(0.01)
        yield from dripping(b"x")

    server.answer = lambda _: Reply(raw=raw())

    async def main() -> None:
        client = HttpClient({})
        with pytest.raises(ProviderError, match="not valid HTTP"):
            await post(client, server)
        await client.close()

    run(main())


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "the answer was cut"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\nokok",
            "not valid HTTP",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nok", "not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\nok", "not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nok", "not valid HTTP"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "not valid HTTP",
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "not valid HTTP"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx",
            "not valid HTTP",
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nshort", "was cut"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "not"),
        (b"\x16\x03\x01\x02\x00", "not valid HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not valid HTTP"),
        (
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
            "gzip",
        ),
    ],
)
def test_an_answer_whose_end_is_in_doubt_is_none(
    run: Runner, server: Loopback, raw: bytes, message: str
) -> None:
    replies = iter([Reply(raw=raw, then_close=True), OK])
    server.answer = lambda _: next(replies)

    async def main() -> None:
        client = HttpClient({})
        with pytest.raises(ProviderError, match=message):
            await post(client, server)
        assert await post(client, server) == b"ok"
        await client.close()

    run(main())
    assert connections(server) == 2


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "plain"])
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_no_more_is_held_than_an_answer_may_have(
    run: Runner, server: Loopback, packed: bool, streamed: bool
) -> None:
    text = b"x" * 50_000_000
    body = gzip.compress(text, 1) if packed else text
    headers = {"Content-Encoding": "gzip"} if packed else {}
    server.answer = lambda _: Reply(headers=headers, chunks=iter([body]))

    async def main() -> None:
        client = HttpClient({})
        client.largest_body = 1_000_000

        async def lines_of() -> None:
            async with client.stream(server.url, b"{}") as lines:
                async for _ in lines:
                    pass

        with pytest.raises(ProviderError, match=r"larger than (0|4) MiB"):
            await (lines_of() if streamed else post(client, server))
        await client.close()

    run(main())


def test_an_announced_length_counts_whatever_zeros_precede_it(
    run: Runner, server: Loopback
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: " + b"0" * 30 + b"%d\r\n\r\n"
    replies = iter([Reply(raw=head % 50_000_000, then_close=True), Reply(raw=head % 2 + b"ok")])
    server.answer = lambda _: next(replies)

    async def main() -> None:
        client = HttpClient({})
        client.largest_body = 1_000_000
        with pytest.raises(ProviderError, match="larger than"):
            await post(client, server)
        assert await post(client, server) == b"ok"
        await client.close()

    run(main())


@dataclass
class Pieces:
    """A response that arrives in these pieces."""

    pieces: Iterator[bytes]
    status: int = 200
    reason: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    ended: bool = False

    async def part(self) -> bytes:
        return next(self.pieces, b"")

    async def whole(self) -> bytes:
        return b"".join(self.pieces)

    def release(self) -> None:
        pass


async def seconds_for(pieces: list[bytes]) -> float:
    began = time.process_time()
    lines = [line async for line in lines_of(Pieces(iter(pieces)), 64 << 20)]
    took_s = time.process_time() - began
    assert b"\n".join(lines).rstrip(b"\n") == b"".join(pieces).rstrip(b"\n")
    return took_s


def test_a_line_that_drips_costs_what_short_lines_cost(run: Runner) -> None:
    async def main() -> None:
        short = await seconds_for([b"x" * 99 + b"\n"] * 20_000)
        assert await seconds_for([b"x" * 100] * 20_000) < 10 * short

    run(main())


def test_a_half_closed_connection_is_not_used_again(run: Runner) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[int] = []

    def serve() -> None:
        for number in range(2):
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                asked.append(number)
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                peer.shutdown(socket.SHUT_WR)
                peer.settimeout(5)
                assert peer.recv(65536) == b""  # nothing more was sent here

    thread = threading.Thread(target=serve)
    thread.start()

    async def main() -> None:
        client = HttpClient({})
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        for _ in range(2):
            assert (await client.post(url, b"{}")).body == b"ok"
            await asyncio.sleep(0.05)
        await client.close()

    run(main())
    thread.join(5)
    listener.close()
    assert asked == [0, 1]


def test_a_server_on_one_address_of_its_name_is_found(run: Runner, server: Loopback) -> None:
    async def main() -> None:
        client = HttpClient({})
        # `localhost` may stand for ::1, too, where nothing listens
        url = server.url.replace("127.0.0.1", "localhost")
        assert (await client.post(url, b"{}")).body == b"ok"
        await client.close()

    run(main())


def test_an_ipv6_server_is_asked_by_its_address(run: Runner) -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 on this machine")
    heads: list[bytes] = []

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            heads.append(peer.recv(65536))
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    thread = threading.Thread(target=serve)
    thread.start()
    port = listener.getsockname()[1]

    async def main() -> None:
        client = HttpClient({})
        assert (await client.post(f"http://[::1]:{port}/v1", b"{}")).body == b"ok"
        await client.close()

    run(main())
    thread.join(5)
    listener.close()
    assert f"Host: [::1]:{port}\r\n".encode() in heads[0]


def test_bytes_that_nobody_asked_for_end_an_idle_connection(run: Runner) -> None:
    ready, answers = threading.Event(), [b"first", b"other"]
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answer in answers:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                length = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
                peer.sendall(length + answer)
                if answer == b"first":
                    time.sleep(0.1)
                    peer.sendall(length + b"wrong")
                    ready.set()
                    peer.recv(65536)  # the client's end

    thread = threading.Thread(target=serve)
    thread.start()

    async def main() -> None:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        client = HttpClient({})
        assert (await client.post(url, b"1")).body == b"first"
        await asyncio.to_thread(ready.wait)
        await asyncio.sleep(0.1)
        assert (await client.post(url, b"2")).body == b"other"
        await client.close()

    run(main())
    thread.join(5)
    listener.close()


def test_cancelled_requests_leave_nothing_behind(run: Runner, server: Loopback) -> None:
    server.answer = lambda _: Reply(chunks=dripping(b"x", every_s=0.02))
    before = open_sockets()

    async def main() -> None:
        client = HttpClient({})
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(post(client, server)) for _ in range(32)]
            while server.in_flight < 32:
                await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
        while server.in_flight:
            await asyncio.sleep(0.01)
        server.answer = lambda _: OK
        assert await post(client, server) == b"ok"
        await client.close()

    run(main())
    until(lambda: open_sockets() <= before + 1)  # the server's ends are closed by its threads


def test_cancelled_while_it_connects_leaves_no_socket(run: Runner) -> None:
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for caller in (first, second):
            caller.setblocking(False)
            caller.connect_ex(deaf.getsockname())

        async def main() -> None:
            before = open_sockets()
            client = HttpClient({})
            url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
            task = asyncio.create_task(client.post(url, b""))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert open_sockets() == before
            await client.close()

        run(main())


def test_a_client_can_be_closed_whenever_a_request_was_cancelled(
    run: Runner, server: Loopback
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def ask_and_cancel(turns: int) -> None:
            def cancel_later(left: int) -> None:
                if left:
                    loop.call_soon(cancel_later, left - 1)
                else:
                    task.cancel()

            client = HttpClient({})
            loop.call_soon(
                cancel_later, turns
            )  # before the request: first in each turn of the loop
            task = asyncio.create_task(post(client, server))
            await asyncio.wait([task])
            await asyncio.wait_for(client.close(), 5)

        for turns in range(12):
            await ask_and_cancel(turns)

    run(main())


def test_an_answer_that_nobody_reads_stays_with_its_server(run: Runner, server: Loopback) -> None:
    sent = 0

    def flood() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(60):
            yield b"x" * 999_999 + b"\n"
            sent += 1

    server.answer = lambda _: Reply(chunks=flood())

    async def main() -> None:
        client = HttpClient({})
        async with client.stream(server.url, b"{}") as lines:
            assert len(await anext(lines)) == 999_999
            await asyncio.sleep(0.5)
            assert sent < 30  # the rest waits in the server
            assert len([line async for line in lines]) == 59
        await client.close()

    run(main())


def test_an_answer_before_the_whole_request_is_taken(run: Runner) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    accepted: list[socket.socket] = []

    def serve() -> None:
        for _ in range(2):
            peer, _ = listener.accept()
            accepted.append(peer)
            peer.recv(1000)
            peer.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")

    thread = threading.Thread(target=serve)
    thread.start()

    async def main() -> None:
        client = HttpClient({})
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        for _ in range(2):  # what is left of the first body must not become the second request
            with pytest.raises(ProviderError, match="HTTP 413"):
                await client.post(url, b"x" * 30_000_000)
        await client.close()

    run(main())
    thread.join(5)
    for peer in (*accepted, listener):
        peer.close()
    assert len(accepted) == 2


def test_a_header_with_a_line_break_is_not_sent(run: Runner, server: Loopback) -> None:
    async def main() -> None:
        client = HttpClient({"Authorization": "Bearer a\r\nX-Evil: 1"})
        with pytest.raises(ProviderError, match="'Authorization' has a line break") as caught:
            await post(client, server)
        assert "Bearer" not in str(caught.value)
        await client.close()

    run(main())
    assert server.requests == []


def test_a_name_that_does_not_exist_is_told(run: Runner) -> None:
    async def main() -> None:
        client = HttpClient({})
        with pytest.raises(UnreachableError, match=r"nothing answers at http://no-such\.invalid:1"):
            await client.post("http://no-such.invalid:1/v1", b"")
        await client.close()

    run(main())


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".com"])
def test_a_name_that_no_host_can_have_is_told(run: Runner, host: str) -> None:
    async def main() -> None:
        client = HttpClient({})
        with pytest.raises(ProviderError, match="is not a URL that can be asked"):
            await client.post(f"http://{host}/v1", b"")
        await client.close()

    run(main())


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("http://127.0.0.1:80/v1/chat/completions", True),
        ("https://api.example.com/v1beta/models/m-1.5:generateContent?alt=sse", True),
        ("http://[::1]:8080/v1", True),
        ("http://localhost", True),
        ("http://user:secret@host/v1", False),
        ("http://host/a b", False),
        ("http://host/a%20b", False),
        ("http://host/a/../b", False),
        ("http://host/ä", False),
        ("http://h\u00f6st/", False),
        ("http://host/#part", False),
        ("http://host:99999/", False),
        ("ftp://host/", False),
        ("http:///v1", False),
        ("http://a..b/v1", False),
        ("http://" + "a" * 64 + ".com/v1", False),
        ("http://xn--hst-sna.example/v1", True),
        ("http://host/\r\nX: 1", False),
    ],
)
def test_a_url_that_is_not_plain_is_left_to_aiohttp(url: str, plain: bool) -> None:
    assert (plain_origin(url) is not None) is plain


def test_credentials_in_the_url_are_sent_as_ever(run: Runner, server: Loopback) -> None:
    async def main() -> None:
        client = HttpClient({})
        url = server.url.replace("http://", "http://me:pw@") + "/a%20b"
        assert (await client.post(url, b"{}")).body == b"ok"
        async with client.stream(url, b"{}") as lines:
            assert [line async for line in lines] == [b"ok"]
        await client.close()

    run(main())
    assert server.requests[0].path == "/v1/a%20b"
    assert server.requests[0].headers["Authorization"] == "Basic bWU6cHc="


_TLS_CLIENT = """
import asyncio, sys, uvloop
from bakeoff.models.client.http import HttpClient, lines_of

async def main(url):
    asyncio.get_running_loop().slow_callback_duration = 60  # a busy machine is no mistake
    client = HttpClient({})
    bodies = [b'{"n": "%s"}' % (b"x" * n) for n in (0, 10, 200_000)]
    async def ask(n):
        return len((await client.post(url, bodies[n % 3])).body)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask(n)) for n in range(60)]
    assert {task.result() for task in tasks} == {3_000_000}
    cut = [asyncio.create_task(ask(0)) for _ in range(8)]
    await asyncio.sleep(0.02)
    for task in cut:
        task.cancel()
    await asyncio.gather(*cut, return_exceptions=True)
    async with client.stream(url, bodies[0]) as lines:
        assert sum([len(line) async for line in lines]) == 3_000_000
    await client.close()

with asyncio.Runner(loop_factory=getattr(sys.modules[sys.argv[2]], "new_event_loop")) as runner:
    runner.run(main(sys.argv[1]))
"""


def _certificate(tmp_path: Path, name: str) -> tuple[Path, Path]:
    """Make a certificate for *name*; return the file with its key, and the one without."""
    require("openssl", shutil.which("openssl"), "apt install openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-days",
        "2",
    ]
    names = ["-addext", f"subjectAltName={name}"]
    subprocess.run(
        [*command, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    both = tmp_path / "both.pem"
    both.write_text(key.read_text() + certificate.read_text())
    return both, certificate


@pytest.mark.parametrize("loop", sorted(LOOPS))
def test_large_bodies_both_ways_over_tls(tmp_path: Path, loop: str) -> None:
    both, certificate = _certificate(tmp_path, "IP:127.0.0.1")
    large = Reply(body=b"y" * 3_000_000)
    with Loopback(lambda _: large, certificate=both) as server:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-X", "dev", "-c", _TLS_CLIENT, server.url, loop],
            env={**os.environ, "SSL_CERT_FILE": str(certificate)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert connections(server) < 61  # they were kept


_WRONG_NAME = """
import asyncio, sys
from bakeoff.core.errors import ProviderError
from bakeoff.models.client.http import HttpClient, lines_of

async def main(url):
    client = HttpClient({"Authorization": "Bearer secret"})
    try:
        await client.post(url, b"{}")
    except ProviderError as error:
        print(error)
    await client.close()

asyncio.run(main(sys.argv[1]))
"""


def test_a_trusted_certificate_for_another_name_is_refused(tmp_path: Path) -> None:
    both, certificate = _certificate(tmp_path, "DNS:other.example")
    with Loopback(lambda _: OK, certificate=both) as server:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", _WRONG_NAME, server.url],
            env={**os.environ, "SSL_CERT_FILE": str(certificate)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.stderr == ""
    assert "is not to be trusted" in done.stdout
    assert "127.0.0.1" in done.stdout
    assert server.requests == []


_EXIT = """
import asyncio, sys, uvloop
from bakeoff.models.client.http import HttpClient, lines_of

async def main(url, how):
    client = HttpClient({})
    await client.post(url, b"{}")
    tasks = [asyncio.create_task(client.post(url, b'{"slow": 1}')) for _ in range(8)]
    await asyncio.sleep(0.02)
    if how == "exit":
        sys.exit(7)
    if how == "close":
        await client.close()
        await asyncio.gather(*tasks, return_exceptions=True)
    if how == "signal":
        import os, signal
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(5)

try:
    uvloop.run(main(sys.argv[1], sys.argv[2]))
except KeyboardInterrupt:
    sys.exit(7)
sys.exit(7)
"""


def _exits(server: Loopback, count: int) -> None:
    server.answer = lambda asked: (
        Reply(chunks=dripping(b"x", every_s=0.1)) if "slow" in asked.body else OK
    )
    for number in range(count):
        how = ("exit", "close", "signal", "return")[number % 4]
        done = subprocess.run(
            [sys.executable, "-c", _EXIT, server.url, how],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode, done.stderr) == (7, ""), f"exit {number}: {how}"


def test_a_process_ends_cleanly_whatever_is_under_way(server: Loopback) -> None:
    _exits(server, 8)


@pytest.mark.soak
def test_a_thousand_exits_without_an_abort(server: Loopback) -> None:
    _exits(server, 1000)
