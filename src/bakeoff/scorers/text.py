"""Scorers that compare the answer as text: exact, includes, contains, starts-with, pattern."""

import asyncio
import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING
from unicodedata import category, normalize

from bakeoff._lib.sanitize import one_line
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import ScorerError, UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.task import Task
from bakeoff.core.values import Json

if TYPE_CHECKING:
    import regex  # slow to import, and most suites need no pattern


def as_text(value: str | float) -> str:
    """Return a scalar as text: 42, 0.5, true."""
    return value if isinstance(value, str) else json.dumps(value)


def expected_values(task: Task, scorer: str, given: Json = None) -> tuple[str | float, ...]:
    """Return the accepted answers of *task*; *given* overrides its target."""
    target = task.target if given is None else given
    if target is None:
        raise UsageError(
            f"task {task.id!r}: scorer {scorer!r} needs `expected`; "
            "add it to the task, or choose a scorer that needs none (judge, reasoning)",
            task=task.id,
        )
    if isinstance(target, str):
        return (target,)
    several = target if isinstance(target, list | tuple) else (target,)
    if not several:
        raise UsageError(
            f"task {task.id!r}: `expected` is an empty list; name one answer at least", task=task.id
        )
    values = []
    for value in several:
        if not isinstance(value, str | bool | int | float):
            raise UsageError(
                f"task {task.id!r}: scorer {scorer!r} compares texts and numbers, not "
                f"{type(value).__name__}; for objects use the scorer 'json'",
                task=task.id,
            )
        values.append(value)
    return tuple(values)


_PART = 1 << 20
_SPACE = re.compile(r"\s")
_LONGEST = 200_000  # a compatibility form may be 18 characters long: hostile text would explode


def normal(text: str, *, ignore_case: bool = False) -> str:
    """Return *text* in NFKC with runs of whitespace as one space, stripped.

    A text of more than 200 000 characters keeps its characters; only whitespace and case change.
    """
    if not text.isascii() and len(text) <= _LONGEST:
        text = normalize("NFKC", _long_accents().sub(r"\1", text))
    if ignore_case:
        text = text.casefold()
    return single_spaced(text)


@cache
def _long_accents() -> "regex.Pattern[str]":
    """Return what finds long runs of accents: sorting them is quadratic."""
    import regex

    return regex.compile(r"(\P{ccc=0}{32})\P{ccc=0}+")


def single_spaced(text: str) -> str:
    """Return *text* stripped, with runs of whitespace as one space."""
    if len(text) <= _PART:
        return " ".join(text.split())
    return " ".join(filter(None, (" ".join(part.split()) for part in _parts(text))))


def word_count(text: str) -> int:
    """Return how many words *text* has."""
    return sum(len(part.split()) for part in _parts(text))


def _parts(text: str) -> Iterator[str]:
    """Yield *text* in parts that end between words, because a list of all words may be huge."""
    start = 0
    while len(text) - start > _PART:
        gap = _SPACE.search(text, start + _PART)
        if gap is None:
            break
        yield text[start : gap.start()]
        start = gap.start()
    yield text[start:] if start else text


_RUNAWAY = 200_000


@value_object
class Exact:
    """1 where the answer is the target, or one of a list of targets.

    Both are compared in NFKC, stripped, with runs of whitespace as one space. An answer that is
    200 000 characters longer than every target is none of them, whatever it consists of.
    """

    ignore_case: bool = False
    ignore_punctuation: bool = False

    def check(self, task: Task) -> None:
        """Refuse a task without a target."""
        expected_values(task, "exact")

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Compare the whole answer."""
        targets = [self._plain(as_text(v)) for v in expected_values(task, "exact")]
        answer = outcome.answer.strip()
        runaway = len(answer) > max(map(len, targets)) + _RUNAWAY
        right = not runaway and self._plain(answer) in targets
        return Score(
            scorer="exact",
            value=float(right),
            explanation=None
            if right
            else f"expected {_any_of(targets)}, got {_shown(outcome.answer)}",
        )

    def _plain(self, text: str) -> str:
        text = normal(text, ignore_case=self.ignore_case)
        if self.ignore_punctuation:
            marks = {ord(c): None for c in set(text) if category(c).startswith("P")}
            text = single_spaced(text.translate(marks))
        return text


@value_object
class Includes:
    """1 where the answer contains the target, or any (`all`: every one) of a list of targets.

    A number as a target must stand alone as a number: 3 is not in 13, 3.5, x3 or -3, but it is in
    "3." and "3%". It is looked for as written (1234 is not in "1,234"); values are for `numeric`.
    """

    ignore_case: bool = True
    all: bool = False
    whole_words: bool = False

    def check(self, task: Task) -> None:
        """Refuse a task without a target, and a blank one, which every answer contains."""
        _refuse_blank(task, expected_values(task, "includes"), "includes")

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Look for every target."""
        targets = expected_values(task, "includes")
        missing = _missing(targets, outcome.answer, self.ignore_case, self.whole_words)
        right = not missing if self.all else len(missing) < len(targets)
        return Score(
            scorer="includes",
            value=float(right),
            explanation=None if right else f"not in the answer: {_any_of(missing)}",
            details={"missing": missing},
        )


