"""The agents `oracle` and `nop`, which show whether a task can be solved and its grade be trusted.

The oracle works in the agent's workspace like any other agent, with commands in its box; only the
reference is read on the host.
"""

import asyncio
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bakeoff._lib.digest import LEFT_OUT
from bakeoff.agents.task_fit import workspace_of
from bakeoff.core.errors import AgentError, SandboxError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.sandbox import Command
from bakeoff.core.task import Task
from bakeoff.core.workspace import Reference, Workspace

_FILES = "tar -xf -"
_PATCH = """\
if command -v git >/dev/null; then
  git -c safe.directory='*' apply --whitespace=nowarn -
else
  patch -p1
fi"""
_SCRIPT = """\
at=${2:-$(mktemp -d)}
mkdir -p "$at" || exit
trap 'rm -rf "$at"' EXIT
tar -xf - -C "$at" || exit
if command -v bash >/dev/null; then bash "$at/$1" </dev/null; else sh "$at/$1" </dev/null; fi"""
_HARBOR_SOLUTION_FOLDER = (
    "/solution"  # where Harbor's solution scripts expect the files beside them
)


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """Applies the task's reference solution; a sound task gives it a score of 1."""

    needs_model: ClassVar[bool] = False

    def check(self, task: Task) -> None:
        """Refuse a task without files to work on."""
        workspace_of(task, "oracle")

    async def solve(self, task: Task, context: Context) -> Outcome:
        """Apply the reference to the workspace, or run it there."""
        workspace = workspace_of(task, "oracle")
        if context.workspace is None:
            raise SandboxError("agent 'oracle' was given no box to work in")
        reference = workspace.reference
        if reference is None:
            raise AgentError(f"task {task.id!r} has no reference solution: write its solution/")
        command = await asyncio.to_thread(_command, reference, workspace)
        ran = await context.workspace.box.run(command)
        if ran.code != 0:
            how = ran.stopped or f"exit code {ran.code}"
            what = f"the reference {reference.path} cannot be applied"
            raise AgentError(f"{what} ({how}): {ran.output[-2000:]}")
        return Outcome(answer="the reference solution is applied", log=ran.output or None)


def _command(reference: Reference, workspace: Workspace) -> Command:
    """Return the command that applies *reference*, whose paths are relative to the root or `at`."""
    path = Path(reference.path)
    if reference.kind == "script":
        beside = _HARBOR_SOLUTION_FOLDER if workspace.whole_box else ""
        return Command(
            argv=("sh", "-c", _SCRIPT, "sh", path.name, beside),
            cwd=workspace.start,
            stdin=_archive(path.parent),
        )
    script, stdin = (
        (_PATCH, path.read_bytes()) if reference.kind == "patch" else (_FILES, _archive(path))
    )
    cwd = f"{workspace.root}/{reference.at}".rstrip("/") or "/"
    return Command(argv=("sh", "-c", script), cwd=cwd, stdin=stdin)


def _archive(folder: Path) -> bytes:
    """Return the files of *folder* as a tar file without owners."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if Path(entry.name).name in LEFT_OUT:
            return None
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, arcname=path.name, filter=plain)
    return packed.getvalue()


@dataclass(frozen=True, kw_only=True)
class Nop:
    """Does nothing; a task that it passes measures nothing."""

    needs_model: ClassVar[bool] = False

    async def solve(self, _task: Task, _context: Context) -> Outcome:
        """Leave everything as it is."""
        return Outcome(answer="", stop_reason="it does nothing")
