"""Durations as text, suggestions for misspelt names, and error messages without their variable parts."""

import math
import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

_UNITS_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)


def parse_duration(text: str) -> float:
    """Return the seconds that *text* means, such as 90, 90s, 15m or 1.5h; ValueError if none."""
    written = _WRITTEN.fullmatch(text.strip().lower())
    if written is None or written[2] not in _UNITS_S:
        raise ValueError(f"{text!r} is not a duration: write it as 90s, 15m or 2h")
    return float(written[1]) * _UNITS_S[written[2]]


def format_duration(seconds: float) -> str:
    """Return a duration in its two largest units: `0.4 s`, `42 s`, `2 min 5 s`, `24 h`."""
    if seconds < 1:
        return f"{max(seconds, 0.0):.1f} s"
    if not math.isfinite(seconds):
        return "ever"
    whole = round(seconds)
    for unit_s, unit, rest_s, rest in ((3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit_s:
            left = whole % unit_s // rest_s
            return f"{whole // unit_s} {unit}" + (f" {left} {rest}" if left else "")
    return f"{whole} s"


_DETAILS = re.compile(r"\b(?=[\w-]*\d)[\w-]{6,}\b|\d+\.\d+|\d{5,}")


def message_kind(message: str) -> str:
    """Return *message* without what differs from one occurrence to the next: ids, measured times."""
    return _DETAILS.sub("*", message)


def near(word: str, known: Iterable[str], *, least: float = 0.6) -> str | None:
    """Return the word in *known* that *word* is most probably meant for, if any is near."""
    folded = {name.casefold(): name for name in sorted(known, reverse=True)}
    meant = get_close_matches(word.casefold(), list(folded), n=1, cutoff=least)
    return folded[meant[0]] if meant else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint such as "did you mean 'rollouts'?", or the list of what there is."""
    names = sorted(known)
    if meant := near(word, names):
        return f"did you mean {meant!r}?"
    return f"there are: {', '.join(names)}" if names else "there are none"


def near_file(path: Path) -> Path | None:
    """Return the file next to *path* whose name is nearly the same."""
    folder = path.parent
    names = (file.name for file in folder.iterdir()) if folder.is_dir() else ()
    meant = near(path.name, (name for name in names if not name.startswith(".")), least=0.75)
    return folder / meant if meant else None
