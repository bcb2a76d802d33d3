"""What an attempt saves on its way, so that one that is cut off can go on from there."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from bakeoff.core.plan import Trial
from bakeoff.core.values import Json

Entry = Mapping[str, Json]


class Checkpoint(Protocol):
    """The saved steps of one trial, in order; there may be none yet."""

    def recorded(self) -> Sequence[Entry]:
        """Return what was saved before, by this attempt or an earlier one that was cut off."""

    async def add(self, entry: Entry, *, at: int) -> None:
        """Save one more step as number *at*, in the place of it and of all after it.

        It is on the disk when this returns.
        """


class Checkpoints(Protocol):
    """Keeps the checkpoints of a run."""

    def of(self, trial: Trial) -> Checkpoint:
        """Return that of *trial*."""
