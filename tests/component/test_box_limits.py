"""What keeps the limits of a box: control groups, the watch on its disk, marks of processes."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakeoff._lib import process_identity, scratch
from bakeoff.core.workspace import BoxLimits
from bakeoff.sandboxes.host import cgroups, process_tags
from bakeoff.sandboxes.host.disk_watch import DiskWatch, measure, unlinked_bytes
from support.cli import not_outliving, until
from support.parts import require


@pytest.fixture
def folder() -> Iterator[Path]:
    made = scratch.new_folder("limits")
    yield made
    scratch.remove(made)


@pytest.fixture
def groups() -> cgroups.Cgroups:
    found = cgroups.find()
    require("control groups that may be written to", found, "run as root, or in a user's session")
    assert found is not None
    return found


# ---- control groups


def test_a_group_has_its_limits_and_goes_with_its_processes(groups: cgroups.Cgroups) -> None:
    group = groups.make(process_tags.new_tag(), BoxLimits(memory_mb=100, processes=10, cpus=0.5))
    entry = "; ".join(f"echo 0 > {door}" for door in group.entry_files)
    sleeps = ["sh", "-c", f"{entry}; sleep 60 & setsid sleep 60 & wait"]
    with not_outliving(subprocess.Popen(sleeps)) as process:
        until(lambda: len(group.processes()) >= 3)
        assert process.pid in group.processes()
        assert group.kill() >= 3
        assert group.processes() == set()
        group.remove()
        assert process.wait(60) < 0
    assert not any(path.exists() for path in group.folders.values())


def test_the_group_of_a_dead_owner_is_reaped_and_that_of_a_living_one_is_not(
    groups: cgroups.Cgroups,
) -> None:
    code = (
        "import subprocess\nfrom bakeoff.sandboxes.host import cgroups, process_tags\n"
        "from bakeoff.core.workspace import BoxLimits\n"
        "group = cgroups.find().make(process_tags.new_tag(), BoxLimits())\n"
        "entry = '; '.join(f'echo 0 > {path}' for path in group.entry_files)\n"
        "subprocess.Popen(['sh', '-c', entry + '; echo up; exec sleep 60'],\n"
        "    start_new_session=True)\n"
        "import time; time.sleep(60)\n"
    )
    mine = groups.make(process_tags.new_tag(), BoxLimits())
    dead = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with dead:
        assert dead.stdout is not None
        assert dead.stdout.readline() == "up\n"
        dead.kill()
    lines = cgroups.reap()
    assert any(f"-{dead.pid}-" in line and "1 processes" in line for line in lines)
    assert not any(process_identity.current() in line for line in lines)
    assert all(path.exists() for path in mine.folders.values())
    mine.remove()


MOUNTS_1 = """\
30 25 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:10 - cgroup cgroup rw,cpu,cpuacct
32 25 0:28 /docker/abc /sys/fs/cgroup/pids ro,relatime shared:11 - cgroup cgroup rw,pids
"""


def test_the_groups_of_other_users_are_left_to_them(groups: cgroups.Cgroups) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can act for somebody else")
    code = "from bakeoff._lib import process_identity; print(process_identity.current())"
    dead = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    left = groups.make(f"{dead.stdout.strip()}-0", BoxLimits())
    try:
        code = (
            "import os\nfrom bakeoff.sandboxes.host import cgroups\n"
            "os.setresuid(65534, 65534, 65534)\nprint(cgroups.reap())"
        )
        as_nobody = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert (as_nobody.stdout.strip(), as_nobody.stderr) == ("[]", "")
    finally:
        left.remove()


def test_in_version_1_each_controller_has_a_place_of_its_own() -> None:
    own = "4:memory:/user/x\n3:cpu,cpuacct:/\n2:pids:/docker/abc\n1:name=systemd:/x\n0::/\n"
    assert cgroups._version_1(own, MOUNTS_1) == {
        "memory": Path("/sys/fs/cgroup/memory/user/x"),
        "cpu": Path("/sys/fs/cgroup/cpu,cpuacct"),
        "pids": Path("/sys/fs/cgroup/pids"),
    }


def test_in_version_2_groups_are_made_where_controllers_are_handed_down(tmp_path: Path) -> None:
    """The tree of a user's session: the part that the user owns hands its controllers down."""
    leaf = tmp_path / "user.slice" / "user@1000.service" / "app.slice" / "term.scope"
    leaf.mkdir(parents=True)
    for folder, offered in (
        (leaf, ""),
        (leaf.parent, "memory pids"),
        (leaf.parent.parent, "cpu memory pids"),
        (leaf.parent.parent.parent, ""),
        (tmp_path, "cpu memory pids io"),
    ):
        (folder / "cgroup.subtree_control").write_text(offered)
    mount = f"29 25 0:26 / {tmp_path} rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
    own = f"0::/{leaf.relative_to(tmp_path)}\n"
    found = cgroups._version_2(own, mount)
    assert found == [leaf.parent, leaf.parent.parent, tmp_path]


