"""A real HTTP server on loopback that answers as a test tells it to."""

import json
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from support.servers import start, stop


@dataclass(kw_only=True)
class Asked:
    """A request as the server saw it."""

    number: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    connection: int = 0
    """The client's port: equal for two requests that shared a connection."""

    @property
    def prompt(self) -> str:
        if "prompt" in self.body:
            return self.body["prompt"]
        return self.body["messages"][-1]["content"]


@dataclass(kw_only=True)
class Reply:
    """What the server sends. `chunks` go out one by one, chunked; `raw` replaces everything.

    `then_close` breaks off without the last chunk; `then_reset` with a TCP reset.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    chunks: Iterable[bytes] | None = None
    raw: bytes | Iterable[bytes] | None = None
    then_close: bool = False
    then_reset: bool = False


Answerer = Callable[[Asked], Reply]


def chat(text: str | None = "ok", **extra: Any) -> Reply:
    """A whole chat completion."""
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    }
    data = {"id": "x", "model": "loopback", "choices": [choice], "usage": usage, **extra}
    return Reply(headers={"Content-Type": "application/json"}, body=json.dumps(data).encode())


def completion(text: str) -> Reply:
    """A whole text completion."""
    data = {
        "model": "loopback",
        "choices": [{"text": text, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    }
    return Reply(headers={"Content-Type": "application/json"}, body=json.dumps(data).encode())


def sse(*events: dict[str, Any] | str) -> Reply:
    """A stream of server-sent events, ended by [DONE] unless told otherwise."""
    lines = [e if isinstance(e, str) else f"data: {json.dumps(e)}\n\n" for e in events]
    return Reply(
        headers={"Content-Type": "text/event-stream"}, chunks=[line.encode() for line in lines]
    )


def delta(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"model": "loopback", "choices": [{"delta": {"content": text}, "finish_reason": finish}]}


def dripping(piece: bytes, *, every_s: float = 0.05, lasting_s: float = 20.0) -> Iterator[bytes]:
    """The same piece again and again; over when the client goes, or after far too long."""
    for _ in range(int(lasting_s / every_s)):
        time.sleep(every_s)
        yield piece


def silence(*, lasting_s: float = 3.0) -> Iterator[bytes]:
    """Nothing at all, for longer than anybody waits."""
    time.sleep(lasting_s)
    yield b""


class Loopback:
    """The server; `requests` is everything it was asked, in order.

    With a *certificate* (a PEM file that holds the key too) it speaks TLS; with *gets*, GET requests
    are answered as well.
    """

    def __init__(
        self,
        answer: Answerer | None = None,
        *,
        certificate: Path | None = None,
        gets: bool = False,
        port: int = 0,
    ) -> None:
        self.gets = gets
        self.answer = answer or (lambda asked: chat(asked.prompt))
        self.requests: list[Asked] = []
        self.in_flight = 0
        self.peak_in_flight = 0
        self._lock = threading.Lock()
        self._server = _Server(self, port)
        self._thread: threading.Thread | None = None
        self._scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            # the handshake is the handler's: a client that never ends it holds up nobody else
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            self._scheme = "https"

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def __enter__(self) -> "Loopback":
        self._thread = start(self._server)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._thread is not None, "it was not entered"
        stop(self._server, self._thread)

    def take(
        self, path: str, headers: dict[str, str], data: bytes, *, connection: int = 0
    ) -> Asked:
        with self._lock:
            asked = Asked(
                number=len(self.requests),
                path=path,
                headers=headers,
                body=json.loads(data or b"{}"),
                connection=connection,
            )
            self.requests.append(asked)
            self.in_flight += 1
            self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        return asked

    def done(self) -> None:
        with self._lock:
            self.in_flight -= 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, loopback: Loopback, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.loopback = loopback

    def handle_error(self, *about: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # clients leave: that is no news here
            super().handle_error(*about)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "_Server"

    def do_GET(self) -> None:
        if self.server.loopback.gets:
            self.do_POST()
        else:
            self.send_error(501)

    def do_POST(self) -> None:
        loopback = self.server.loopback
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        port = self.client_address[1]
        asked = loopback.take(self.path, dict(self.headers), data, connection=port)
        ended = False
        try:
            reply = loopback.answer(asked)
            if reply.chunks is None and isinstance(reply.raw, bytes | None):
                # before the last byte goes out: a client that has it may ask again at once
                loopback.done()
                ended = True
            self._send(reply)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client went away, as some tests want it to
        finally:
            if not ended:
                loopback.done()

    def _send(self, reply: Reply) -> None:
        if reply.raw is not None:
            self._write([reply.raw] if isinstance(reply.raw, bytes) else reply.raw)
        else:
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self._send_body(reply)
        cut = reply.then_close or reply.then_reset or reply.raw is not None
        self.close_connection = self.close_connection or cut
        if reply.then_reset:
            self._reset()

    def _send_body(self, reply: Reply) -> None:
        if reply.chunks is None:
            if "Content-Length" not in reply.headers:
                self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self._write([reply.body])
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._write(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in reply.chunks)
        if not (reply.then_close or reply.then_reset):
            self._write([b"0\r\n\r\n"])

    def _write(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            self.wfile.write(piece)
            self.wfile.flush()

    def _reset(self) -> None:
        time.sleep(0.05)  # what was written must arrive: a reset overtakes it
        at_once = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        self.connection.close()

    def log_message(self, *_: object) -> None:
        pass
