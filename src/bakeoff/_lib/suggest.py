"""Suggestions for misspelled names in error messages."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


def near(word: str, known: Iterable[str], *, least: float = 0.6) -> str | None:
    """Return the word in *known* that *word* is most probably meant for, if any is near."""
    return next(iter(get_close_matches(word, sorted(known), n=1, cutoff=least)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint such as "did you mean 'rollouts'?", or the list of what there is."""
    names = sorted(known)
    if meant := near(word, names):
        return f"did you mean {meant!r}?"
    return f"there are: {', '.join(names)}" if names else "there are none"


def near_file(path: Path) -> Path | None:
    """Return what lies beside *path* under nearly the same name."""
    folder = path.parent
    names = (file.name for file in folder.iterdir()) if folder.is_dir() else ()
    meant = near(path.name, (name for name in names if not name.startswith(".")), least=0.75)
    return folder / meant if meant else None
