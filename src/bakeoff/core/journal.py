"""The transcript and log of one attempt, written as it runs so that an interrupted one keeps them."""

from collections.abc import Callable

from bakeoff.core.outcome import Outcome
from bakeoff.core.task import Message

_MOST_LOG = 2_000_000
_CUT = "\n[... the log is longer than what is kept ...]\n"


class Journal:
    """The transcript and the log of one attempt, written by its agent and by the gateway.

    *on_log* is called with each text as it is logged; *on_turn* with the number of a turn when it
    starts, and again when it ends.
    """

    def __init__(
        self,
        on_log: Callable[[str], None] | None = None,
        on_turn: Callable[[int, bool], None] | None = None,
    ) -> None:
        self._on_log = on_log
        self._on_turn = on_turn
        self.messages: list[Message] = []
        self.interventions = 0
        self.partial_outcome: Callable[[], Outcome] | None = None  # the outcome if interrupted now
        self._log: list[str] = []
        self._room_left = _MOST_LOG

    def add_messages(self, *messages: Message) -> None:
        """Append to the transcript."""
        self.messages.extend(messages)

    def write_log(self, text: str) -> None:
        """Append to the log; text beyond the size limit is dropped, with a note."""
        if not text:
            return
        if self._on_log is not None:
            self._on_log(text)
        if self._room_left <= 0:
            return
        self._log.append(text[: self._room_left])
        self._room_left -= len(text)
        if self._room_left <= 0:
            self._log.append(_CUT)

    def turn(self, number: int, *, over: bool) -> None:
        """Report that a turn of a dialogue starts or ends."""
        if self._on_turn is not None:
            self._on_turn(number, over)

    @property
    def log(self) -> str | None:
        """Return the log, or None where nothing was printed."""
        return "".join(self._log) or None
