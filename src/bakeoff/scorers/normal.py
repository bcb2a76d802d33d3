"""Texts made comparable: one form of every character, one space between words."""

from unicodedata import normalize

import regex

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
    return " ".join(text.split())
