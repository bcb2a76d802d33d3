"""Servers in a thread of the test's own process, which end when the test does."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer

_ENOUGH_S = 30.0


@contextmanager
def serving(server: BaseServer) -> Iterator[None]:
    """Let *server* answer during the block."""
    thread = start(server)
    try:
        yield
    finally:
        stop(server, thread)


def start(server: BaseServer) -> threading.Thread:
    """Start a thread in which *server* answers; it keeps no process from ending."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    return thread


def stop(server: BaseServer, thread: threading.Thread) -> None:
    """Stop *server*; one that is stuck in a connection fails the test and does not hold it up.

    `shutdown` itself would wait for ever, and nothing interrupts a test a second time.
    """
    stopping = threading.Thread(target=server.shutdown, daemon=True)
    stopping.start()
    stopping.join(_ENOUGH_S)
    server.server_close()
    thread.join(_ENOUGH_S)
    assert not thread.is_alive(), f"the server did not stop within {_ENOUGH_S:g} s"
