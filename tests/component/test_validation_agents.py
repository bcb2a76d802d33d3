"""The agents that try out a task: the reference, nobody, and the cheater, in real boxes."""

import asyncio
import subprocess
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from bakeoff.agents.baselines import Nop, Oracle
from bakeoff.agents.cheating import GROUPS, TRICKS
from bakeoff.agents.cheating.agent import Cheat
from bakeoff.agents.cheating.trick import HEAD, REFUSED
from bakeoff.app.workspaces import build
from bakeoff.core.errors import AgentError, ChangeTooLargeError, UsageError
from bakeoff.core.outcome import Completion, Outcome, Request
from bakeoff.core.ports import Agent, Context
from bakeoff.core.task import Task
from bakeoff.core.workspace import Change, Reference, SandboxSpec
from bakeoff.formats.detect import read_task_folder
from bakeoff.sandboxes.bubblewrap.sandbox import Bubblewrap
from bakeoff.workspaces.host import HostWorkspaces
from support.coding_tasks import RIGHT, WRONG, write_fix_add
from support.parts import require

# boxes come and go all the time
pytestmark = pytest.mark.usefixtures("files_in_memory")

SANDBOXES = ["bubblewrap", "local"]


class _Nobody:
    async def complete(self, request: Request) -> Completion:
        raise AssertionError("these agents ask no model")


def _sandbox(name: str) -> SandboxSpec:
    if name == "bubblewrap":
        why = Bubblewrap.available()
        require("bubblewrap", why is None, why or "apt install bubblewrap")
    return SandboxSpec(name=name)


def left_by(
    agents: Sequence[Agent], task: Task, sandbox: str, tmp_path: Path
) -> list[tuple[Outcome, Change]]:
    """Let each of *agents* work on *task* in a room of its own; return what they left."""
    spec = _sandbox(sandbox)

    async def work() -> list[tuple[Outcome, Change]]:
        async with AsyncExitStack() as stack:
            opened = build(spec)
            stack.push_async_callback(opened.close)
            bench = HostWorkspaces(sandbox=opened, cache=tmp_path / "cache", run="test")
            stack.push_async_callback(bench.close)
            left = []
            for agent in agents:
                opening = bench.open(task, label="t", environment={}, gateway=None, mounts=())
                async with opening as room:
                    outcome = await agent.solve(task, Context(model=_Nobody(), workspace=room))
                    left.append((outcome, await bench.change(task, room)))
            return left

    return asyncio.run(work())


def change_of(agent: Agent, task: Task, sandbox: str, tmp_path: Path) -> Change:
    ((_, change),) = left_by([agent], task, sandbox, tmp_path)
    return change


@pytest.mark.parametrize("sandbox", SANDBOXES)
@pytest.mark.parametrize("kind", ["files", "patch", "script"])
def test_the_oracle_applies_every_kind_of_reference(
    kind: str, sandbox: str, tmp_path: Path
) -> None:
    folder = write_fix_add(tmp_path)
    if kind == "script":
        (folder / "solution" / "calc.py").rename(folder / "solution" / "better.py")
        (folder / "solution" / "solve.sh").write_text('cp "$(dirname "$0")/better.py" calc.py\n')
    elif kind == "patch":
        (folder / "solution" / "calc.py").unlink()
        (folder / "solution").rmdir()
        lines = [f"-{line}" for line in WRONG.splitlines()] + [
            f"+{line}" for line in RIGHT.splitlines()
        ]
        patch = "\n".join(["--- a/calc.py", "+++ b/calc.py", "@@ -1,2 +1,2 @@", *lines, ""])
        (folder / "solution.patch").write_text(patch)
    task = read_task_folder(folder)
    assert task.workspace is not None
    assert task.workspace.reference is not None
    assert task.workspace.reference.kind == kind
    change = change_of(Oracle(), task, sandbox, tmp_path)
    assert (change.files, change.added, change.removed) == (1, 1, 1)
    assert "+    return a + b" in change.patch


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_a_reference_is_relative_to_the_root_wherever_the_agent_starts(
    sandbox: str, tmp_path: Path
) -> None:
    folder = write_fix_add(tmp_path, settings='[box]\nworkdir = "deep/er"\n')
    change = change_of(Oracle(), read_task_folder(folder), sandbox, tmp_path)
    assert "b/calc.py" in change.patch
    assert "deep" not in change.patch


def test_the_paths_in_a_patch_may_begin_in_a_folder_of_the_workspace(tmp_path: Path) -> None:
    folder = write_fix_add(tmp_path)
    (folder / "files" / "lib").mkdir()
    (folder / "files" / "calc.py").rename(folder / "files" / "lib" / "calc.py")
    patch = tmp_path / "fix.patch"
    patch.write_text(
        "--- a/calc.py\n+++ b/calc.py\n@@ -2 +2 @@\n-    return a - b\n+    return a + b\n"
    )
    task = read_task_folder(folder)
    assert task.workspace is not None
    reference = Reference(kind="patch", path=str(patch), at="lib")
    task = replace(task, workspace=replace(task.workspace, reference=reference))
    change = change_of(Oracle(), task, "local", tmp_path)
    assert "+++ b/lib/calc.py" in change.patch


