"""Whether the roles of a dialogue played their part: a failure may be theirs and not the agent's.

* `leaked`: the instructor said words or figures of its reference that nobody had brought up.
* `ended early`: it ended while the agent asked, or before all of its objective had been raised.
* `contradicted`: the supervisor held that its message goes against the reference.
* `overruled`: the supervisor spoke in its place.
* `withheld`: it counted a shard as told and hardly told it.

What is looked at are words, so a mark is a reason to read the turn, not a proof.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bakeoff.agents.dialogue_wording import figures, is_asking, phrases, share, spoken
from bakeoff.core.dialogue import INSTRUCTOR, SUPERVISOR, Dialogue, Turn

LEAKED, ENDED_EARLY = "leaked", "ended early"
CONTRADICTED, OVERRULED, WITHHELD = "contradicted", "overruled", "withheld"
MARKS = (LEAKED, ENDED_EARLY, CONTRADICTED, OVERRULED, WITHHELD)

_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(\S.*)$", re.MULTILINE)
_RAISED, _TOLD = 0.34, 0.3  # the share of the words that must have been said


def audited(dialogue: Dialogue, before: Sequence[Turn], turn: Turn) -> Turn:
    """Return *turn*, the next after *before*, with what there is to mark."""
    return replace(turn, marks=tuple(_marks(dialogue, before, turn)))


def _marks(dialogue: Dialogue, before: Sequence[Turn], turn: Turn) -> Iterator[str]:
    if turn.speaker == SUPERVISOR:
        yield OVERRULED
    if turn.speaker != INSTRUCTOR:
        return
    if turn.contradictory:
        yield CONTRADICTED
    if _leaks(dialogue, before, turn):
        yield LEAKED
    if turn.end and _is_early(dialogue, before, turn):
        yield ENDED_EARLY
    told = [dialogue.shards[number - 1] for number in turn.shards]
    if any(share(shard, turn.message) < _TOLD for shard in told):
        yield WITHHELD


def _leaks(dialogue: Dialogue, before: Sequence[Turn], turn: Turn) -> bool:
    """Whether the message has a phrase or a figure of what was to be kept."""
    told = {number for one in (*before, turn) for number in one.shards}
    if dialogue.mode == "shard_user":
        secret = [s for n, s in enumerate(dialogue.shards, start=1) if n not in told]
    else:
        secret = [dialogue.reference]
    known = [dialogue.objective, dialogue.knowledge, dialogue.opening or "", *_said(before)]
    known += [dialogue.shards[number - 1] for number in told]
    if (figures(*secret) - figures(*known)) & figures(turn.message):
        return True
    heard, message = spoken(*known), spoken(turn.message)
    return any(phrase in message and phrase not in heard for phrase in phrases(secret))


def _is_early(dialogue: Dialogue, before: Sequence[Turn], turn: Turn) -> bool:
    if before and is_asking(before[-1].reply, turn.message):
        return True
    said = "\n".join((turn.message, *_said(before)))
    return any(share(item, said) < _RAISED for item in _ITEM.findall(dialogue.objective))


def _said(turns: Sequence[Turn]) -> list[str]:
    return [text for turn in turns for text in (turn.message, turn.reply)]
