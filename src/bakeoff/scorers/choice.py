"""The scorer `choice`: which option of a multiple-choice question the answer names."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from bakeoff._lib.suggest import did_you_mean
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.task import Task
from bakeoff.scorers.choice_forms import forms

_READ = 200_000  # characters; enough for any answer, and a runaway one still costs little


@dataclass(frozen=True, kw_only=True)
class Choice:
    r"""1 where the answer chooses the target among `options`.

    The clearest form found decides. Of several cues the last wins, since a model may change its
    mind; in any other form two different options are ambiguous, which scores 0 and says so.

    1. a cue: "the answer is (B)", "Answer: B", "I choose B", "B is correct", \boxed{B}
    2. a line that is nothing else: "B", "**B**", "(b)", "B."
    3. a line that begins with it: "B) Paris", "(b) Paris", "B. Paris", "B because ..."
    4. anywhere in the text: "(B)", "**B**", "option B"

    The words "a" and "I" are never taken for options: a lower-case letter, and A and I before
    another word, count only where brackets, punctuation or the end of the line set them apart.
    Of a longer answer only the last 200 000 characters are read.
    """

    options: list[str] = field(default_factory=lambda: ["A", "B", "C", "D"])

    def __post_init__(self) -> None:
        if len(self.options) < 2:
            raise UsageError("scorer 'choice': `options` needs two at least, such as ['A', 'B']")
        for option in self.options:
            if not option.isalnum():
                raise UsageError(
                    f"scorer 'choice': option {option!r} is not a letter, number or word; "
                    "options are labels such as 'A', not the texts behind them"
                )
        if len({o.casefold() for o in self.options}) < len(self.options):
            raise UsageError("scorer 'choice': two of `options` are the same; rename one")

    def check(self, task: Task) -> None:
        """Refuse a task whose target is not an option."""
        self._target(task)

    async def score(self, task: Task, outcome: Outcome, kit: Context) -> Score:  # noqa: ARG002
        """Find the chosen option and compare it."""
        target, chosen = self._target(task), self.chosen(outcome.answer)
        if len(chosen) > 1:
            why: str | None = f"ambiguous: the answer names {' and '.join(chosen)}"
        elif not chosen:
            why = f"the answer chooses none of {', '.join(self.options)}"
        else:
            why = None if chosen == [target] else f"expected {target}, got {chosen[0]}"
        return Score(
            scorer="choice",
            value=float(chosen == [target]),
            explanation=why,
            details={"chosen": chosen[0] if len(chosen) == 1 else None},
        )

    def chosen(self, answer: str) -> list[str]:
        """Return the option *answer* chooses: none where it names none, several where unclear."""
        known, start = forms(tuple(self.options)), max(0, len(answer) - _READ)
        cues = [match for cue in known.cues for match in cue.finditer(answer, start)]
        if cues:
            last = max(cues, key=lambda match: match.start("named"))
            return self._distinct(known.label.findall(last["named"]))
        for form in known.faint:
            if found := self._distinct(match["named"] for match in form.finditer(answer, start)):
                return found
        return []

    def _distinct(self, found: Iterable[str]) -> list[str]:
        folded = {text.casefold() for text in found}
        return [option for option in self.options if option.casefold() in folded]

    def _target(self, task: Task) -> str:
        if task.target is None:
            raise UsageError(
                f"task {task.id!r}: scorer 'choice' needs `expected`; "
                f"write one of its options: {', '.join(self.options)}"
            )
        named = self._distinct([str(task.target).strip()])
        if not named:
            raise UsageError(
                f"task {task.id!r}: `expected` is {task.target!r}, which is no option of scorer "
                f"'choice'; {did_you_mean(str(task.target), self.options)}"
            )
        return named[0]
