"""The bench: rooms side by side, what is shared, what is hidden, and that nothing is left."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from bakeoff._lib import scratch
from bakeoff.core.errors import SandboxError
from bakeoff.core.sandbox import Box, BoxSpec, Command
from bakeoff.core.workspace import Change
from bakeoff.sandboxes.host.local import Local
from bakeoff.workspaces.host import HostWorkspaces
from support.cli import not_outliving
from support.workspaces import (
    changed_by,
    isolating,
    open_bench,
    open_room,
    sh,
    tree,
    workspace_task,
    write,
)


def left(kind: str) -> list[Path]:
    """Return the folders of one kind that this process has now."""
    mine = f"-{os.getpid()}-"
    return [p for p in scratch.base().iterdir() if mine in p.name and f"-{kind}-" in p.name]


def test_a_hundred_rooms_at_once_share_one_pristine_copy_and_leave_nothing(tmp_path: Path) -> None:
    task = workspace_task(tree(write(tmp_path / "files", {"a.txt": "one\n"})))

    async def work(bench: HostWorkspaces, number: int) -> Change:
        async with open_room(bench, task) as room:
            await sh(room, f"echo {number} > mine; cat a.txt")
            return await bench.change(task, room)

    async def run() -> list[Change]:
        async with (
            open_bench(tmp_path / "cache", isolating()) as bench,
            asyncio.TaskGroup() as group,
        ):
            tasks = [group.create_task(work(bench, number)) for number in range(100)]
        return [task.result() for task in tasks]

    changes = asyncio.run(run())
    for number, change in enumerate(changes):
        assert change.patch.endswith(f"+{number}\n")
        assert change.files == 1
    assert (left("room"), left("pristine"), left("box")) == ([], [], [])


def test_a_pristine_copy_is_made_once_and_lent_to_every_room(tmp_path: Path) -> None:
    task = workspace_task(tree(write(tmp_path / "files", {"a.txt": "one\n"})))

    async def run() -> None:
        async with open_bench(tmp_path / "cache") as bench:
            async with open_room(bench, task), open_room(bench, task):
                assert len(left("pristine")) == 1
                assert len(left("room")) == 2
            first = left("pristine")
            async with bench.open_for_grading(task, None, label="x"):
                assert left("pristine") == first

    asyncio.run(run())


def test_few_pristine_copies_are_kept_however_many_tasks_there_are(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_bench(tmp_path / "cache") as bench:
            for number in range(20):
                task = workspace_task(texts={"n.txt": str(number)})
                async with open_room(bench, task) as room:
                    assert (await sh(room, "cat n.txt")).output == str(number)
            assert len(left("pristine")) == 8
        assert left("pristine") == []

    asyncio.run(run())


def test_a_workspace_that_could_not_be_made_is_tried_again(tmp_path: Path) -> None:
    folder = write(tmp_path / "files", {"a.txt": "one\n"})
    task = workspace_task(tree(folder))
    folder.rename(tmp_path / "away")

    async def run() -> None:
        async with open_bench(tmp_path / "cache") as bench:
            with pytest.raises(SandboxError):
                await changed_by(bench, task, "true")
            (tmp_path / "away").rename(folder)
            assert (await changed_by(bench, task, "echo > x")).files == 1

    asyncio.run(run())


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.03, 0.06, 0.12, 0.3])
def test_a_trial_that_is_cancelled_at_any_moment_leaves_nothing(
    tmp_path: Path, delay: float
) -> None:
    files = {f"{n}/{m}.txt": f"{n}{m}\n" for n in range(20) for m in range(20)}
    task = workspace_task(tree(write(tmp_path / "files", files)), setup=("echo x > set-up",))

    async def trial() -> None:
        async with open_bench(tmp_path / "cache", isolating()) as bench:
            change = await changed_by(bench, task, "echo > y")
            async with bench.open_for_grading(task, change, label="x"):
                await asyncio.sleep(60)

    async def run() -> None:
        running = asyncio.create_task(trial())
        await asyncio.sleep(delay)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(run())
    assert (left("room"), left("pristine"), left("box")) == ([], [], [])


def test_what_a_killed_runner_left_is_found_and_taken_away(tmp_path: Path) -> None:
    write(tmp_path / "files", {"a.txt": "one\n"})
    code = """
