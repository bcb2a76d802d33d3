"""Who said what, each thing once: programs send the whole history again with every question.

A program may hold several conversations at a time (a title, a sub-agent), and it may rewrite its
history (a summary in place of old turns). So every history that was seen is remembered as a
thread. A new one is told from the thread with which it has the longest beginning in common, and
only what that thread does not hold goes into the journal.

System prompts are no part of a thread, for some programs change them with every question; each is
written down once.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from bakeoff.core.journal import Journal
from bakeoff.core.task import Message
from bakeoff.gateway.bounds import letters

_MOST_THREADS = 200
_MOST_MARKS = 500_000
_CUT = "[... the conversation is longer than what is kept ...]"

Thread = tuple[int, ...]


class Conversation:
    """The threads of one trial, on their way into its journal.

    Of what the program says *most_kept* letters go there, and once more of the answers: a program
    that says something else each time would fill the host's memory.
    """

    def __init__(self, journal: Journal, *, most_kept: int) -> None:
        self._journal = journal
        self._prompts: set[int] = set()
        self._threads: OrderedDict[Thread, None] = OrderedDict()
        self._marks = 0
        self._heard_room = self._said_room = most_kept
        self._cut = False

    def heard(self, system: Iterable[str], messages: Sequence[Message]) -> Thread:
        """Write down what is new in a history, and return the thread that it makes."""
        for prompt in system:
            if hash(prompt) not in self._prompts and self._heard_room > 0:
                self._prompts.add(hash(prompt))
                self._hear(Message(role="system", content=prompt))
        thread = tuple(map(_mark, messages))
        nearest, common = self._nearest(thread)
        self._hear(*_unknown(messages[common:], thread[common:], nearest[common:]))
        if common == len(nearest):
            self._forget(nearest)  # it goes on
        self._remember(thread)
        return thread

    def said(self, thread: Thread, reply: Message) -> None:
        """Write down the answer to a thread."""
        if self._said_room > 0:
            self._said_room -= letters(reply)
            self._journal.say(reply)
        else:
            self._say_that_it_is_cut()
        self._forget(thread)
        self._remember((*thread, _mark(reply)))

    def _hear(self, *messages: Message) -> None:
        for message in messages:
            size = letters(message)
            if size > self._heard_room:
                self._heard_room = 0
                self._say_that_it_is_cut()
                return
            self._heard_room -= size
            self._journal.say(message)

    def _say_that_it_is_cut(self) -> None:
        if not self._cut:
            self._cut = True
            self._journal.say(Message(role="system", content=_CUT))

    def _nearest(self, thread: Thread) -> tuple[Thread, int]:
        """Return the thread with the longest beginning in common, and how long that is."""
        nearest: Thread = ()
        most = 0
        for other in reversed(self._threads):
            common = _common(thread, other)
            if common > most:
                nearest, most = other, common
        return nearest, most

    def _remember(self, thread: Thread) -> None:
        self._forget(thread)
        self._threads[thread] = None
        self._marks += len(thread)
        while len(self._threads) > _MOST_THREADS or self._marks > _MOST_MARKS:
            self._forget(next(iter(self._threads)))

    def _forget(self, thread: Thread) -> None:
        if thread in self._threads:
            del self._threads[thread]
            self._marks -= len(thread)


def _mark(message: Message) -> int:
    """Return what tells a message from others; reasoning and outer spaces do not come back."""
    text = message.content.strip()
    return hash((message.role, text, message.tool_calls, message.tool_call_id))


def _common(one: Thread, other: Thread) -> int:
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


def _unknown(
    messages: Sequence[Message], marks: Sequence[int], known: Sequence[int]
) -> list[Message]:
    """Return the messages that are not among the *known*, which may have been moved or cut."""
    left = Counter(known)
    new = []
    for message, mark in zip(messages, marks, strict=True):
        if left[mark]:
            left[mark] -= 1
        else:
            new.append(message)
    return new
