"""How much a box writes, watched from outside: no quota of the file system is needed.

Measuring means looking at every file, which is dear where there are many. So the free space of the
file system is watched, which costs nothing, and the files are measured when it shrinks, and
otherwise now and then.
"""

import asyncio
import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from bakeoff._lib.phrasing import noun

_LOOK_S = 0.2
_SELDOM_S = 10.0
_MOST_SHARE = 50  # a measurement that takes a second is not repeated for fifty


Processes = Callable[[], Iterable[int]]


@noun
class DiskSize:
    """What folders hold: the bytes on the disk, and whether all of it could be seen."""

    taken: int
    too_deep: bool = False
    hidden: bool = False


class Watch(Protocol):
    """Looks at what a box takes while a command runs in it."""

    async def watch(self, over: Callable[[str], None]) -> None:
        """Look until cancelled; call *over* with the reason when the box takes too much."""


class DiskWatch:
    """Watches some folders of one box while its commands run."""

    def __init__(
        self, folders: tuple[Path, ...], most_mb: int, *, processes: Processes | None = None
    ) -> None:
        self._folders = folders
        self._processes = processes
        self._most = most_mb << 20
        self._first_free = self._free()
        self._last_free = self._first_free
        self._slack = self._most
        self._next = time.monotonic() + _SELDOM_S

    async def watch(self, over: Callable[[str], None]) -> None:
        """Look until cancelled; call *over* with the reason when the box takes too much."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                reason = await self._look()
            except OSError as error:
                reason = f"its disk could not be watched: {error}"
            if reason is not None:
                over(reason)

    async def _look(self) -> str | None:
        free = self._free()
        shrunk = self._last_free - free
        if shrunk < self._slack / 4 and time.monotonic() < self._next:
            return None
        started = time.monotonic()
        size = await asyncio.to_thread(self._measure)
        ended = time.monotonic()
        self._last_free = free
        self._slack = max(0, self._most - size.taken)
        self._next = ended + max(_SELDOM_S, _MOST_SHARE * (ended - started))
        return self._too_much(size, free)

    def _measure(self) -> DiskSize:
        size = measure(self._folders)
        if self._processes is None:
            return size
        return replace(size, taken=size.taken + unlinked(self._processes(), self._folders))

    def _too_much(self, size: DiskSize, free: int) -> str | None:
        if size.taken > self._most:
            return f"its disk was full: the box may take {self._most >> 20} MB"
        if size.too_deep:
            return "its folders are nested too deep for its disk to be measured"
        if size.hidden and self._first_free - free > self._most:
            return "it locked folders, and the disk filled up meanwhile"
        return None

    def _free(self) -> int:
        return min(os.statvfs(f).f_bfree * os.statvfs(f).f_frsize for f in self._folders)


def measure(folders: tuple[Path, ...]) -> DiskSize:
    """Return what *folders* take on the disk; a file with several names counts once."""
    taken, too_deep, hidden = 0, False, False
    linked: set[tuple[int, int]] = set()
    waiting = [str(folder) for folder in folders]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    try:
                        found = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # the command is at work meanwhile
                    if stat.S_ISDIR(found.st_mode):
                        waiting.append(entry.path)
                    elif found.st_nlink > 1:
                        if (found.st_dev, found.st_ino) in linked:
                            continue
                        linked.add((found.st_dev, found.st_ino))
                    taken += found.st_blocks * 512
        except OSError as error:
            # a folder that has just gone takes nothing
            too_deep = too_deep or error.errno == errno.ENAMETOOLONG
            hidden = hidden or error.errno == errno.EACCES
    return DiskSize(taken=taken, too_deep=too_deep, hidden=hidden)


def unlinked(processes: Iterable[int], folders: tuple[Path, ...]) -> int:
    """Return what files take that *processes* hold open and that have no name any more."""
    devices = {folder.stat().st_dev for folder in folders}
    sizes: dict[tuple[int, int], int] = {}
    for pid in processes:
        for found in _held_open(pid):
            regular = stat.S_ISREG(found.st_mode) and found.st_dev in devices
            if regular and found.st_nlink == 0:
                sizes[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(sizes.values())


def _held_open(pid: int) -> Iterator[os.stat_result]:
    """Yield what a process holds open; it may end, or close some of it, meanwhile."""
    with suppress(OSError):
        for held in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                yield held.stat()
