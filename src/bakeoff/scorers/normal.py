"""Texts made comparable: one form of every character, one space between words."""

import re
from collections.abc import Iterator
from unicodedata import normalize

import regex

_PART = 1 << 20
_SPACE = re.compile(r"\s")
_LONGEST = 200_000  # a compatibility form may be 18 characters long: hostile text would explode
_MARKS = regex.compile(r"(\P{ccc=0}{32})\P{ccc=0}+")  # sorting long runs of accents is quadratic


def normal(text: str, *, ignore_case: bool = False) -> str:
    """Return *text* in NFKC with runs of whitespace as one space, stripped.

    A text of more than 200 000 characters keeps its characters; only whitespace and case change.
    """
    if not text.isascii() and len(text) <= _LONGEST:
        text = normalize("NFKC", _MARKS.sub(r"\1", text))
    if ignore_case:
        text = text.casefold()
    return single_spaced(text)


def single_spaced(text: str) -> str:
    """Return *text* stripped, with runs of whitespace as one space; a long one part by part."""
    return " ".join(filter(None, (" ".join(part.split()) for part in _parts(text))))


def word_count(text: str) -> int:
    """Return how many words *text* has."""
    return sum(len(part.split()) for part in _parts(text))


def _parts(text: str) -> Iterator[str]:
    """Yield *text* in parts that end between words: a list of all its words may be huge."""
    start = 0
    while len(text) - start > _PART:
        gap = _SPACE.search(text, start + _PART)
        if gap is None:
            break
        yield text[start : gap.start()]
        start = gap.start()
    yield text[start:] if start else text
