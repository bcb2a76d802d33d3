"""How the answers to the rows of a data set are checked, where nobody says: guessed, and said."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.core.values import Json
from bakeoff.formats.text.entries import default_scorers

_SHORT = 3  # characters; `no` is also in `know`
_WITHOUT_SPACES = "\u0590"  # from here on there are scripts that set no spaces between words
_FIRST_OPTIONS = "ABCD"
_OPTION_COLUMN = re.compile(r"(?:(?:option|choice|answer)[ _-]?)?([ab])", re.IGNORECASE)
_LISTS = frozenset({"choices", "options"})
_OPTION_IN_TEXT = re.compile(r"(?:^|\s|\()B ?[).:]", re.MULTILINE)
_FEWEST_ROWS, _MOST_LABELS, _ROWS_PER_LABEL = 20, 10, 5


def guessed_scorers(
    target: Json, values: Mapping[str, Json], at: SourceLocation
) -> tuple[ScorerSpec, ...]:
    """Return how an answer is compared with the *target* of a row with these *values*.

    A letter is a choice where the row has options; any other short text must stand alone as a word.
    """
    if not isinstance(target, str) or not _is_short_word(text := target.strip()):
        return default_scorers(target, at=at)
    if re.fullmatch("[A-Z]", text) and _has_options(values):
        last = max(text, _FIRST_OPTIONS[-1])
        options: Json = [chr(letter) for letter in range(ord("A"), ord(last) + 1)]
        return (ScorerSpec(name="choice", settings={"options": options}, origin=at),)
    settings: dict[str, Json] = {"whole_words": True}
    if len(text) == 1:
        settings["ignore_case"] = False  # `a` is a word
    return (ScorerSpec(name="includes", settings=settings, origin=at),)


def _is_short_word(text: str) -> bool:
    return text.isalnum() and len(text) <= _SHORT and max(text) < _WITHOUT_SPACES


def _has_options(values: Mapping[str, Json]) -> bool:
    """Whether a row has lettered options: in columns of their own, or in a text."""
    letters = {m[1].lower() for name in values if (m := _OPTION_COLUMN.fullmatch(name))}
    if letters == {"a", "b"} or any(name.lower() in _LISTS for name in values):
        return True
    return any(isinstance(v, str) and _OPTION_IN_TEXT.search(v) for v in values.values())


@dataclass
class Checks:
    """Counts how the rows that were read are checked, to say it."""

    scorers: Counter[str] = field(default_factory=Counter)
    unchecked: int = 0
    labels: Counter[str] | None = field(default_factory=Counter)  # None: too many to be labels

    def add(self, task: Task) -> None:
        """Count the *task* of a row."""
        if not task.scorers:
            self.unchecked += 1
        for spec in task.scorers:
            self.scorers[spec.name] += 1
        if self.labels is not None and task.target is not None:
            self.labels[str(task.target)] += 1
            if len(self.labels) > _MOST_LABELS:
                self.labels = None

    def described(self) -> Iterator[str]:
        """Yield what a person should know."""
        if not self.scorers:
            yield (
                "no expected answer is there, so no answer is scored: name their column with --expected, "
                "or a scorer that needs none with --scorer"
            )
            return
        many = ", ".join(f"{name} ({rows:,})" for name, rows in self.scorers.most_common())
        unchecked = (
            f"; not checked: {self.unchecked:,}, no expected answer" if self.unchecked else ""
        )
        yield f"answers are checked with {many}{unchecked}; to choose: --scorer NAME"
        if self.scorers.keys() == {"includes"} and self._are_labels():
            labels = json.dumps(sorted(self.labels or ()), ensure_ascii=False)
            yield (
                f"there are {len(self.labels or ())} expected answers; if they are labels, this tells them "
                f"apart, and which are confused: --scorer {shlex.quote(f'label{{labels={labels}}}')}"
            )

    def _are_labels(self) -> bool:
        rows, labels = self.scorers.total(), len(self.labels or ())
        return rows >= _FEWEST_ROWS and 1 < labels <= rows / _ROWS_PER_LABEL
