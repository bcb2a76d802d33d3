"""One end of the line between a run and a worker: messages in, frames out, and the reverse."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from bakeoff.executors.wire import LARGEST_FRAME, encode_frame

Post = Callable[[object], None]

M = TypeVar("M")
T = TypeVar("T")

_MOST_TASKS = 512
_MOST_BYTES = 32 << 20


class Carrier(Protocol):
    """Carries frames to one worker and knows how to end it; one class for each kind of worker."""

    @property
    def name(self) -> str:
        """The worker, as a person may look for it."""

    def send(self, frame: bytes) -> None:
        """Send *frame*; what is sent after another arrives after it, and never twice."""

    async def end(self, grace_s: float) -> str:
        """Wait so long for the worker to end by itself, then kill it; return how it ended.

        When this returns, nothing of the worker can arrive or happen any more.
        """


class Launch(Protocol):
    """Starts a worker: *receive* gets each frame that comes from it, *on_gone* is called once it is gone."""

    async def __call__(
        self, receive: Callable[[bytes], None], on_gone: Callable[[], None]
    ) -> Carrier:
        """Start a worker and return the way to it."""


class Link(Generic[M]):
    """Gathers what is said in one turn of the event loop into one frame, and takes frames apart.

    `handlers` has what to call with each kind of message; *shorten* leaves out what need not be said.
    """

    def __init__(
        self,
        decode: Callable[[bytes], list[M]],
        handlers: dict[type, Callable[[Any], None]],
        shorten: Callable[[list[object]], list[object]] | None = None,
    ) -> None:
        self._decode = decode
        self._shorten = shorten
        self.handlers = handlers
        self._loop = asyncio.get_running_loop()
        self._outgoing: list[object] = []
        self._send: Callable[[bytes], None] | None = None
        self.closed = False

    def connect(self, send: Callable[[bytes], None]) -> None:
        """Send frames with *send* from now on."""
        self._send = send
        if self._outgoing:
            self._flush()

    def post(self, message: object) -> None:
        """Send *message* with all others of this turn of the loop."""
        if self.closed:
            return
        self._outgoing.append(message)
        if len(self._outgoing) == 1 and self._send is not None:
            self._loop.call_soon(self._flush)

    def receive(self, frame: bytes) -> None:
        """Hand every message of *frame* to its handler; nothing is heard of one that is closed."""
        handlers = self.handlers
        for message in self._decode(frame):
            if self.closed:
                return
            handlers[type(message)](message)

    def close(self) -> None:
        """Hear and send nothing more."""
        self._flush()
        self.closed = True

    def _flush(self) -> None:
        if self._outgoing and self._send is not None and not self.closed:
            messages, self._outgoing = self._outgoing, []
            if self._shorten is not None:
                messages = self._shorten(messages)
            frame = encode_frame(messages)
            if len(frame) <= LARGEST_FRAME:
                self._send(frame)
                return
            for message in messages:
                self._send(encode_frame([message]))


class RecentTasks(Generic[T]):
    """The tasks that a worker was sent last: both ends keep the same, so none is sent twice in a row."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._bytes = 0

    def use(self, digest: str) -> bool:
        """Return whether the task with *digest* is kept, as the one that was used last."""
        if digest not in self._tasks:
            return False
        self._tasks.move_to_end(digest)
        return True

    def __getitem__(self, digest: str) -> T:
        return self._tasks[digest][0]

    def put(self, digest: str, task: T, size: int) -> None:
        """Keep *task*, of so many bytes, and drop what was used longest ago."""
        self._tasks[digest] = task, size
        self._bytes += size
        while len(self._tasks) > _MOST_TASKS or (
            self._bytes > _MOST_BYTES and len(self._tasks) > 1
        ):
            _, (_, dropped) = self._tasks.popitem(last=False)
            self._bytes -= dropped
