"""Relays a port in a box without network to a unix socket: `python3 relay.py PORT SOCKET -- argv...`.

It listens on 127.0.0.1:PORT, forwards every connection to the unix socket, and execs the command:
exit code and signals are the command's own. The relay is a separate process that ends with the
command. It is run by path with the box's Python, so it uses only built-in modules, which also makes
it start in a few milliseconds.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import select
import sys

_CHUNK = 65536
_MAX_PENDING = 4 * _CHUNK
_CANNOT_LISTEN, _NOT_RUNNABLE, _NOT_FOUND = 125, 126, 127
_LOOK_S = 0.5
_HANGS_UP = select.EPOLLHUP | select.EPOLLERR


class _Side:
    """One end of a relayed connection, with the data still to be sent to it."""

    other: _Side

    def __init__(self, sock: _socket.socket) -> None:
        sock.setblocking(False)  # noqa: FBT003 -- it takes no keyword
        self.sock = sock
        self.pending = bytearray()
        self.ended = False  # it sends nothing more
        self.end_sent = False  # it was told that it gets nothing more
        self.hung_up = False  # it hung up; what it sent before is still read

    def take(self) -> bool:
        """Receive data, unless the other side is slow; return whether there was any."""
        if self.ended or len(self.other.pending) >= _MAX_PENDING:
            return False
        try:
            chunk = self.sock.recv(_CHUNK)
        except BlockingIOError:
            return False
        self.other.pending += chunk
        self.ended = not chunk
        return True

    def give(self) -> None:
        """Send the pending data, and then the end of the stream."""
        if self.hung_up:
            self.pending.clear()
            return
        if self.pending:
            try:
                del self.pending[: self.sock.send(self.pending)]
            except BlockingIOError:
                return
        if not self.pending and self.other.ended and not self.end_sent:
            self.end_sent = True
            self.sock.shutdown(_socket.SHUT_WR)

    def interest(self) -> int:
        """The epoll events to wait for."""
        wanted = 0
        if not self.ended and len(self.other.pending) < _MAX_PENDING:
            wanted |= select.EPOLLIN
        if self.pending:
            wanted |= select.EPOLLOUT
        return wanted


class _Relay:
    """All connections of one listening socket."""

    def __init__(self, listening: _socket.socket, path: str) -> None:
        self._listening = listening
        self._path = path
        self._poll = select.epoll()
        self._poll.register(listening.fileno(), select.EPOLLIN)
        self._sides: dict[int, _Side] = {}

    def run_while_alive(self, pid: int) -> None:
        """Relay everything until the process *pid* has ended."""
        end = _pidfd(pid)
        if end is not None:
            self._poll.register(end, select.EPOLLIN)
        while end is not None or _is_alive(pid):
            for number, event in self._poll.poll(_LOOK_S):
                if number == end:
                    return
                if number == self._listening.fileno():
                    self._accept()
                elif number in self._sides:
                    self._transfer(self._sides[number], event)

    def _accept(self) -> None:
        # the private method: importing the socket module takes 6 ms
        try:
            number, _ = self._listening._accept()  # type: ignore[attr-defined]  # noqa: SLF001
        except OSError:
            return
        near = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM, 0, number)
        far = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            far.connect(self._path)
        except OSError:
            near.close()
            far.close()
            return
        near.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        near_side, far_side = _Side(near), _Side(far)
        near_side.other, far_side.other = far_side, near_side
        for side in (near_side, far_side):
            self._sides[side.sock.fileno()] = side
            self._poll.register(side.sock.fileno(), side.interest())

    def _transfer(self, side: _Side, event: int) -> None:
        both = (side, side.other)
        if event & _HANGS_UP:
            side.hung_up = True
            self._forget(side)  # the kernel would report it again and again
        try:
            side.take()
            for end in both:
                end.give()
            for end in both:  # no more events come for it: read until the other side is full
                while end.hung_up and end.take():
                    end.other.give()
        except OSError:
            self._drop(side)
            return
        finished = [end for end in both if end.ended and not end.other.pending]
        if len(finished) == len(both) or any(end.hung_up for end in finished):
            self._drop(side)
            return
        for end in both:
            if not end.hung_up:
                self._poll.modify(end.sock.fileno(), end.interest())

    def _forget(self, side: _Side) -> None:
        if self._sides.pop(side.sock.fileno(), None) is not None:
            self._poll.unregister(side.sock.fileno())

    def _drop(self, side: _Side) -> None:
        for end in (side, side.other):
            self._forget(end)
            end.sock.close()


def _pidfd(pid: int) -> int | None:
    """Return a descriptor that is readable when *pid* has ended; None on old kernels."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _start_relay(listening: _socket.socket, path: str, command: int) -> None:
    """Run the relay in a daemon process, so that the command never waits for it as a child."""
    first = os.fork()
    if first:
        os.waitpid(first, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        _Relay(listening, path).run_while_alive(command)
    finally:
        os._exit(0)


def _listen(port: int) -> _socket.socket:
    listening = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listening.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    # concurrent commands in one box each have a relay at the same address
    listening.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEPORT, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen(128)
    return listening


def main(port: str, path: str, _: str, *argv: str) -> None:
    """Listen, start the relay, exec the command."""
    try:
        listening = _listen(int(port))
    except OSError as error:
        sys.stderr.write(f"the gateway cannot be reached from here: {error}\n")
        sys.exit(_CANNOT_LISTEN)
    _start_relay(listening, path, os.getpid())
    listening.close()
    for ignored in (
        _signal.SIGPIPE,
        _signal.SIGXFSZ,
    ):  # ignored by Python, which the command would inherit
        _signal.signal(ignored, _signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 -- that is what it is for
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        sys.exit(_NOT_FOUND if missing else _NOT_RUNNABLE)


if __name__ == "__main__":
    main(*sys.argv[1:])
