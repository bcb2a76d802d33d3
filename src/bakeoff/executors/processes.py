"""Workers that are processes of this machine: each at the other end of a socket pair.

The pair has no name in the file system, so nobody else can connect to it. A worker ends with the
run, whatever becomes of that: the kernel kills it (Linux), and it ends itself when the line is cut.
"""

import asyncio
import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from bakeoff.executors.link import Carrier, Launch
from bakeoff.executors.wire import LARGEST_FRAME

_HEAD = struct.Struct(">I")
_LAST_WORDS_S = 1.0  # for a process that has cut the line by itself
_PR_SET_PDEATHSIG = 1


class FrameProtocol(asyncio.Protocol):
    """Frames over a stream, each with its length first."""

    def __init__(self, receive: Callable[[bytes], None], on_gone: Callable[[], None]) -> None:
        self._receive = receive
        self._on_gone = on_gone
        self._unread = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the line."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Pass on each frame that is whole."""
        unread = self._unread
        unread += data
        start = 0
        while len(unread) - start >= _HEAD.size:
            (size,) = _HEAD.unpack_from(unread, start)
            end = start + _HEAD.size + size
            if size > LARGEST_FRAME:
                self.close()
                return
            if len(unread) < end:
                break
            self._receive(bytes(unread[start + _HEAD.size : end]))
            start = end
        del unread[:start]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- it is gone either way
        """Tell that nothing more comes."""
        self._on_gone()

    def send(self, frame: bytes) -> None:
        """Send *frame*; what cannot be sent is missed by nobody, for the other end is gone."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(_HEAD.pack(len(frame)) + frame)

    def close(self) -> None:
        """Cut the line."""
        if self._transport is not None:
            self._transport.abort()


async def connect(
    line: socket.socket, receive: Callable[[bytes], None], on_gone: Callable[[], None]
) -> FrameProtocol:
    """Return the frames over *line*."""
    loop = asyncio.get_running_loop()
    line.settimeout(0)
    _, protocol = await loop.create_unix_connection(
        lambda: FrameProtocol(receive, on_gone), sock=line
    )
    return protocol


class ProcessCarrier:
    """A worker in a process of its own."""

    def __init__(self, process: "subprocess.Popen[bytes]", on_gone: Callable[[], None]) -> None:
        self._process = process
        self._on_gone = on_gone
        self._gone = False
        self._frames: FrameProtocol | None = None

    async def connect(self, line: socket.socket, receive: Callable[[bytes], None]) -> None:
        """Take up the line to the process."""
        self._frames = await connect(line, receive, self._on_cut)

    @property
    def name(self) -> str:
        """Its process number."""
        return str(self._process.pid)

    def send(self, frame: bytes) -> None:
        """Send *frame*."""
        if self._frames is not None:
            self._frames.send(frame)

    async def end(self, grace_s: float) -> str:
        """Wait so long for it to end by itself, then kill it and all it started; return how it ended."""
        if self._gone:
            grace_s = max(grace_s, _LAST_WORDS_S)
        if grace_s:
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, grace_s)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        code = await asyncio.to_thread(self._process.wait)
        if self._frames is not None:
            self._frames.close()
        return f"exit code {code}" if code >= 0 else f"ended by {signal.Signals(-code).name}"

    def _on_cut(self) -> None:
        self._gone = True
        self._on_gone()


def launcher(module: str) -> Launch:
    """Return what starts workers that run the Python *module*."""

    async def launch(receive: Callable[[bytes], None], on_gone: Callable[[], None]) -> Carrier:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(  # noqa: ASYNC220 -- it takes a millisecond
                # -P: no file of the folder we are in takes the place of one of Python's modules
                (sys.executable, "-P", "-m", module, str(theirs.fileno()), str(os.getpid())),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is for the run, which tells its workers
            )
        worker = ProcessCarrier(process, on_gone)
        try:
            await worker.connect(ours, receive)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return worker

    return launch


def die_with_parent(parent: int) -> None:
    """Let the kernel end this process with the one that started it, also where this one is stopped."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before it could be asked for
        os._exit(1)
