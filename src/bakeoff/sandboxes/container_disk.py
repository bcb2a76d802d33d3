"""How much a container writes: its folder, and what it adds to its image."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

from bakeoff.core.boxes import BoxSpec
from bakeoff.sandboxes.container_engine import Engine
from bakeoff.sandboxes.disk_watch import DiskWatch, Watch

_LOOK_S = 2.0
_MOST_SHARE = 20  # asking takes podman a quarter of a second
_PLACE = "layer={{.GraphDriver.Data.UpperDir}}\npid={{.State.Pid}}"
_SIZE = "size={{.SizeRw}}"


async def watch_of(engine: Engine, container: str, spec: BoxSpec) -> Watch | None:
    """Return what watches the disk of a box; None where it has no limit.

    Where the engine keeps the container's files in a folder that we may read, it is watched from
    here at no cost; else the engine has to be asked.
    """
    if spec.limits.disk_mb is None:
        return None
    folders = () if spec.folder is None else (spec.folder,)
    seen = await engine.ask("inspect", "--type", "container", "--format", _PLACE, container)
    known = dict(line.split("=", 1) for line in seen.output.splitlines() if "=" in line)
    layer = known.get("layer", "")
    if layer.startswith("/") and os.access(layer, os.R_OK | os.X_OK):
        doors = _doors(known.get("pid", ""))
        return DiskWatch(
            (*folders, Path(layer)), spec.limits.disk_mb, processes=lambda: _processes(doors)
        )
    asked = _AskedLayer(engine, container, spec.limits.disk_mb)
    return _Both(DiskWatch(folders, spec.limits.disk_mb), asked) if folders else asked


def _doors(pid: str) -> list[Path]:
    """Return the files that list the processes of a container, by its first one."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return []
    doors = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in {"", "pids"}:
            doors.append(Path("/sys/fs/cgroup", controllers, path.lstrip("/"), "cgroup.procs"))
    return doors


def _processes(doors: list[Path]) -> set[int]:
    found: set[int] = set()
    for door in doors:
        try:
            found.update(int(pid) for pid in door.read_text().split())
        except OSError:
            continue  # not mounted there, or the container restarts just now
    return found


class _AskedLayer:
    """What a container adds to its image, as its engine says."""

    def __init__(self, engine: Engine, container: str, most_mb: int) -> None:
        self._engine = engine
        self._container = container
        self._most_mb = most_mb

    async def watch(self, over: Callable[[str], None]) -> None:
        pause_s = _LOOK_S
        while True:
            await asyncio.sleep(pause_s)
            started = time.monotonic()
            if await self._taken() > self._most_mb << 20:
                over(f"its disk was full: the box may take {self._most_mb} MB")
            pause_s = max(_LOOK_S, _MOST_SHARE * (time.monotonic() - started))

    async def _taken(self) -> int:
        seen = await self._engine.ask(
            "inspect", "--type", "container", "--size", "--format", _SIZE, self._container
        )
        for line in seen.output.splitlines():
            size = line.removeprefix("size=")
            if size != line and size.isdigit():
                return int(size)
        return 0


class _Both:
    """Two watches at once."""

    def __init__(self, one: Watch, other: Watch) -> None:
        self._one = one
        self._other = other

    async def watch(self, over: Callable[[str], None]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._one.watch(over))
            group.create_task(self._other.watch(over))