# ---- the disk


def test_what_folders_take_is_measured_once_for_each_file(folder: Path) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "file").write_bytes(bytes(1_000_000))
    os.link(folder / "inner" / "file", folder / "again")
    (folder / "link").symlink_to("/usr")
    with (folder / "sparse").open("wb") as sparse:
        sparse.truncate(1 << 40)
    assert 1_000_000 <= measure((folder,)).used_bytes < 1_200_000


def test_a_file_without_a_name_counts_while_it_is_held_open(folder: Path) -> None:
    with (folder / "file").open("wb", buffering=0) as file:
        file.write(bytes(1_000_000))
        assert unlinked_bytes([os.getpid()], (folder,)) == 0
        (folder / "file").unlink()
        assert 1_000_000 <= unlinked_bytes([os.getpid()], (folder,)) < 1_200_000
    assert unlinked_bytes([os.getpid()], (folder,)) == 0


def test_a_file_that_is_closed_meanwhile_does_not_hide_the_others(folder: Path) -> None:
    with (folder / "gone").open("wb") as file:
        file.write(b"x" * 1_000_000)
        file.flush()
        (folder / "gone").unlink()
        high = os.dup2(file.fileno(), 900)
        try:
            file.close()  # now the listing of what is open has a lower number, and ends before
            assert unlinked_bytes([os.getpid()], (folder,)) >= 1_000_000
        finally:
            os.close(high)


def test_the_watch_says_when_there_is_too_much_and_not_before(folder: Path) -> None:
    async def watched() -> list[str]:
        said: list[str] = []
        task = asyncio.create_task(DiskWatch((folder,), 40).watch(said.append))
        (folder / "some").write_bytes(bytes(20 << 20))
        await asyncio.sleep(1.0)
        assert said == []
        (folder / "more").write_bytes(bytes(40 << 20))
        for _ in range(200):
            if said:
                break
            await asyncio.sleep(0.1)
        task.cancel()
        return said

    said = asyncio.run(watched())
    assert said
    assert "40 MB" in said[0]


def test_a_folder_that_has_gone_is_said_not_ignored(folder: Path) -> None:
    async def watched() -> list[str]:
        said: list[str] = []
        inner = folder / "inner"
        inner.mkdir()
        task = asyncio.create_task(DiskWatch((inner,), 40).watch(said.append))
        inner.rmdir()
        for _ in range(200):
            if said:
                break
            await asyncio.sleep(0.05)
        task.cancel()
        return said

    assert "could not be watched" in asyncio.run(watched())[0]


# ---- marks


def test_a_process_is_found_by_its_mark_however_far_it_went() -> None:
    tag = process_tags.new_tag()
    script = "setsid sh -c 'sleep 60 & exec sleep 60' >/dev/null 2>&1 & exit 0"
    environment = {"PATH": os.environ["PATH"], process_tags.VARIABLE: f"{tag}.1"}
    subprocess.run(["sh", "-c", script], env=environment, check=True)
    until = time.monotonic() + 20
    while (
        len(process_tags.tagged_processes(process_tags.has_tag(tag))) < 2
        and time.monotonic() < until
    ):
        time.sleep(0.01)
    assert len(process_tags.tagged_processes(process_tags.has_tag(f"{tag}.1"))) == 2
    assert not process_tags.tagged_processes(process_tags.has_tag(f"{tag}.2"))
    assert not process_tags.tagged_processes(process_tags.has_tag(tag[:-1]))
    assert not process_tags.has_dead_owner(tag)
    assert process_tags.kill(process_tags.has_tag(tag)) == 2
    assert not process_tags.tagged_processes(process_tags.has_tag(tag))