def test_a_reference_that_does_not_apply_is_the_oracles_fault(tmp_path: Path) -> None:
    folder = write_fix_add(tmp_path)
    (folder / "solution" / "solve.sh").write_text("echo no such luck\nexit 3\n")
    with pytest.raises(AgentError, match=r"cannot be applied \(exit code 3\): no such luck"):
        change_of(Oracle(), read_task_folder(folder), "local", tmp_path)
    task = read_task_folder(folder)
    assert task.workspace is not None
    without = replace(task, workspace=replace(task.workspace, reference=None))
    with pytest.raises(AgentError, match="has no reference solution"):
        change_of(Oracle(), without, "local", tmp_path)


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_nop_changes_nothing(sandbox: str, tmp_path: Path) -> None:
    task = read_task_folder(write_fix_add(tmp_path))
    assert change_of(Nop(), task, sandbox, tmp_path) == Change(patch="")


TRACES = {
    "overwrite-tests": "b/tests/test_own.py",
    "collide-tests": "b/tests/test_hidden.py",
    "conftest": "b/conftest.py",
    "forged-reports": "b/junit.xml",
    "reward-files": "b/reward.json",
    "shell-profile": "b/.bashrc",
    "git-attributes": "b/.gitattributes",
    "links-out": "b/everything",
    "daemon": "b/reward.txt",
    "shadow-test-tools": "b/pytest.py",
    "patched-unittest": "+    _unittest.TestCase.run = _unittest.TestCase.__call__ = _run",
    "exit-zero": "+_os._exit(0)",
    "always-equal": "+class _Equal(int):",
    "answers-from-tests": "+def _answer():",
    "deleted-files": "deleted file mode",
}
TOO_LARGE = ("huge-file", "many-files")
# they look for something, or leave it where no change of a workspace shows it
WITHOUT_TRACE = {
    "git-history", "leaked-files", "leaked-paths", "git-hooks", "git-config",
    "system-programs", "system-libraries", "unreadable-files", "fifo", "kept-bytecode",
    "deep-folders",
}  # fmt: skip


def write_to_cheat_on(folder: Path) -> Task:
    """Write a task with a source, a script and tests of its own."""
    written = write_fix_add(folder)
    (written / "files" / "run.sh").write_text("python3 calc.py\n")
    (written / "files" / "tests").mkdir()
    (written / "files" / "tests" / "test_own.py").write_text("assert False\n")
    return read_task_folder(written)


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_the_cheater_plays_each_trick_for_real(sandbox: str, tmp_path: Path) -> None:
    task = write_to_cheat_on(tmp_path)
    witness = tmp_path / "witness"
    names = [name for name in TRICKS if name not in TOO_LARGE]
    cheats = [Cheat(tricks=(name,), witness=str(witness)) for name in names]
    left = left_by(cheats, task, sandbox, tmp_path)
    alone = dict(zip(names, (change for _, change in left), strict=True))
    assert [name for name, text in TRACES.items() if text not in alone[name].patch] == []
    assert {name for name, change in alone.items() if not change.files} <= WITHOUT_TRACE
    assert alone["fifo"].left_out == ("waits-for-ever (a FIFO)",)
    assert not witness.exists()


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_change_can_be_made_too_large_to_be_taken(name: str, tmp_path: Path) -> None:
    task = read_task_folder(write_fix_add(tmp_path))
    with pytest.raises(ChangeTooLargeError):
        change_of(Cheat(tricks=(name,)), task, "bubblewrap", tmp_path)


def test_the_tricks_of_a_group_do_not_hinder_each_other(tmp_path: Path) -> None:
    task = write_to_cheat_on(tmp_path)
    groups = {group: names for group, names in GROUPS.items() if len(names) > 1}
    together = left_by(
        [Cheat(tricks=names) for names in groups.values()], task, "bubblewrap", tmp_path
    )
    for names, (_, change) in zip(groups.values(), together, strict=True):
        absent = [n for n in names if n in TRACES and TRACES[n] not in change.patch]
        assert absent == []


def test_the_cheater_harms_no_folder_but_a_workspace(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "a.py").write_text("a = 1\n")
    names = ("overwrite-tests", "forged-reports", "exit-zero", "deleted-files")
    script = HEAD + "".join(TRICKS[name].script for name in names)
    ended = subprocess.run(
        ["sh", "-c", script, "sh", str(tmp_path), ".marker-that-is-not-there", ""],
        cwd=mine,
        check=False,
    )
    assert ended.returncode == REFUSED
    assert [(p.name, p.read_text()) for p in mine.iterdir()] == [("a.py", "a = 1\n")]


def test_a_trick_that_nobody_knows_is_told() -> None:
    with pytest.raises(UsageError, match="no trick is called 'conftst': did you mean 'conftest'"):
        Cheat(tricks=("conftst",))


@pytest.mark.parametrize("agent", [Oracle(), Cheat()])
def test_outside_of_a_workspace_there_is_nothing_to_do(agent: Agent) -> None:
    with pytest.raises(UsageError, match="works on the files of a task, and task 'chat' has none"):
        asyncio.run(agent.solve(Task(id="chat", messages=()), Context(model=_Nobody())))
