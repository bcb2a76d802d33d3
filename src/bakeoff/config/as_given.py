"""Paths in messages as they were given, though we work with whole ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bakeoff.core.errors import UsageError
from bakeoff.core.task import ScorerSpec, Task


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


def placed_as_given(task: Task, path: Path | str) -> Task:
    """Return *task* with the places of its scorers as they are told: by *path* as it stands."""

    def placed(spec: ScorerSpec) -> ScorerSpec:
        if spec.origin is None:
            return spec
        file = told_as_given(spec.origin.file, path)
        return replace(spec, origin=replace(spec.origin, file=file))

    return replace(task, scorers=tuple(map(placed, task.scorers)))
