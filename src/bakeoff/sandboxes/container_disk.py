"""How much a container writes: its folder, and what it adds to its image."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from bakeoff.core.boxes import BoxSpec
from bakeoff.sandboxes.container_engine import Engine
from bakeoff.sandboxes.disk_watch import DiskWatch

_LOOK_S = 2.0
_MOST_SHARE = 20  # asking takes podman a quarter of a second
_LAYER = "layer={{.GraphDriver.Data.UpperDir}}"
_SIZE = "size={{.SizeRw}}"


class Watch(Protocol):
    """Looks until cancelled, and says when the box takes too much."""

    async def watch(self, over: Callable[[str], None]) -> None:
        """Call *over* with the reason when the box takes too much."""


async def watch_of(engine: Engine, container: str, spec: BoxSpec) -> Watch | None:
    """Return what watches the disk of a box; None where it has no limit.

    Where the engine keeps the container's files in a folder that we may read, it is watched from
    here at no cost; else the engine has to be asked.
    """
    if spec.limits.disk_mb is None:
        return None
    folders = () if spec.folder is None else (spec.folder,)
    layer = await _layer(engine, container)
    if layer is not None:
        return DiskWatch((*folders, layer), spec.limits.disk_mb)
    asked = _AskedLayer(engine, container, spec.limits.disk_mb)
    return _Both(DiskWatch(folders, spec.limits.disk_mb), asked) if folders else asked


async def _layer(engine: Engine, container: str) -> Path | None:
    seen = await engine.ask("inspect", "--type", "container", "--format", _LAYER, container)
    for line in seen.output.splitlines():
        path = line.removeprefix("layer=")
        if path != line and path.startswith("/") and os.access(path, os.R_OK | os.X_OK):
            return Path(path)
    return None


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