import asyncio, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from support.workspaces import open_bench, open_room, sh, tree, workspace_task
async def run():
    task = workspace_task(tree(Path(sys.argv[1]) / "files"))
    async with open_bench(Path(sys.argv[1]) / "cache") as bench, open_room(bench, task) as room:
        await sh(room, "mkdir -p d/e; echo > d/e/f; chmod 000 d")
        os.kill(os.getpid(), 9)
asyncio.run(run())
"""
    support = Path(__file__).parents[1]
    argv = [sys.executable, "-c", code, str(tmp_path), str(support)]
    with not_outliving(subprocess.Popen(argv)) as died:
        assert died.wait(60) == -signal.SIGKILL
    dead = [path for path in scratch.orphans() if f"-{died.pid}-" in path.name]
    assert {"room", "pristine"} <= {path.name.split("-")[3] for path in dead}
    for path in dead:
        scratch.remove(path)
        assert not path.exists()


def test_the_agent_sees_nothing_of_what_is_hidden_and_the_grader_does(tmp_path: Path) -> None:
    files = tree(write(tmp_path / "files", {"a.txt": "one\n"}))
    near = tree(write(tmp_path / "near", {"secret_test.py": "the answer is 42\n"}), at="tests")
    far = tree(write(tmp_path / "far", {"test.sh": "the answer is 42\n"}), at="/verifier")
    task = workspace_task(files, hidden=(near, far))
    look = "grep -rls 'answer is 42' /app /verifier /tmp /home 2>/dev/null || true; ls -a /"

    async def run() -> tuple[str, str]:
        async with open_bench(tmp_path / "cache", isolating()) as bench:
            async with open_room(bench, task) as room:
                agents = (await sh(room, look)).output
                change = await bench.change(task, room)
            async with bench.open_for_grading(task, change, label="x") as clean:
                return agents, (await clean.box.run(Command(argv=("sh", "-c", look)))).output

    agents, graders = asyncio.run(run())
    assert "answer" not in agents
    assert "verifier" not in agents
    assert "secret_test.py" not in agents
    assert "/app/tests/secret_test.py" in graders
    assert "/verifier/test.sh" in graders


def test_hidden_files_win_over_whatever_the_agent_put_in_their_place(tmp_path: Path) -> None:
    files = tree(write(tmp_path / "files", {"a.txt": "one\n", "tests/old.py": "old\n"}))
    hidden = tree(
        write(tmp_path / "hidden", {"t.py": "hidden\n", "d/u.py": "hidden\n"}), at="tests"
    )
    task = workspace_task(files, hidden=(hidden,))
    victim = tmp_path / "victim"
    victim.mkdir()
    tricks = (
        f"rm -r tests; ln -s {victim} tests",
        "rm -r tests; echo > tests",
        f"ln -s {victim}/x tests/t.py; ln -s {victim} tests/d",
        "mkdir tests/t.py; echo > tests/t.py/x; echo > tests/d",
    )

    async def run() -> None:
        async with open_bench(tmp_path / "cache") as bench:
            for trick in tricks:
                change = await changed_by(bench, task, trick)
                async with bench.open_for_grading(task, change, label="x") as room:
                    assert room.folder is not None
                    assert (room.folder / "tests/t.py").read_text() == "hidden\n"
                    assert (room.folder / "tests/d/u.py").read_text() == "hidden\n"
                    assert not (room.folder / "tests").is_symlink()

    asyncio.run(run())
    assert list(victim.iterdir()) == []


def test_each_change_is_graded_on_the_files_of_the_task_and_on_no_other_change(
    tmp_path: Path,
) -> None:
    files = tree(write(tmp_path / "files", {"a.txt": "a\n", "b.txt": "b\n"}))
    task = workspace_task(files)
    works = {
        "echo changed > a.txt; echo new > c.txt": {"a.txt": "changed\n", "c.txt": "new\n"},
        "rm a.txt; echo other > c.txt": {"b.txt": "b\n", "c.txt": "other\n"},
        "echo more >> b.txt": {"a.txt": "a\n", "b.txt": "b\nmore\n"},
    }

    async def run() -> None:
        async with open_bench(tmp_path / "cache") as bench:
            changes = {work: await changed_by(bench, task, work) for work in works}

            async def graded(work: str) -> None:
                async with bench.open_for_grading(task, changes[work], label="x") as room:
                    assert room.folder is not None
                    found = {path.name: path.read_text() for path in room.folder.glob("*.txt")}
                    unchanged = {"a.txt": "a\n", "b.txt": "b\n"}
                    if "rm a.txt" in work:
                        del unchanged["a.txt"]
                    assert found == unchanged | works[work]

            await graded("rm a.txt; echo other > c.txt")
            async with asyncio.TaskGroup() as group:
                for work in [*works, *works]:
                    group.create_task(graded(work))

    asyncio.run(run())


def test_the_clean_room_has_no_network_and_no_way_to_a_model(tmp_path: Path) -> None:
    files = tree(write(tmp_path / "files", {"a.txt": "one\n"}))
    task = workspace_task(files, network=True)

    async def run() -> str:
        async with (
            open_bench(tmp_path / "cache", isolating()) as bench,
            bench.open_for_grading(task, None, label="x") as room,
        ):
            assert room.box.gateway_url is None
            ran = await room.box.run(Command(argv=("cat", "/proc/net/dev")))
            return ran.output

    interfaces = [line.split(":")[0].strip() for line in asyncio.run(run()).splitlines()[2:]]
    assert interfaces == ["lo"]


class CopyingBox:
    """A box that works on a copy of its folder, as one in the cloud does."""

    def __init__(self, box: Box, copy: Path) -> None:
        self._box = box
        self._copy = copy
        self.gateway_url = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._box, name)

    async def close(self) -> None:
        await self._box.close()
        scratch.remove(self._copy)


class Copying(Local):
    """Opens such boxes."""

    async def open(self, spec: BoxSpec) -> Box:
        assert spec.folder is not None
        place = scratch.new_folder("copy")
        shutil.copytree(spec.folder, place / "files", symlinks=True)
        box = await super().open(replace(spec, folder=place / "files"))
        return cast("Box", CopyingBox(box, place))


def test_a_sandbox_that_copies_the_files_grades_right_and_refuses_a_set_up(tmp_path: Path) -> None:
    files = tree(write(tmp_path / "files", {"a.txt": "one\n"}))
    hidden = tree(write(tmp_path / "hidden", {"t": "hidden\n"}), at="tests")
    change = Change(
        patch="diff --git a/b b/b\nnew file mode 100644\n--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+x\n"
    )

    async def run() -> None:
        async with open_bench(tmp_path / "cache", Copying()) as bench:
            plain = workspace_task(files, hidden=(hidden,))
            async with bench.open_for_grading(plain, change, label="x") as room:
                assert (await sh(room, "cat a.txt b tests/t")).output == "one\nx\nhidden\n"
            with pytest.raises(SandboxError, match="works on a copy of the files"):
                await changed_by(bench, workspace_task(files, setup=("true",)), "true")

    asyncio.run(run())
    assert left("copy") == []


def test_a_stored_change_is_graded_again_in_another_run(tmp_path: Path) -> None:
    task = workspace_task(tree(write(tmp_path / "files", {"a.txt": "one\n"})))

    async def first() -> Change:
        async with open_bench(tmp_path / "cache") as bench:
            return await changed_by(bench, task, "echo two > a.txt")

    async def second(change: Change) -> str:
        async with (
            open_bench(tmp_path / "cache") as bench,
            bench.open_for_grading(task, change, label="x") as room,
        ):
            assert room.folder is not None
            return (room.folder / "a.txt").read_text()

    assert asyncio.run(second(asyncio.run(first()))) == "two\n"
