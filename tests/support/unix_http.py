"""A real HTTP server on a unix socket and on a loopback port: where a gateway would listen."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

from bakeoff.core.sandbox import GatewayAddress
from support.servers import start, stop


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = b"heard " + str(len(body)).encode() + b" " + body[-20:]
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self) -> None:
        """A long answer, in pieces, until the connection is closed."""
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for _ in range(64):
            self.wfile.write(b"x" * 65536)

    def address_string(self) -> str:
        return "box"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class _UnixServer(ThreadingUnixStreamServer):
    daemon_threads = True


class UnixHttp:
    """Serves while it is entered; `address` is what a box is told."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "gateway.sock"
        self._unix = _UnixServer(str(self._path), _Answer)
        self._tcp = ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
        self._threads: list[threading.Thread] = []

    @property
    def port(self) -> int:
        return self._tcp.server_address[1]

    @property
    def address(self) -> GatewayAddress:
        return GatewayAddress(socket=str(self._path), url=f"http://127.0.0.1:{self.port}")

    def __enter__(self) -> "UnixHttp":
        self._threads = [start(server) for server in (self._unix, self._tcp)]
        return self

    def __exit__(self, *_: object) -> None:
        for server, thread in zip((self._unix, self._tcp), self._threads, strict=True):
            stop(server, thread)
