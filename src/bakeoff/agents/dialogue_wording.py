"""How texts are compared in the audit of a dialogue: by phrases, by figures, by words with a meaning."""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

_WORD = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|[;:\n]+")
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
            "eleven", "twelve")  # fmt: skip
_DIGITS = {word: str(number) for number, word in enumerate(_NUMBERS)}
_IN_ANY_TEXT = 10  # up to here a number alone says nothing; it does together with what it counts
_PHRASE = 6  # words: what is said in other words does not share so many in a row by chance
_SHORT_PHRASE = 4  # words of a whole sentence
_LONG = 4  # letters of a word with a meaning
_STEM = 5  # letters in which `predict` and `prediction` are the same
_EMPTY_WORDS = """
about after also because been before both could does each even every first from have here into just like
more most much must need only other over should some such than that their them then there these they this
those till under until very want were what when where which while will with would your
"""
_EMPTY = frozenset(_EMPTY_WORDS.split())
_COURTESY = re.compile(
    r"anything else|something else|any (?:other|more|further|questions)|(?:help|assist)(?: you)?\b"
    r"|make sense|sound (?:good|right)|happy with|let me know",
    re.IGNORECASE,
)
_YES_OR_NO = re.compile(
    r"\W*(?:yes|yeah|yep|no|nope|sure|ok|okay|please do|go ahead)\b", re.IGNORECASE
)


def phrases(texts: Iterable[str]) -> set[str]:
    """Return what is peculiar to *texts*: each row of six words, and each shorter sentence."""
    return {phrase for text in texts for phrase in _phrases_in(text)}


def _phrases_in(text: str) -> Iterator[str]:
    for sentence in _SENTENCE.split(text):
        words = _words(sentence)
        size = min(_PHRASE, len(words))
        if size >= _SHORT_PHRASE:
            for start in range(len(words) - size + 1):
                yield f" {' '.join(words[start : start + size])} "


def spoken(*texts: str) -> str:
    """Return *texts* such that a phrase can be looked for in them."""
    return " | ".join(f" {' '.join(_words(text))} " for text in texts)


def figures(*texts: str) -> set[str]:
    """Return the numbers in *texts*; a small one with the word for what it counts."""
    found = set()
    for text in texts:
        for word, after in pairwise([*_words(text), ""]):
            if not word[0].isdigit():
                continue
            if not word.isdecimal() or int(word) > _IN_ANY_TEXT:
                found.add(word)
            elif len(after) >= _LONG and after not in _EMPTY:
                found.add(f"{word} {after[:_STEM]}")
    return found


def share(text: str, said: str) -> float:
    """Return how much of the words with a meaning in *text* is in *said*, by their stems."""
    wanted = _stems(text)
    return len(wanted & _stems(said)) / len(wanted) if wanted else 1.0


def is_asking(reply: str, answer: str) -> bool:
    """Whether *reply* ends with a question that *answer* leaves open; a courtesy is none."""
    last = _SENTENCE.split(reply.strip().rstrip("*_)\"'` "))[-1]
    if not last.endswith("?") or _COURTESY.search(last) or _YES_OR_NO.match(answer):
        return False
    return not _stems(last) & _stems(answer)


def _words(text: str) -> list[str]:
    return [_plain(word.lower()) for word in _WORD.findall(text)]


def _plain(word: str) -> str:
    """Return a number as it is however it was written; other words as they are."""
    if not word[0].isdigit():
        return _DIGITS.get(word, word)
    whole, point, rest = re.sub(r",(?=\d{3}\b)", "", word).replace(",", ".").partition(".")
    rest = rest.rstrip("0")
    return f"{whole.lstrip('0') or '0'}{point if rest else ''}{rest}"


def _stems(text: str) -> set[str]:
    return {
        word[:_STEM]
        for word in _words(text)
        if word[0].isdigit() or (len(word) >= _LONG and word not in _EMPTY)
    }
