"""Server-sent events: what they carry, one after another."""

from collections.abc import AsyncIterator

_OTHER_FIELDS = (b":", b"event:", b"id:", b"retry:")
_DONE = b"[DONE]"


class Events:
    """The data of every event, up to the end or to `[DONE]`.

    `stray` gathers the lines that belong to no event: a whole answer all the same, an error as
    the last word, or a web page.
    """

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        self._lines = lines
        self.stray: list[bytes] = []

    def __aiter__(self) -> "Events":
        return self

    async def __anext__(self) -> bytes:
        async for line in self._lines:
            event = line.strip()
            if event.startswith(b"data:"):
                data = event[5:].lstrip()
                if data == _DONE:
                    break
                return data
            if event and not event.startswith(_OTHER_FIELDS):
                self.stray.append(line)
        raise StopAsyncIteration
