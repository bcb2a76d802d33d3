"""A loopback server that speaks OpenAI's chat API as fast as Python can: one fixed answer.

Only a benchmark may use it: it reads Content-Length and nothing else of a request.
"""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import uvloop

from perf.measure import ROOT

ANSWER = "The capital of France is Paris."
_BODY = (
    b'{"id":"chatcmpl-0123456789abcdef","object":"chat.completion","created":1700000000,'
    b'"model":"fast-1","choices":[{"index":0,"message":{"role":"assistant","content":"'
    + ANSWER.encode()
    + b'"},"finish_reason":"stop"}],"usage":{"prompt_tokens":21,"completion_tokens":8,'
    b'"total_tokens":29,"completion_tokens_details":{"reasoning_tokens":0}}}'
)
REPLY = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(_BODY)
) + _BODY
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)

_BACKLOG = 4096


class Connection(asyncio.Protocol):
    """Counts out whole requests and answers each."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        while (head := data.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(data, 0, head + 2)
            end = head + 4 + (int(length[1]) if length else 0)
            if len(data) < end:
                break
            self.take(data)
            data = data[end:]
        self._rest = data

    def take(self, request: bytes) -> None:  # noqa: ARG002 -- others look at it
        """Answer the request with which *request* begins."""
        self.transport.write(REPLY)


async def serve(connection: type[Connection]) -> None:
    """Listen on a free port, print it, and serve until the process ends."""
    loop = asyncio.get_running_loop()
    # with the usual 100, a burst of connections waits a second for its next try
    server = await loop.create_server(connection, "127.0.0.1", 0, backlog=_BACKLOG)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def serving() -> AbstractContextManager[str]:
    """Start the server in a process of its own and give its base URL."""
    return server_process("perf.fast_server")


@contextmanager
def server_process(*module: str) -> Iterator[str]:
    """Start the server in *module*, with its arguments, in a process and give its base URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", *module],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.terminate()


if __name__ == "__main__":
    uvloop.run(serve(Connection))
