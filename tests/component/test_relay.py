"""The relay that brings the gateway into a box, run by path as a box runs it."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bakeoff._lib import scratch
from bakeoff.sandboxes.relay_programs import relay
from support.cli import not_outliving
from support.ports import free_port
from support.sandboxes import new_token, processes_with

RELAY = relay.__file__


@pytest.fixture
def door() -> Iterator[socket.socket]:
    """A unix socket that listens, as the gateway's does."""
    folder = scratch.new_folder("relay")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "gateway.sock"))
        listening.listen()
        listening.settimeout(20)
        yield listening
    scratch.remove(folder)


@pytest.fixture
def port() -> int:
    return free_port()


@contextmanager
def start(door: socket.socket, port: int, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-I", "-S", RELAY, str(port), door.getsockname(), "--", *argv]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with not_outliving(process):
        yield process


def connected(port: int) -> socket.socket:
    """A connection to the relay; it listens before the command runs, but it must have started."""
    for _ in range(500):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=20)
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise AssertionError("the relay never listened")


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -KILL $$", -signal.SIGKILL)])
def test_exit_codes_and_signals_are_the_command_s_own(
    door: socket.socket, port: int, script: str, code: int
) -> None:
    with start(door, port, "sh", "-c", script) as process:
        process.communicate(timeout=30)
        assert process.returncode == code


def test_a_signal_to_the_relay_reaches_the_command(door: socket.socket, port: int) -> None:
    script = "trap 'echo got it; exit 5' TERM; echo up; while :; do sleep 0.05; done"
    with start(door, port, "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=30)[0] == b"got it\n"
        assert process.returncode == 5


def test_a_command_that_is_not_there_is_127(door: socket.socket, port: int) -> None:
    with start(door, port, "no-such-program") as process:
        assert b"no-such-program" in process.communicate(timeout=30)[0]
        assert process.returncode == 127


def test_a_port_that_is_taken_is_said_and_the_command_is_not_run(door: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with start(door, taken.getsockname()[1], "echo", "ran") as process:
            said = process.communicate(timeout=30)[0]
        assert b"gateway" in said
        assert b"ran" not in said
        assert process.returncode == 125


def test_the_relay_is_no_child_of_the_command_and_ends_with_it(
    door: socket.socket, port: int
) -> None:
    token = new_token()
    children = "import os, sys; os.wait()"
    with start(door, port, sys.executable, "-c", children, token) as process:
        said = process.communicate(timeout=30)[0]
    assert b"ChildProcessError" in said
    until = time.monotonic() + 20
    while processes_with(token):
        assert time.monotonic() < until
        time.sleep(0.02)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_bytes_pass_both_ways_with_ends_of_their_own(door: socket.socket, port: int) -> None:
    with start(door, port, "sleep", "60"), connected(port) as near:
        far, _ = door.accept()
        with far:
            near.sendall(b"question")
            near.shutdown(socket.SHUT_WR)
            assert _all(far) == b"question"
            far.sendall(b"answer " * 300_000)
            far.shutdown(socket.SHUT_WR)
            assert _all(near) == b"answer " * 300_000


def test_a_slow_reader_holds_up_only_itself(door: socket.socket, port: int) -> None:
    data = os.urandom(8_000_000)
    with start(door, port, "sleep", "60"), connected(port) as slow:
        far, _ = door.accept()

        def send() -> None:
            far.sendall(data)
            far.close()

        sending = threading.Thread(target=send, daemon=True)
        sending.start()
        time.sleep(0.2)
        assert sending.is_alive()  # the relay takes no more than it can pass on
        with connected(port) as quick:
            other, _ = door.accept()
            with other:
                other.sendall(b"quick")
                assert quick.recv(5) == b"quick"
        assert _all(slow) == data
        sending.join(60)
        assert not sending.is_alive()


def test_a_client_that_breaks_off_is_noticed_on_the_other_side(
    door: socket.socket, port: int
) -> None:
    with start(door, port, "sleep", "60"):
        near = connected(port)
        far, _ = door.accept()
        with far:
            far.settimeout(20)
            near.close()
            assert far.recv(10) == b""
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                _send_for_ever(far)
        with connected(port) as again:  # and the relay still works
            far, _ = door.accept()
            far.close()
            assert again.recv(10) == b""


def test_an_answer_is_whole_though_its_sender_has_long_gone(door: socket.socket, port: int) -> None:
    data = os.urandom(24_000_000)
    with start(door, port, "sleep", "60") as process, connected(port) as near:
        far, _ = door.accept()
        with far:
            sending = threading.Thread(target=far.sendall, args=(data,), daemon=True)
            sending.start()
            received = _some(near, sending)
            far.close()  # all is sent, and not yet all received
        busy = _ticks(_relay_of(port, process.pid))
        time.sleep(0.5)
        assert _ticks(_relay_of(port, process.pid)) - busy <= 10  # it waits, it does not spin
        assert received + _all(near) == data


def test_where_nobody_answers_the_connection_is_closed(door: socket.socket, port: int) -> None:
    Path(door.getsockname()).unlink()
    with start(door, port, "sleep", "60"), connected(port) as near:
        assert near.recv(10) == b""


def test_an_idle_relay_uses_no_processor(door: socket.socket, port: int) -> None:
    token = new_token()
    with start(door, port, "sleep", token) as process, connected(port) as near:
        far, _ = door.accept()
        far.shutdown(socket.SHUT_WR)  # half closed, and nothing more for a while
        assert near.recv(1) == b""
        mine = _relay_of(port, process.pid)
        before = _ticks(mine)
        time.sleep(1.0)
        assert _ticks(mine) - before <= 10  # of the hundred that a busy loop would take
        far.close()


def _send_for_ever(sock: socket.socket) -> None:
    for _ in range(1000):
        sock.sendall(b"x" * 10_000)
        time.sleep(0.005)


def _all(sock: socket.socket) -> bytes:
    sock.settimeout(30)
    pieces = []
    while piece := sock.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def _some(sock: socket.socket, sending: threading.Thread) -> bytes:
    """What is received until the sender has sent all."""
    received = bytearray()
    while sending.is_alive():
        received += sock.recv(65536)
        sending.join(0.001)
    return bytes(received)


def _relay_of(port: int, command: int) -> int:
    """The process of the relay that listens on *port*."""
    pids = [int(line.split(":")[0]) for line in processes_with(RELAY)]
    (found,) = [pid for pid in pids if _argument(pid, str(port)) and pid != command]
    return found


def _argument(pid: int, word: str) -> bool:
    return word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
