"""The scorer `choice`: which option of a multiple-choice question the answer names."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from bakeoff._lib.phrasing import did_you_mean
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import LABEL_GIVEN, LABEL_MEANT, Score
from bakeoff.core.task import Task

_CUES = r"""(?i:
    \b(?:answer|choice|option|selection)\b
      (?: (?:\s+to\s[^.\n]{0,60}?)? \s+(?:is|was|would\s+be|must\s+be|should\s+be)\b
        | \s{0,2}[*_]{0,3}\s{0,2}[:=] | \s[-–—]\s )
      (?:\s+(?:the\s+)?(?:option|choice|letter)\b)? \s{0,2}:?
  | \b(?:choose|pick|select|go\s+with)\b (?:\s+(?:option|choice|answer)\b)?
  | \\boxed(?=\{)
)"""
_OPENED = r"""[\s*_"'`“‘(\[{$]{0,8} (?:\\(?:text|mathrm|textbf)\{)?"""
_CLOSED = r"""(?= [.,;:!?/](?!\w) | [)\]}*_"'`”’$\\] | [ \t\r]*$ )"""
_JOINED = r"""[*_)\]"'`]{0,3} (?:\s?[,/&]\s? | \s?,?\s(?:or|and)\s) [*_(\["'`]{0,3}"""
_REASON = r"""\s(?:because|since|as|which|given|due|based)\b"""
_GOES_ON = rf"""(?= {_REASON} | \s(?:and|or|but|for|with)\b | / | \s[-–—(] )"""
_CORRECT = r"""[)\]*_]{0,3}\s(?:is|was)\s(?:the\s)?(?:(?:most|only)\s)?(?:correct|right|best)\b"""
_ARTICLES = frozenset("AI")  # capitals that are words as well


@dataclass(frozen=True, kw_only=True)
class Forms:
    """Patterns whose group `named` holds the option, or several; `faint` ones in order."""

    label: re.Pattern[str]
    cues: tuple[re.Pattern[str], ...]
    faint: tuple[re.Pattern[str], ...]


@lru_cache
def forms(options: tuple[str, ...]) -> Forms:
    """Return the patterns for *options*."""
    label = _word(f"(?i:{_any(options)})")
    capital = _word(_capitals(options))
    bare = _word(_capitals(options, without=_ARTICLES))
    named = rf"(?: {label}{_CLOSED} | {bare} | {capital}{_GOES_ON} )"
    several = rf"{named} (?: {_JOINED} {named} (?!\s(?:is|are|was)\b) ){{1,9}}"
    return Forms(
        label=_compiled(label),
        cues=(
            _compiled(rf"{_CUES} {_OPENED} (?P<named> {several} | {named} )"),
            _compiled(rf"(?P<named> {capital} | (?<=[(\[]){label}(?=[)\]]) ) {_CORRECT}"),
        ),
        faint=(
            _compiled(rf"^[^\w\n]{{0,12}} (?P<named> {label} ) [^\w\n]{{0,12}}$"),
            _compiled(
                rf"""^[ \t>*_\#-]{{0,12}} [(\[]? (?P<named>
                    {label}(?=[)\]])(?! {_JOINED} {label} )
                  | {capital}(?= [.:](?=[\s*]) | ,\s | \s[-–—]\s | {_REASON} ) )"""
            ),
            _compiled(
                rf"""(?: (?<!\w)\( | \*\*\(? | (?i:\boption)\s{{1,2}}[(*"]{{0,3}} )
                     (?P<named> {label}{_CLOSED} | {bare} )"""
            ),
        ),
    )


def _any(options: tuple[str, ...]) -> str:
    return "|".join(re.escape(o) for o in sorted(options, key=len, reverse=True)) or r"(?!)"


def _capitals(options: tuple[str, ...], *, without: frozenset[str] = frozenset()) -> str:
    letters = tuple(o.upper() for o in options if len(o) == 1 and o.upper() not in without)
    words = tuple(o for o in options if len(o) > 1)
    return rf"{_any(letters)} | (?i:{_any(words)})"


def _word(pattern: str) -> str:
    return rf"(?<!\w)(?:{pattern})(?!\w|['’]\w)"


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.VERBOSE | re.MULTILINE)


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

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Find the chosen option and compare it."""
        target, chosen = self._target(task), self.chosen(outcome.answer)
        given = chosen[0] if len(chosen) == 1 else None
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
            details={LABEL_MEANT: target, LABEL_GIVEN: given, "chosen": given},
        )

    def chosen(self, answer: str) -> list[str]:
        """Return the option *answer* chooses: none where it names none, several where unclear."""
        known, start = forms(tuple(self.options)), max(0, len(answer) - _READ)
        cues = [match for cue in known.cues for match in cue.finditer(answer, start)]
        if cues:
            last = max(cues, key=lambda match: match.start("named"))
            return self._distinct(known.label.findall(last["named"]))
        for form in known.faint:
            if named := self._distinct(match["named"] for match in form.finditer(answer, start)):
                return named
        return []

    def _distinct(self, texts: Iterable[str]) -> list[str]:
        folded = {text.casefold() for text in texts}
        return [option for option in self.options if option.casefold() in folded]

    def _target(self, task: Task) -> str:
        if task.target is None:
            raise UsageError(
                f"task {task.id!r}: scorer 'choice' needs `expected`; "
                f"write one of its options: {', '.join(self.options)}",
                task=task.id,
            )
        named = self._distinct([str(task.target).strip()])
        if not named:
            raise UsageError(
                f"task {task.id!r}: `expected` is {task.target!r}, which is no option of scorer "
                f"'choice'; {did_you_mean(str(task.target), self.options)}",
                task=task.id,
            )
        return named[0]
