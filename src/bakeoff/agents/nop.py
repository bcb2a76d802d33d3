"""Doing nothing: what a task is worth to whom does not even try."""

from dataclasses import dataclass
from typing import ClassVar

from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.task import Task


@dataclass(frozen=True, kw_only=True)
class Nop:
    """Does nothing; a task that it passes measures nothing."""

    needs_model: ClassVar[bool] = False

    async def solve(self, _task: Task, _kit: Context) -> Outcome:
        """Leave everything as it is."""
        return Outcome(answer="", stop_reason="it does nothing")
