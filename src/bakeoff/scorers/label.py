"""The scorer `label`: which of some labels the answer gives, for suites that classify."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from bakeoff._lib.phrasing import did_you_mean
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import LABEL_GIVEN, LABEL_MEANT, Score
from bakeoff.core.task import Task

_READ = 200_000  # characters, from the end: enough for any answer
_AROUND = " \t\r\n.,;:!?\"'`*_()[]{}<>“”‘’„«»"
_CUE = r"(?i:\b(?:label|class|category|answer|sentiment|verdict|classification)\b)[\"'`*_]{0,3}\s{0,2}(?:[:=]|\bis\b)[\s\"'`*_(\[]{0,6}"


@dataclass(frozen=True, kw_only=True)
class Label:
    """1 where the answer gives the target, one of `labels`; the labels make a confusion table.

    A list of labels, or an object with other names of each: `{"positive": ["pos", "+"]}`. In order: an
    answer that is nothing but a label; the last one behind a cue ("Label: spam", "the answer is spam");
    the only one that the answer names, as whole words, the longest first. Several are ambiguous, which
    scores 0 and says so.
    """

    labels: list[str] | dict[str, list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if len(self.labels) < 2:
            raise UsageError(
                "scorer 'label': `labels` needs two at least, such as ['positive', 'negative']"
            )
        seen: dict[str, str] = {}
        for label, names in self._names.items():
            for name in names:
                folded = name.strip().casefold()
                if not folded:
                    raise UsageError(f"scorer 'label': a name of label {label!r} is blank")
                if seen.setdefault(folded, label) != label:
                    raise UsageError(
                        f"scorer 'label': {name!r} names two labels, {seen[folded]!r} and {label!r}"
                    )
        if len(self._names) < len(self.labels):
            raise UsageError("scorer 'label': two of `labels` are the same; leave one out")

    @cached_property
    def _names(self) -> Mapping[str, Sequence[str]]:
        """Every label with all its names."""
        if isinstance(self.labels, Mapping):
            return {label: [label, *others] for label, others in self.labels.items()}
        return {label: [label] for label in self.labels}

    @cached_property
    def _by_name(self) -> Mapping[str, str]:
        return {
            name.strip().casefold(): label for label, names in self._names.items() for name in names
        }

    @cached_property
    def _pattern(self) -> str:
        longest_first = sorted(self._by_name, key=len, reverse=True)
        return "|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in longest_first)

    @cached_property
    def _named(self) -> re.Pattern[str]:
        return re.compile(rf"(?i:{self._pattern})")

    @cached_property
    def _behind_cue(self) -> re.Pattern[str]:
        return re.compile(rf"{_CUE}(?P<named>(?i:{self._pattern}))")

    def check(self, task: Task) -> None:
        """Refuse a task whose target is not a label."""
        self._target(task)

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Find the label and compare it."""
        target, given = self._target(task), self.given(outcome.answer)
        if len(given) > 1:
            why: str | None = f"ambiguous: the answer names {' and '.join(given)}"
        elif not given:
            why = f"the answer names none of {', '.join(self._names)}"
        else:
            why = None if given == [target] else f"expected {target}, got {given[0]}"
        return Score(
            scorer="label",
            value=float(given == [target]),
            explanation=why,
            details={LABEL_MEANT: target, LABEL_GIVEN: given[0] if len(given) == 1 else None},
        )

    def given(self, answer: str) -> list[str]:
        """Return the label that *answer* gives: none where it names none, several where unclear."""
        text = answer[-_READ:]
        alone = self._by_name.get(text.strip(_AROUND).casefold()) or self._by_name.get(
            text.strip().casefold()
        )
        if alone is not None:
            return [alone]
        behind = [match["named"] for match in self._behind_cue.finditer(text)]
        if behind:
            return [self._by_name[behind[-1].casefold()]]
        return list(dict.fromkeys(self._mentions(text)))

    def _mentions(self, text: str) -> Iterator[str]:
        for match in self._named.finditer(text):
            yield self._by_name[match[0].casefold()]

    def _target(self, task: Task) -> str:
        if task.target is None:
            raise UsageError(
                f"task {task.id!r}: scorer 'label' needs `expected`; "
                f"write one of its labels: {', '.join(self._names)}",
                task=task.id,
            )
        text = str(task.target).lower() if isinstance(task.target, bool) else str(task.target)
        label = self._by_name.get(text.strip().casefold())
        if label is None:
            raise UsageError(
                f"task {task.id!r}: `expected` is {task.target!r}, which is no label of scorer "
                f"'label'; {did_you_mean(text, self._names)}",
                task=task.id,
            )
        return label
