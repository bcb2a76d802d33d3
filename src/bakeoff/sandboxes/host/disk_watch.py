"""Watches how much disk a box uses, without file system quotas.

Measuring every file is expensive. So the free space of the file system is checked, which is cheap,
and the files are measured when it shrinks, and otherwise from time to time.
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

from bakeoff._lib.value_object import value_object

_CHECK_S = 0.2
_FULL_CHECK_S = 10.0
_PAUSE_FACTOR = 50  # the pause after a measurement, in multiples of its duration


Processes = Callable[[], Iterable[int]]


@value_object
class DiskSize:
    """The disk usage of folders, and whether all of it could be measured."""

    used_bytes: int
    too_deep: bool = False
    hidden: bool = False


class Watch(Protocol):
    """Watches the disk usage of a box while a command runs in it."""

    async def watch(self, on_exceeded: Callable[[str], None]) -> None:
        """Watch until cancelled; call *on_exceeded* with the reason when the limit is exceeded."""


class DiskWatch:
    """Watches the folders of one box while its commands run."""

    def __init__(
        self, folders: tuple[Path, ...], max_mb: int, *, processes: Processes | None = None
    ) -> None:
        self._folders = folders
        self._processes = processes
        self._max_bytes = max_mb << 20
        self._first_free = self._free()
        self._last_free = self._first_free
        self._headroom = self._max_bytes
        self._next = time.monotonic() + _FULL_CHECK_S

    async def watch(self, on_exceeded: Callable[[str], None]) -> None:
        """Watch until cancelled; call *on_exceeded* with the reason when the limit is exceeded."""
        while True:
            await asyncio.sleep(_CHECK_S)
            try:
                reason = await self._check()
            except OSError as error:
                reason = f"its disk could not be watched: {error}"
            if reason is not None:
                on_exceeded(reason)

    async def _check(self) -> str | None:
        free = self._free()
        shrunk = self._last_free - free
        if shrunk < self._headroom / 4 and time.monotonic() < self._next:
            return None
        started = time.monotonic()
        size = await asyncio.to_thread(self._measure)
        ended = time.monotonic()
        self._last_free = free
        self._headroom = max(0, self._max_bytes - size.used_bytes)
        self._next = ended + max(_FULL_CHECK_S, _PAUSE_FACTOR * (ended - started))
        return self._exceeded_reason(size, free)

    def _measure(self) -> DiskSize:
        size = measure(self._folders)
        if self._processes is None:
            return size
        return replace(
            size, used_bytes=size.used_bytes + unlinked_bytes(self._processes(), self._folders)
        )

    def _exceeded_reason(self, size: DiskSize, free: int) -> str | None:
        if size.used_bytes > self._max_bytes:
            return f"its disk was full: the box may take {self._max_bytes >> 20} MB"
        if size.too_deep:
            return "its folders are nested too deep for its disk to be measured"
        if size.hidden and self._first_free - free > self._max_bytes:
            return "it locked folders, and the disk filled up meanwhile"
        return None

    def _free(self) -> int:
        return min(os.statvfs(f).f_bfree * os.statvfs(f).f_frsize for f in self._folders)


def measure(folders: tuple[Path, ...]) -> DiskSize:
    """Return the disk usage of *folders*; hard links count once."""
    used_bytes, too_deep, hidden = 0, False, False
    linked: set[tuple[int, int]] = set()
    folders_left = [str(folder) for folder in folders]
    while folders_left:
        try:
            with os.scandir(folders_left.pop()) as entries:
                for entry in entries:
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # the command is still running
                    if stat.S_ISDIR(status.st_mode):
                        folders_left.append(entry.path)
                    elif status.st_nlink > 1:
                        if (status.st_dev, status.st_ino) in linked:
                            continue
                        linked.add((status.st_dev, status.st_ino))
                    used_bytes += status.st_blocks * 512
        except OSError as error:
            # a folder that was just removed takes nothing
            too_deep = too_deep or error.errno == errno.ENAMETOOLONG
            hidden = hidden or error.errno == errno.EACCES
    return DiskSize(used_bytes=used_bytes, too_deep=too_deep, hidden=hidden)


def unlinked_bytes(processes: Iterable[int], folders: tuple[Path, ...]) -> int:
    """Return the size of deleted files that *processes* still hold open."""
    devices = {folder.stat().st_dev for folder in folders}
    sizes: dict[tuple[int, int], int] = {}
    for pid in processes:
        for status in _open_files(pid):
            regular = stat.S_ISREG(status.st_mode) and status.st_dev in devices
            if regular and status.st_nlink == 0:
                sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def _open_files(pid: int) -> Iterator[os.stat_result]:
    """Yield the status of each open file of a process, which may end or close files meanwhile."""
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                yield link.stat()
