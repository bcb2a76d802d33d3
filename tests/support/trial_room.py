"""One trial's parts, put together by hand: a box, the gateway, the meter, and a real model adapter."""

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bakeoff.core.candidate import ModelSpec
from bakeoff.core.outcome import Journal
from bakeoff.core.ports import Context
from bakeoff.core.sandbox import Box, BoxSpec, Mount, Sandbox
from bakeoff.core.task import Message, Task
from bakeoff.core.workspace import Workspace
from bakeoff.engine.meter import Meter
from bakeoff.gateway.server import open_gateway
from bakeoff.models.adapters.openai_compatible import build
from support.scripted_llm import Script, ScriptedLlm

BROKEN = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    "test_calc.py": (
        "import unittest\n\nfrom calc import add\n\n\n"
        "class Test(unittest.TestCase):\n"
        "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
    ),
    ".gitignore": "__pycache__/\n",
}
FIX = "printf 'def add(a, b):\\n    return a + b\\n' > calc.py"
TEST = "python3 -m unittest -q test_calc"
SOLVES = Script(steps=(FIX, f"{TEST} 2>&1 | tail -3"), final="Fixed add() in calc.py.")


@dataclass(frozen=True, kw_only=True)
class Room:
    """A box and its folder."""

    box: Box
    folder: Path | None


@dataclass(frozen=True, kw_only=True)
class TrialRoom:
    """What an agent is given, and what a test looks at afterwards."""

    context: Context
    meter: Meter
    journal: Journal
    room: Room


def broken_repo(folder: Path) -> Path:
    """Write a small repository with a failing test, in one commit."""
    folder.mkdir(parents=True)
    for name, text in BROKEN.items():
        (folder / name).write_text(text, encoding="utf-8")
    who = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*who, "commit", "-qm", "start")):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    return folder


def repair_task(instruction: str = "Fix the failing test.") -> Task:
    return Task(
        id="repair",
        messages=(Message(role="user", content=instruction),),
        workspace=Workspace(root="/app"),
    )


@asynccontextmanager
async def trial_room(
    sandbox: Sandbox,
    folder: Path,
    llm: ScriptedLlm,
    *,
    mounts: tuple[Mount, ...] = (),
    image: str | None = None,
) -> AsyncIterator[TrialRoom]:
    """Open a box on *folder* without network, with a door to *llm* behind the gateway."""
    model = build(
        ModelSpec(
            provider="openai-compatible",
            name="scripted",
            base_url=llm.url,
            api_key=llm.key,
            settings={"max_retries": 0},
        )
    )
    gateway = await open_gateway(folder.parent)
    meter, journal = Meter(model), Journal()
    door = gateway.admit(meter, journal, rollout=0)
    spec = BoxSpec(label="test", folder=folder, image=image, mounts=mounts, gateway=gateway.address)
    try:
        box = await sandbox.open(spec)
        try:
            room = Room(box=box, folder=folder)
            context = Context(model=meter, journal=journal, workspace=room, model_access=door)
            yield TrialRoom(context=context, meter=meter, journal=journal, room=room)
        finally:
            await box.close()
    finally:
        door.close()
        await gateway.close()
        await model.close()
        await sandbox.close()
