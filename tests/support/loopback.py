"""A real HTTP server on loopback that answers as a test tells it to."""

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(kw_only=True)
class Asked:
    """A request as the server saw it."""

    number: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def prompt(self) -> str:
        if "prompt" in self.body:
            return self.body["prompt"]
        return self.body["messages"][-1]["content"]


@dataclass(kw_only=True)
class Reply:
    """What the server sends. `chunks` go out one by one, chunked; `raw` replaces everything."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    chunks: Iterable[bytes] | None = None
    raw: bytes | None = None
    then_close: bool = False


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


class Loopback:
    """The server; `requests` is everything it was asked, in order."""

    def __init__(self, answer: Answerer | None = None) -> None:
        self.answer = answer or (lambda asked: chat(asked.prompt))
        self.requests: list[Asked] = []
        self.in_flight = 0
        self.peak_in_flight = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> "Loopback":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, path: str, headers: dict[str, str], data: bytes) -> Asked:
        with self._lock:
            asked = Asked(
                number=len(self.requests),
                path=path,
                headers=headers,
                body=json.loads(data or b"{}"),
            )
            self.requests.append(asked)
            self.in_flight += 1
            self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        return asked

    def done(self) -> None:
        with self._lock:
            self.in_flight -= 1


def _handler(server: Loopback) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = server.take(self.path, dict(self.headers), data)
            try:
                self._send(server.answer(asked))
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client went away, as some tests want it to
            finally:
                server.done()

        def _send(self, reply: Reply) -> None:
            if reply.raw is not None:
                self.wfile.write(reply.raw)
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.chunks is None:
                if "Content-Length" not in reply.headers:
                    self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)
            else:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for chunk in reply.chunks:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                    self.wfile.flush()
                if not reply.then_close:
                    self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
            if reply.then_close:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    return Handler
