"""Ports for programs that must be told theirs before they listen."""

import os
import random
import socket

# below what the kernel gives to whoever asks for any port: nobody takes one of these by chance
_RANGE = range(20_000, 32_000)
_WORKERS = 12


def free_port() -> int:
    """Return a port of loopback that nobody listens on; each test worker picks from its own."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    mine = list(_RANGE[worker % _WORKERS :: _WORKERS])
    random.shuffle(mine)
    for port in mine:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one in TIME_WAIT is free
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")
