"""What a limiter needs to know of a request: of one that is asked here, or in another process."""

from collections.abc import Callable
from typing import Protocol

from bakeoff.core.outcome import Wait


class QueuedRequest(Protocol):
    """A request in the queue of a limiter, with whom to tell what it goes through there."""

    @property
    def begun(self) -> bool:
        """Whether its attempt had an answer already."""

    @property
    def question(self) -> object:
        """What is asked: equal for equal questions."""

    @property
    def prompt_tokens(self) -> float:
        """About how many tokens it is to read."""

    @property
    def answer_limit(self) -> float | None:
        """How many tokens its answer may have; None where it does not say."""

    @property
    def on_retry(self) -> Callable[[str], None] | None:
        """Hears why it waits, and an empty text when that is over."""

    @property
    def on_outage(self) -> Callable[[bool], None] | None:
        """Hears when it begins to wait for an endpoint that is down, and when that is over."""

    @property
    def on_wait(self) -> Callable[[Wait | None], None] | None:
        """Hears what it waits for, and None when that is over."""
