"""Output of any length in a room of fixed size: the first part and the last."""

_MARK = "\n[... {left_out:,} bytes left out ...]\n"
_ROOM_FOR_MARK = 64
_WORTH_A_MARK = 4 * _ROOM_FOR_MARK


class Kept:
    """Takes pieces of output and keeps *most* bytes: as many of the first as of the last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._room_for_mark = _ROOM_FOR_MARK if most >= _WORTH_A_MARK else 0
        self._head_room = (most - self._room_for_mark) // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, piece: bytes) -> None:
        """Take the next piece."""
        self.total += len(piece)
        taken = self._head_room - len(self._head)
        self._head += piece[:taken]
        self._tail += piece[taken:]
        room = self._most - self._head_room
        if len(self._tail) > 2 * room:  # seldom, so that each byte is moved about once
            del self._tail[: len(self._tail) - room]

    @property
    def truncated(self) -> bool:
        """Whether something had to be left out."""
        return self.total > self._most

    def text(self) -> str:
        """Return what is kept, with a line where something was left out."""
        if not self.truncated:
            return (self._head + self._tail).decode(errors="replace")
        room = self._most - self._room_for_mark - self._head_room
        tail = self._tail[len(self._tail) - room :]
        left_out = self.total - len(self._head) - len(tail)
        mark = _MARK.format(left_out=left_out) if self._room_for_mark else ""
        return self._head.decode(errors="replace") + mark + tail.decode(errors="replace")