def _refuse_blank(task: Task, values: Sequence[str | float], scorer: str) -> None:
    """Raise where one of *values*, which *task* looks for, would be in every answer."""
    if any(not as_text(value).strip() for value in values):
        raise UsageError(
            f"task {task.id!r}: `expected` is blank, and scorer {scorer!r} would find it "
            "in every answer; write what the answer must contain",
            task=task.id,
        )


def _missing(
    targets: Sequence[str | float],
    answer: str,
    ignore_case: bool,  # noqa: FBT001 -- two settings of a scorer, handed on
    whole_words: bool,  # noqa: FBT001
) -> list[str]:
    """Return those of *targets* that are not in *answer*."""
    text = normal(answer, ignore_case=ignore_case)
    return [
        as_text(target)
        for target in targets
        if not _contains(target, text, ignore_case=ignore_case, whole_words=whole_words)
    ]


def _contains(target: str | float, answer: str, *, ignore_case: bool, whole_words: bool) -> bool:
    text = normal(as_text(target), ignore_case=ignore_case)
    if isinstance(target, str) and not whole_words:
        return text in answer
    literal = re.escape(text)
    if not isinstance(target, str | bool):
        # a leading literal makes the search fast; what precedes it is checked afterwards
        alone = rf"(?<!\w{literal})(?<!\d[.,]{literal})(?<!(?<!\w)[-−]{literal})(?!\w|[.,]\d)"
        return re.search(literal + alone, answer) is not None
    if whole_words:
        return re.search(rf"{literal}(?<!\w{literal})(?!\w)", answer) is not None
    return text in answer


