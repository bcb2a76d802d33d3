"""A stop request that is shared by everyone who may make it or must obey it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event


class Stop:
    """Set once, from any thread or signal handler; work under way is finished, none is started."""

    def __init__(self) -> None:
        self._event = Event()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def requested(self) -> bool:
        """Whether no more work is to be started."""
        return self._event.is_set()

    def request(self) -> None:
        """Ask for what is under way to be finished and nothing new to be started."""
        self._event.set()
        for callback in tuple(self._callbacks):
            callback()

    @contextmanager
    def calling(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call *callback* when a stop is requested, in the thread that requests it."""
        self._callbacks.append(callback)
        try:
            if self.requested:
                callback()
            yield
        finally:
            self._callbacks.remove(callback)
