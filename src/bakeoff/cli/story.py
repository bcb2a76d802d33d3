"""What is known of a run while it goes, told in lines and drawn as a picture; views show a story."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from rich.console import ConsoleDimensions, RenderableType

from bakeoff._lib.untrusted import for_terminal
from bakeoff.core.events import Event
from bakeoff.core.record import Fault


class Weight(Enum):
    """Who must read a line: where there is a picture, news is in it already."""

    NEWS = "news"
    HEADING = "heading"
    NOTICE = "notice"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Line:
    """One line, harmless to a terminal; `details` are shown with --debug only."""

    text: str
    weight: Weight = Weight.NEWS
    details: str | None = None


def fault_details(fault: Fault) -> str | None:
    """Return what --debug shows of *fault*: the traceback of somebody's own code."""
    return None if fault.traceback is None else for_terminal(fault.traceback)


class Story(Protocol):
    """Kept by what happens in a run."""

    def take(self, event: Event) -> Line | None:
        """Count *event*; return a line where there is one to tell."""

    def so_far(self) -> str:
        """Return how far it is, in one line."""

    def draw(self, room: ConsoleDimensions) -> RenderableType:
        """Return a picture of how far it is, no larger than *room*."""
