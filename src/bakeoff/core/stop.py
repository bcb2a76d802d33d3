"""The wish to stop, shared by whoever may have it and whoever must heed it."""

from threading import Event


class Stop:
    """Set once, from any thread or signal handler; work under way is finished, none is started."""

    def __init__(self) -> None:
        self._event = Event()

    @property
    def requested(self) -> bool:
        """Whether no more work is to be started."""
        return self._event.is_set()

    def request(self) -> None:
        """Ask everybody to finish what they are doing and start nothing new."""
        self._event.set()
