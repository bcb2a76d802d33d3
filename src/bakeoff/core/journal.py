"""What happens in one attempt, kept as it happens: an attempt that is cut leaves what there was."""

from collections.abc import Callable

from bakeoff.core.outcome import Outcome
from bakeoff.core.task import Message

_MOST_LOG = 2_000_000
_CUT = "\n[... the log is longer than what is kept ...]\n"


class Journal:
    """The transcript and the log of one attempt, written by its agent and by the gateway.

    Whoever *on_output* is told the log as it is written; *on_turn* is called when the turn of that
    number starts, and again when it is over.
    """

    def __init__(
        self,
        on_output: Callable[[str], None] | None = None,
        on_turn: Callable[[int, bool], None] | None = None,
    ) -> None:
        self._on_output = on_output
        self._on_turn = on_turn
        self.messages: list[Message] = []
        self.interventions = 0
        self.left: Callable[[], Outcome] | None = None  # what the agent leaves if it is cut now
        self._log: list[str] = []
        self._room = _MOST_LOG

    def say(self, *messages: Message) -> None:
        """Go on with the conversation."""
        self.messages.extend(messages)

    def print(self, text: str) -> None:
        """Go on with the log; what is too long is left out, and it says so."""
        if not text:
            return
        if self._on_output is not None:
            self._on_output(text)
        if self._room <= 0:
            return
        self._log.append(text[: self._room])
        self._room -= len(text)
        if self._room <= 0:
            self._log.append(_CUT)

    def turn(self, number: int, *, over: bool) -> None:
        """Say that a turn of a dialogue starts, or is over."""
        if self._on_turn is not None:
            self._on_turn(number, over)

    @property
    def log(self) -> str | None:
        """Return the log, or None where nothing was printed."""
        return "".join(self._log) or None