@value_object
class ContainsAll:
    """1 where the answer contains every one of `values`, or of the task's targets.

    With `partial`, the share of them that it contains. They are looked for as by `includes`.
    """

    values: list[str | float] | None = None
    ignore_case: bool = True
    whole_words: bool = False
    partial: bool = False

    def check(self, task: Task) -> None:
        """Refuse a task with nothing, or something blank, to look for."""
        _refuse_blank(task, expected_values(task, "contains-all", self.values), "contains-all")

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Look for every value."""
        values = expected_values(task, "contains-all", self.values)
        missing = _missing(values, outcome.answer, self.ignore_case, self.whole_words)
        share = 1 - len(missing) / len(values)
        return Score(
            scorer="contains-all",
            value=share if self.partial else float(not missing),
            explanation=f"not in the answer: {_listed(missing)}" if missing else None,
            details={"missing": missing},
        )


@value_object
class ContainsAny:
    """1 where the answer contains one at least of `values`, or of the task's targets."""

    values: list[str | float] | None = None
    ignore_case: bool = True
    whole_words: bool = False

    def check(self, task: Task) -> None:
        """Refuse a task with nothing, or something blank, to look for."""
        _refuse_blank(task, expected_values(task, "contains-any", self.values), "contains-any")

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Look for any value."""
        values = expected_values(task, "contains-any", self.values)
        missing = _missing(values, outcome.answer, self.ignore_case, self.whole_words)
        right = len(missing) < len(values)
        return Score(
            scorer="contains-any",
            value=float(right),
            explanation=None if right else f"not in the answer: {_any_of(missing)}",
            details={"missing": missing},
        )


@value_object
class StartsWith:
    """1 where the answer begins with `values`, or with the task's target, or one of a list."""

    values: list[str | float] | None = None
    ignore_case: bool = True

    def check(self, task: Task) -> None:
        """Refuse a task with nothing, or something blank, to look for."""
        _refuse_blank(task, expected_values(task, "starts-with", self.values), "starts-with")

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Compare the beginning."""
        starts = _plain_values(task, "starts-with", self.values, ignore_case=self.ignore_case)
        answer = normal(outcome.answer, ignore_case=self.ignore_case)
        right = answer.startswith(tuple(starts))
        why = f"expected {_any_of(starts)} first, got {_shown(answer[:80])}"
        return Score(scorer="starts-with", value=float(right), explanation=None if right else why)


@value_object
class EndsWith:
    """1 where the answer ends with `values`, or with the task's target, or one of a list."""

    values: list[str | float] | None = None
    ignore_case: bool = True

    def check(self, task: Task) -> None:
        """Refuse a task with nothing, or something blank, to look for."""
        _refuse_blank(task, expected_values(task, "ends-with", self.values), "ends-with")

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Compare the end."""
        ends = _plain_values(task, "ends-with", self.values, ignore_case=self.ignore_case)
        answer = normal(outcome.answer, ignore_case=self.ignore_case)
        right = answer.endswith(tuple(ends))
        why = f"expected {_any_of(ends)} last, got {_shown(answer[-80:])}"
        return Score(scorer="ends-with", value=float(right), explanation=None if right else why)


def _plain_values(task: Task, scorer: str, given: Json, *, ignore_case: bool) -> list[str]:
    values = expected_values(task, scorer, given)
    return [normal(as_text(value), ignore_case=ignore_case) for value in values]


_INLINE_S = 0.02  # nearly every search ends within it; a longer one must not stall the event loop
_TIMEOUT_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """1 where the pattern is found; with `group`, where what the group took is as expected.

    The syntax is that of the `regex` package, a superset of `re`. `multiline` (on) lets ^ and $
    match at every line; other flags can be written inline, such as (?s). With a group, the last
    match in which it took part counts; the text it took, stripped, must equal `expected` or, where
    that is not set, the task's target (or one of a list). A search that takes more than two
    seconds is a fault of the pattern, not a wrong answer.
    """

    pattern: str
    group: int | str | None = None
    expected: Json = None
    ignore_case: bool = False
    multiline: bool = True

    def __post_init__(self) -> None:
        if self.group is None:
            if self.expected is not None:
                raise UsageError(
                    "scorer 'pattern': `expected` is compared with a group; set `group` as well"
                )
            _ = self._compiled
            return
        named = isinstance(self.group, str)
        groups = self._compiled.groupindex if named else range(self._compiled.groups + 1)
        if self.group not in groups:
            there_are = ", ".join(map(str, groups)) or "none"
            raise UsageError(
                f"scorer 'pattern': no group {self.group!r} in {self.pattern!r}; "
                f"there are: {there_are}"
            )

    def check(self, task: Task) -> None:
        """Refuse a task without a target where a group is to be compared with it."""
        if self.group is not None:
            expected_values(task, "pattern", self.expected)

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Search the answer."""
        try:
            matched = self._search(outcome.answer, _INLINE_S)
        except TimeoutError:
            matched = await self._search_in_thread(outcome.answer)
        if matched is None:
            why = f"no match of {self.pattern!r} in the answer"
            return Score(scorer="pattern", value=0.0, explanation=why)
        if self.group is None:
            return Score(scorer="pattern", value=1.0, details={"found": one_line(matched)})
        targets = [as_text(v) for v in expected_values(task, "pattern", self.expected)]
        right = self._folded(matched) in map(self._folded, targets)
        return Score(
            scorer="pattern",
            value=float(right),
            explanation=None if right else f"expected {_any_of(targets)}, got {_shown(matched)}",
            details={"found": one_line(matched)},
        )

    @cached_property
    def _compiled(self) -> "regex.Pattern[str]":
        import regex

        flags = regex.VERSION0
        flags |= regex.IGNORECASE if self.ignore_case else 0
        flags |= regex.MULTILINE if self.multiline else 0
        try:
            return regex.compile(self.pattern, flags)
        except (regex.error, RecursionError) as error:
            raise UsageError(
                f"scorer 'pattern': {self.pattern!r} is not a regular expression ({error}); "
                "correct it, or escape what is meant literally with a backslash"
            ) from error

    async def _search_in_thread(self, answer: str) -> str | None:
        try:
            return await asyncio.to_thread(self._search, answer, _TIMEOUT_S)
        except TimeoutError as error:
            raise ScorerError(
                f"pattern {self.pattern!r} took more than {_TIMEOUT_S:g} s on an answer of "
                f"{len(answer)} characters; write it without nested repetition"
            ) from error

    def _search(self, answer: str, timeout_s: float) -> str | None:
        if self.group is None:
            match = self._compiled.search(answer, timeout=timeout_s, concurrent=True)
            return match.group() if match else None
        matches = self._compiled.finditer(answer, timeout=timeout_s, concurrent=True)
        taken = (match.group(self.group) for match in matches)
        last = deque((text for text in taken if text is not None), maxlen=1)
        return last[0] if last else None

    def _folded(self, text: str) -> str:
        text = text.strip()
        return text.casefold() if self.ignore_case else text


def _any_of(texts: list[str]) -> str:
    return " or ".join(_shown(text) for text in texts[:5]) + (" or …" if len(texts) > 5 else "")


def _listed(texts: list[str]) -> str:
    return ", ".join(_shown(text) for text in texts[:5]) + (", …" if len(texts) > 5 else "")


def _shown(text: str) -> str:
    return repr(one_line(text, width=80))
