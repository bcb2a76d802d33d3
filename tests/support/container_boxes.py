"""Boxes in real containers, for the length of a block."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bakeoff.core.sandbox import Box, BoxSpec, Command, CommandResult
from bakeoff.core.workspace import BoxLimits
from bakeoff.sandboxes.containers.sandbox import Container
from support.container_engines import BUSYBOX, Engine


def sandbox(engine: Engine, image: str = BUSYBOX) -> Container:
    """Return the sandbox on *engine* whose boxes start from *image*."""
    return Container(name=engine.name, environment=engine.environment, default_image=image)


def spec(folder: Path | None, **more: Any) -> BoxSpec:
    """Return a small box on *folder*."""
    limits = BoxLimits(memory_mb=256, processes=64, disk_mb=256)
    return replace(BoxSpec(label="a test", folder=folder, limits=limits), **more)


@asynccontextmanager
async def opened(containers: Container, of: BoxSpec) -> AsyncIterator[Box]:
    """Open a box, close it again, and wait until its container is removed."""
    box = await containers.open(of)
    try:
        yield box
    finally:
        await box.close()
        await containers.wait_removed()


async def shell(box: Box, script: str, **more: Any) -> CommandResult:
    """Run a shell script in the box; it ends within a minute."""
    return await box.run(replace(Command(argv=("sh", "-c", script), time_s=60), **more))
