"""Scorers for how near the answer is to the target: edit-similarity, token-f1."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import category

from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.task import Task
from bakeoff.scorers.text import as_text, expected_values, normal

_LONGEST_TARGET = 20_000  # characters; the time is the product of both lengths
_LONGER_ANSWER = 10_000
_INLINE = 4_000_000  # characters times characters; more is compared beside the event loop
_ARTICLES = frozenset({"a", "an", "the"})


@dataclass(frozen=True, kw_only=True)
class EditSimilarity:
    """1 - edit distance / length of the longer text: 1 is equal, 0 has nothing in common.

    The distance is Levenshtein's: characters inserted, deleted and replaced, in texts normalized as
    for `exact`. Of several targets the nearest counts. Of an answer that is more than twice the
    target and 10 000 characters long, what goes beyond that counts as inserted.
    """

    ignore_case: bool = False

    def check(self, task: Task) -> None:
        """Refuse a task without a target, and one whose target is too long to be compared."""
        longest = max(len(as_text(v)) for v in expected_values(task, "edit-similarity"))
        if longest > _LONGEST_TARGET:
            raise UsageError(
                f"task {task.id!r}: `expected` has {longest:,} characters; scorer "
                f"'edit-similarity' compares {_LONGEST_TARGET:,} at most; use 'token-f1'",
                task=task.id,
            )

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Compare with each target."""
        answer = normal(outcome.answer, ignore_case=self.ignore_case)
        targets = [
            normal(as_text(v), ignore_case=self.ignore_case)
            for v in expected_values(task, "edit-similarity")
        ]
        if len(answer) * max(map(len, targets)) <= _INLINE:
            value = _nearest(answer, targets)
        else:
            value = await asyncio.to_thread(_nearest, answer, targets)
        return Score(scorer="edit-similarity", value=value, explanation=_near(value))


def _nearest(answer: str, targets: Sequence[str]) -> float:
    return max(edit_similarity(answer, target) for target in targets)


def edit_similarity(answer: str, target: str) -> float:
    """Return 1 - the edit distance of two texts / the length of the longer one."""
    longer = max(len(answer), len(target))
    if not longer:
        return 1.0
    read = answer[: 2 * len(target) + _LONGER_ANSWER]
    return 1 - (edit_distance(read, target) + len(answer) - len(read)) / longer


def edit_distance(text: str, target: str) -> int:
    """Return Levenshtein's distance, one column of the table at a time in the bits of integers.

    Myers, "A fast bit-vector algorithm for approximate string matching" (1999), as Hyyrö reworded it.
    """
    if not target:
        return len(text)
    where: dict[str, int] = {}
    for position, character in enumerate(target):
        where[character] = where.get(character, 0) | 1 << position
    every, last = (1 << len(target)) - 1, 1 << (len(target) - 1)
    up, down, distance = every, 0, len(target)  # where a column grows by 1 and where it falls by 1
    for character in text:
        equal = where.get(character, 0)
        same = (((equal & up) + up) ^ up) | equal | down
        right = down | ~(same | up) & every
        left = up & same
        distance += bool(right & last) - bool(left & last)
        right = right << 1 | 1
        up = (left << 1 | ~(same | right)) & every
        down = right & same & every
    return distance


@dataclass(frozen=True, kw_only=True)
class TokenF1:
    """The F1 of the words that answer and target share, as for SQuAD.

    Both are lower-cased and lose punctuation and the articles a, an, the; a word counts as often as
    it occurs. Of several targets the best counts.
    """

    def check(self, task: Task) -> None:
        """Refuse a task without a target."""
        expected_values(task, "token-f1")

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Count shared words."""
        answer = _words(outcome.answer)
        targets = [_words(as_text(v)) for v in expected_values(task, "token-f1")]
        value = max(_f1(answer, target) for target in targets)
        return Score(scorer="token-f1", value=value, explanation=_near(value))


def _words(text: str) -> Counter[str]:
    text = normal(text, ignore_case=True)
    marks = {ord(c): None for c in set(text) if category(c).startswith("P")}
    return Counter(word for word in text.translate(marks).split() if word not in _ARTICLES)


def _f1(answer: Counter[str], target: Counter[str]) -> float:
    total = answer.total() + target.total()
    return 2 * (answer & target).total() / total if total else 1.0


def _near(value: float) -> str | None:
    return None if value == 1 else f"{value:.2f} of 1"
