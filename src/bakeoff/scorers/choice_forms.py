"""The ways an answer names an option, as patterns, from the clearest to the faintest.

The hard part is the letter A: "a" and "A" are also words. So a letter counts when something sets it
apart: brackets, punctuation, the end of the line, or (for every other capital) its being a capital.
All repetition is bounded, so a search takes time in proportion to the answer.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

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
