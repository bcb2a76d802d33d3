"""Workspaces for tests: a task made of a few texts, a bench on a real sandbox, a change in it."""

import shutil
from collections.abc import AsyncIterator, Mapping
from compileall import compile_dir
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

from bakeoff._lib.digest import tree_digest
from bakeoff.core.outcome import Completion, Outcome, Request
from bakeoff.core.ports import Context
from bakeoff.core.sandbox import Command, CommandResult, OpenWorkspace, Sandbox
from bakeoff.core.task import Message, Task
from bakeoff.core.workspace import Change, Tree, Workspace
from bakeoff.sandboxes.bubblewrap.sandbox import Bubblewrap
from bakeoff.sandboxes.host.local import Local
from bakeoff.workspaces.host import HostWorkspaces
from support.parts import require


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write *files* into *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def tree(folder: Path, at: str = "") -> Tree:
    return Tree(path=str(folder), digest=tree_digest(folder), at=at)


def workspace_task(*files: Tree, prompt: str = "Do it.", **rest: Any) -> Task:
    space = Workspace(files=files, **rest)
    return Task(id="t1", messages=(Message(role="user", content=prompt),), workspace=space)


def pytest_for_boxes(folder: Path) -> Tree:
    """Pytest as a folder of its own: the Python in a box need not have it.

    Compiled, for a Python of our version: each box starts it anew and can keep nothing.
    """
    folder.mkdir()
    for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py"):
        spec = find_spec(name)
        require(name, spec, "uv sync")
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin)
        if source.name == "__init__.py":
            shutil.copytree(source.parent, folder / name, ignore=_not_for_pytest)
        else:
            shutil.copy(source, folder)
    anywhere = PycInvalidationMode.UNCHECKED_HASH  # a copy has another time
    assert compile_dir(folder, quiet=1, invalidation_mode=anywhere)
    return tree(folder, at="/opt/pytest")


def _not_for_pytest(folder: str, names: list[str]) -> set[str]:
    """Of the hundreds of languages and styles that can be coloured, pytest asks for these."""
    asked_for = {"__init__.py", "_mapping.py", "diff.py", "python.py", "default.py"}
    if Path(folder).name in {"lexers", "styles"}:
        return set(names) - asked_for
    return {"__pycache__"} & set(names)


def isolating() -> Sandbox:
    """Return a sandbox that isolates."""
    why = Bubblewrap.available()
    require("bubblewrap", why is None, why or "")
    return Bubblewrap()


@asynccontextmanager
async def open_bench(cache: Path, sandbox: Sandbox | None = None) -> AsyncIterator[HostWorkspaces]:
    boxes = sandbox or Local()
    bench = HostWorkspaces(sandbox=boxes, cache=cache, run="test")
    try:
        yield bench
    finally:
        await bench.close()
        await boxes.close()


@asynccontextmanager
async def open_room(bench: HostWorkspaces, task: Task) -> AsyncIterator[OpenWorkspace]:
    async with bench.open(task, label="agent", gateway=None, mounts=(), environment={}) as room:
        yield room


async def sh(room: OpenWorkspace, script: str, **rest: Any) -> CommandResult:
    """Run *script* in the room; it must succeed."""
    ran = await room.box.run(Command(argv=("sh", "-ec", script), time_s=60.0, **rest))
    assert ran.code == 0, ran
    return ran


async def changed_by(bench: HostWorkspaces, task: Task, script: str) -> Change:
    """Return the change that *script* makes in a room."""
    async with open_room(bench, task) as room:
        await sh(room, script)
        return await bench.change(task, room)


class Nobody:
    """A model that nobody should ask."""

    async def complete(self, request: Request) -> Completion:
        raise AssertionError("nobody was to be asked")


def context(bench: HostWorkspaces, **rest: Any) -> Context:
    return Context(model=Nobody(), workspaces=bench, label="t1", **rest)


def outcome(change: Change | None) -> Outcome:
    return Outcome(answer="", change=change)
