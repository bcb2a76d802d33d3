"""Whether a command was really started, when it goes through a shell and somebody's client.

The shell prints a mark just before it becomes the command. Without it, what was printed is what the
client had to say, and the exit code is the client's.
"""

from collections.abc import Callable


class OpeningMark:
    """Hears what comes after the mark, which is the first line of a command that was started."""

    def __init__(self, mark: str, hears: Callable[[bytes], None] | None) -> None:
        self.mark = mark
        self._mark = f"{mark}\n".encode()
        self._hears = hears
        self._waiting: bytes | None = b""
        self.started = False

    def __call__(self, piece: bytes) -> None:
        """Hear the next piece."""
        if self._waiting is not None:
            piece = self._waiting + piece
            if len(piece) < len(self._mark) and self._mark.startswith(piece):
                self._waiting = piece
                return
            self._waiting = None
            self.started = piece.startswith(self._mark)
            piece = piece.removeprefix(self._mark)
        if piece and self._hears is not None:
            self._hears(piece)
