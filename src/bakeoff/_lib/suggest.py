"""The nearest right word, for error messages."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint such as "did you mean 'rollouts'?", or the list of what there is."""
    names = sorted(known)
    near = get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"there are: {', '.join(names)}" if names else "there are none"
