"""Paths in messages as they were given, though we work with whole ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bakeoff.core.errors import UsageError


@contextmanager
def as_given(path: Path) -> Iterator[None]:
    """Tell mistakes at and below *path* by the path as it stands, not by the whole one."""
    try:
        yield
    except UsageError as error:
        raise UsageError(told_as_given(str(error), path)) from error


def told_as_given(message: str, path: Path | str) -> str:
    """Return *message* with *path* as it stands in place of the whole path."""
    return message.replace(str(Path(path).resolve()), str(path))
