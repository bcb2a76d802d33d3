"""Whether the roles of a dialogue played their part: a failure may be theirs and not the agent's.

* `leaked`: the instructor said words or numbers of its reference that nobody had brought up.
* `ended early`: it ended while the agent asked, or before all of its objective had been raised.
* `contradicted`: the supervisor held that its message goes against the reference.
* `overruled`: the supervisor spoke in its place.
* `withheld`: it counted a shard as told and hardly told it.

What is looked at are words, so a mark is a reason to read the turn, not a proof.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bakeoff.core.dialogue import INSTRUCTOR, SUPERVISOR, Dialogue, Turn

LEAKED, ENDED_EARLY = "leaked", "ended early"
CONTRADICTED, OVERRULED, WITHHELD = "contradicted", "overruled", "withheld"
MARKS = (LEAKED, ENDED_EARLY, CONTRADICTED, OVERRULED, WITHHELD)

_WORD = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*%?")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(\S.*)$", re.MULTILINE)
_IN_A_ROW = 6  # words: what is said in other words does not share so many in a row by chance
_COMMON_NUMBERS = 10  # up to here a number is in any text
_LONG = 4  # letters of a word that carries some meaning
_RAISED, _TOLD = 0.5, 0.3  # the share of such words that must have been said


def audited(dialogue: Dialogue, before: Sequence[Turn], turn: Turn) -> Turn:
    """Return *turn*, the next after *before*, with what there is to mark."""
    return replace(turn, marks=tuple(_marks(dialogue, before, turn)))


def _marks(dialogue: Dialogue, before: Sequence[Turn], turn: Turn) -> Iterator[str]:
    if turn.speaker == SUPERVISOR:
        yield OVERRULED
    if turn.follow_up is not None:
        yield CONTRADICTED
    if turn.speaker != INSTRUCTOR:
        return
    if _leaks(dialogue, before, turn):
        yield LEAKED
    if turn.end and _is_early(dialogue, before, turn):
        yield ENDED_EARLY
    told = [dialogue.shards[number - 1] for number in turn.shards]
    if any(_share(shard, turn.message) < _TOLD for shard in told):
        yield WITHHELD


def _leaks(dialogue: Dialogue, before: Sequence[Turn], turn: Turn) -> bool:
    """Whether the message has words or a number in a row from what was to be kept."""
    said = [text for earlier in before for text in (earlier.message, earlier.reply)]
    known = "\n".join((dialogue.objective, dialogue.knowledge, dialogue.opening or "", *said))
    if dialogue.mode == "shard_user":
        told = {number for one in (*before, turn) for number in one.shards}
        secrets = [s for n, s in enumerate(dialogue.shards, start=1) if n not in told]
        known += "\n".join(dialogue.shards[number - 1] for number in told)
    else:
        secrets = [dialogue.reference]
    secret = "\n".join(secrets)
    rows = (_rows(secret) - _rows(known)) & _rows(turn.message)
    numbers = (_numbers(secret) - _numbers(known)) & _numbers(turn.message)
    return bool(rows or numbers)


def _is_early(dialogue: Dialogue, before: Sequence[Turn], turn: Turn) -> bool:
    if before and before[-1].reply.rstrip().endswith("?"):
        return True
    said = "\n".join(
        (turn.message, *(text for earlier in before for text in (earlier.message, earlier.reply)))
    )
    return any(_share(item, said) < _RAISED for item in _ITEM.findall(dialogue.objective))


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _rows(text: str) -> set[tuple[str, ...]]:
    words = _words(text)
    return {tuple(words[i : i + _IN_A_ROW]) for i in range(len(words) - _IN_A_ROW + 1)}


def _numbers(text: str) -> set[str]:
    return {
        found
        for found in _NUMBER.findall(text)
        if not found.isdecimal() or int(found) > _COMMON_NUMBERS
    }


def _share(text: str, said: str) -> float:
    """Return how much of the words with a meaning in *text* is in *said*."""
    wanted = {word for word in _words(text) if len(word) >= _LONG or word[0].isdigit()}
    if not wanted:
        return 1.0
    return len(wanted & set(_words(said))) / len(wanted)
