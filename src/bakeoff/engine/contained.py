"""Keeps to one trial whatever a part of it does."""

import asyncio

from bakeoff.core.errors import boundary


class contained(boundary):  # noqa: N801 -- reads as a word at its place: `with contained(...)`
    """A boundary that also holds where a part ends the program or cancels itself."""

    __slots__ = ("_asked_before", "_task")

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._asked_before = self._task.cancelling() if self._task else 0

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SystemExit):
            raise self._kind(f"{self._what}: it called exit({error.code})") from error
        if isinstance(error, asyncio.CancelledError):
            if self._task is None or self._task.cancelling() > self._asked_before:
                return  # somebody asked for it: the deadline, or the end of the run
            raise self._kind(f"{self._what}: it cancelled itself") from error
        super().__exit__(kind, error, trace)
