"""The history of a suite in words: what changed, when it came to light, and what else was not the same."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from bakeoff._lib.sanitize import one_line
from bakeoff.reports.wording.phrases import amount, difference, moment, score
from bakeoff.stats.change_points import ChangePoint
from bakeoff.stats.estimate import Estimate

_WIDE = 300
_CELLS = 24


class ChangeFound(Protocol):
    """A change of scores."""

    @property
    def run(self) -> str:
        """The first run after it."""

    @property
    def found_with(self) -> str:
        """The run with which it came to light."""

    @property
    def point(self) -> ChangePoint:
        """Its numbers."""

    @property
    def marks(self) -> Sequence[str]:
        """What else changed with that run."""


def change_in_words(change: ChangeFound) -> str:
    """Return from which run on scores are others, by how much, and what else changed there."""
    point = change.point
    word = "higher" if point.difference > 0 else "lower"
    low, high = difference(point.interval.low), difference(point.interval.high)
    text = (
        f"from {one_line(change.run)} on, scores are {word} by {amount(abs(point.difference))} "
        f"({score(point.before)} → {score(point.after)} on {point.tasks:,} shared tasks; surely {low} to {high})"
    )
    if change.found_with != change.run:
        text += f"; it was found with {one_line(change.found_with)}"
    if change.marks:
        text += f". With that run: {one_line('; '.join(change.marks), width=_WIDE)}"
    return text


def notes(marks: Sequence[str]) -> Iterator[str]:
    """Yield marks as lines."""
    for mark in marks:
        yield one_line(mark, width=_WIDE)


def bar(estimate: Estimate) -> str:
    """Return a score from 0 to 1 and its interval as a line of text."""
    if estimate.mean is None:
        return " " * _CELLS
    cells = [" "] * _CELLS
    if estimate.interval is not None:
        for cell in range(_cell(estimate.interval.low), _cell(estimate.interval.high) + 1):
            cells[cell] = "─"
    cells[_cell(estimate.mean)] = "●"
    return "".join(cells)


def _cell(value: float) -> int:
    return min(max(round(value * (_CELLS - 1)), 0), _CELLS - 1)


def when(created_at: str) -> str:
    """Return when a run was started."""
    return moment(created_at) if created_at else ""
