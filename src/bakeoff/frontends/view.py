"""What shows a run to a person: a live table, plain lines, or a log."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from bakeoff.core.events import Event


class View(ABC):
    """A listener that is opened before the first event and closed after the last one."""

    def open(self) -> None:  # noqa: B027 -- most views have nothing to open
        """Take over the terminal, where the view needs it."""

    def close(self) -> None:  # noqa: B027 -- nor to close
        """Leave the terminal as it was."""

    @abstractmethod
    def __call__(self, event: Event) -> None:
        """Show *event*."""

    @abstractmethod
    def say(self, text: str) -> None:
        """Show one line."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
