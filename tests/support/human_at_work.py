"""Lets agent `human` work in a local box: `human_at_work.py FOLDER shell|folder|too-late`."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bakeoff.agents.human import Human
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Journal
from bakeoff.core.ports import Context
from bakeoff.core.sandbox import BoxSpec
from bakeoff.models.adapters.function import FunctionModel
from bakeoff.sandboxes.host.local import Local
from support.trial_room import Room, repair_task


def nobody(_: object) -> str:
    raise AssertionError("a person asks no model")


async def main(folder: Path, wait_for: str) -> str:
    sandbox = Local()
    box = await sandbox.open(BoxSpec(label="test", folder=folder))
    context = Context(
        model=FunctionModel(nobody), journal=Journal(), workspace=Room(box=box, folder=folder)
    )
    agent = Human(wait_for="folder" if wait_for == "folder" else "shell")
    try:
        async with asyncio.timeout(0.5 if wait_for == "too-late" else None):
            left = await agent.solve(repair_task(), context)
    except (TimeoutError, UsageError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        await box.close()
        await sandbox.close()
    return str(left.stop_reason)


if __name__ == "__main__":
    print("outcome:", asyncio.run(main(Path(sys.argv[1]), sys.argv[2])))
