"""All mistakes of a file, gathered so that they can be reported at once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bakeoff.core.errors import UsageError

_MOST_SHOWN = 20


class Problems:
    """What is wrong so far; `raise_any` ends it."""

    def __init__(self) -> None:
        self._messages: list[str] = []
        self._seen: set[str] = set()

    @contextmanager
    def gathered(self, of: str = "") -> Iterator[None]:
        """Keep a mistake that the block raises, and go on after it.

        A mistake that many share is kept once: *of* is what the message calls the one at hand.
        """
        try:
            yield
        except UsageError as error:
            self.add(error, of)

    def add(self, error: UsageError, of: str = "") -> None:
        """Keep what *error* says."""
        for message in str(error).split("\n"):
            same = message.replace(of, "") if of else message
            if same not in self._seen:
                self._seen.add(same)
                self._messages.append(message)

    @property
    def message(self) -> str:
        """All mistakes, each on a line of its own."""
        return all_of(self._messages)

    def raise_any(self) -> None:
        """Raise one error with all mistakes; nothing without any."""
        if self._messages:
            raise UsageError(self.message)


def all_of(messages: Sequence[str]) -> str:
    """Return *messages* as the lines of one message; of very many only the first."""
    more = len(messages) - _MOST_SHOWN
    return "\n".join([*messages[:_MOST_SHOWN], *([f"... and {more} more"] if more > 0 else [])])


def prefixed(prefix: str, error: UsageError) -> UsageError:
    """Return *error* with *prefix* before each of its lines."""
    return UsageError("\n".join(f"{prefix}: {line}" for line in str(error).split("\n")))
