"""Programs that mean harm: each ends in time, nothing of it is left, and the host is untouched."""

import asyncio
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bakeoff._lib import process_identity, scratch
from bakeoff.core.sandbox import Command, CommandResult
from bakeoff.core.workspace import BoxLimits
from support.sandboxes import (
    BACKENDS,
    Backend,
    cgroups_with,
    folders_with,
    new_token,
    processes_with,
)

IN_TIME_S = 45  # of a machine that does much else; the commands are given a second or two


@pytest.fixture(params=BACKENDS, ids=str)
def backend(request: pytest.FixtureRequest) -> Backend:
    chosen: Backend = request.param
    chosen.require()
    return chosen


@pytest.fixture
def walls(backend: Backend) -> Backend:
    """A backend whose boxes have walls; the others are not for hostile programs."""
    if not backend.isolates:
        pytest.skip("a box that is only a folder does not isolate, and says so")
    return backend


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A file of the host that nothing in a box may read or change."""
    kept = tmp_path / "canary"
    kept.write_text("s3cr3t of the host")
    before = kept.stat()
    yield kept
    after = kept.stat()
    assert kept.read_text() == "s3cr3t of the host"
    assert (after.st_mtime_ns, after.st_mode, after.st_nlink) == (
        before.st_mtime_ns,
        before.st_mode,
        before.st_nlink,
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    """The folder of a box; whatever the box left in it, it can be taken away."""
    made = scratch.new_folder("hostile")
    yield made
    scratch.remove(made)
    assert not made.exists()


def suffered(
    backend: Backend, folder: Path, *argv: str, time_s: float = 2, **spec: Any
) -> CommandResult:
    """Run a hostile command and see that it ends in time and that nothing of it is left."""
    token = new_token()
    mine = process_identity.current()
    folders = set(folders_with(mine))

    async def run() -> CommandResult:
        async with backend.box(folder, **spec) as box:
            command = Command(argv=(*argv, token), time_s=time_s)
            result = await box.run(command)
            await box.stop()
            assert not processes_with(token)
            return result

    started = time.monotonic()
    result = asyncio.run(run())
    assert time.monotonic() - started < IN_TIME_S
    assert not processes_with(token)
    assert not cgroups_with(mine)
    assert set(folders_with(mine)) == folders
    return result


FORK_BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


def test_a_fork_bomb_ends_with_its_time(walls: Backend, folder: Path) -> None:
    limits = BoxLimits(processes=100, memory_mb=1000)
    result = suffered(walls, folder, "python3", "-c", FORK_BOMB, limits=limits)
    assert result.stopped is not None


def test_a_fork_bomb_of_the_shell_ends_with_its_time(walls: Backend, folder: Path) -> None:
    limits = BoxLimits(processes=100)
    bomb = "bomb() { bomb | bomb & }; bomb; exec sleep 60"
    result = suffered(walls, folder, "sh", "-c", bomb, limits=limits)
    assert len(result.output) <= 1_000_000


def test_a_daemon_that_left_its_session_twice_ends_with_the_box(
    backend: Backend, folder: Path
) -> None:
    script = (
        'token=$0; (setsid sh -c "setsid sleep $token & sleep $token" >/dev/null 2>&1 &); '
        'nohup setsid sleep "$token" </dev/null >/dev/null 2>&1 & echo away'
    )
    result = suffered(backend, folder, "sh", "-c", script, time_s=20)
    assert (result.code, result.output) == (0, "away\n")


def test_a_tool_that_ignores_every_signal_and_holds_the_output_ends_with_its_time(
    backend: Backend, folder: Path
) -> None:
    hung = (
        "import os, signal, time\n"
        "for number in range(1, 65):\n"
        "    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "print('hung', flush=True)\n"
        "if os.fork() == 0: os.setsid()\n"
        "while True: time.sleep(1)\n"
    )
    result = suffered(backend, folder, "python3", "-c", hung)
    assert result.stopped is not None
    assert result.output == "hung\n"


def test_one_big_file_does_not_fill_the_disk(backend: Backend, folder: Path) -> None:
    limits = BoxLimits(disk_mb=50)
    script = "cat /dev/zero > big; cat /dev/zero > $HOME/big; cat /dev/zero > ${TMPDIR:-/tmp}/big"
    suffered(backend, folder, "sh", "-c", script, time_s=30, limits=limits)
    assert (folder / "big").stat().st_size <= 50 << 20


def test_many_files_do_not_fill_the_disk(backend: Backend, folder: Path) -> None:
    limits = BoxLimits(disk_mb=50)
    filler = "i=0; while :; do i=$((i+1)); head -c 9000000 /dev/zero > $HOME/f$i; done"
    result = suffered(backend, folder, "sh", "-c", filler, time_s=30, limits=limits)
    assert result.stopped is not None
    assert "disk" in result.stopped


NAMELESS = """
import os, time
held = []
while True:
    held.append(os.open("x", os.O_CREAT | os.O_RDWR))
    os.unlink("x")
    os.write(held[-1], bytes(9_000_000))
    time.sleep(0.01)
"""


def test_files_without_a_name_do_not_fill_the_disk_either(backend: Backend, folder: Path) -> None:
    limits = BoxLimits(disk_mb=50)
    result = suffered(backend, folder, "python3", "-c", NAMELESS, time_s=30, limits=limits)
    assert result.stopped is not None
    assert "disk" in result.stopped


MANY = """
import os
for outer in range(100):
    os.mkdir(str(outer))
    for inner in range(1000):
        os.close(os.open(f"{outer}/{inner}", os.O_CREAT | os.O_WRONLY))
print("made")
"""


@pytest.mark.usefixtures("files_in_memory")
def test_a_hundred_thousand_files_are_taken_away(backend: Backend, folder: Path) -> None:
    async def run() -> CommandResult:
        async with backend.box(folder) as box:
            script = "import os; os.chdir(os.environ['HOME'])" + MANY
            return await box.run(Command(argv=("python3", "-c", script), time_s=300))

    result = asyncio.run(run())
    assert result.output == "made\n"


DEEP = """
import os
try:
    while True:
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
        open("file", "wb").write(bytes(100_000))
except OSError as error:
    print(error)
"""


def test_folders_nested_without_end_stop_the_command_and_are_taken_away(
    backend: Backend, folder: Path
) -> None:
    result = suffered(
        backend, folder, "python3", "-c", DEEP, time_s=60, limits=BoxLimits(disk_mb=400)
    )
    assert result.stopped is not None


def test_what_is_left_in_the_folder_is_no_trap_for_the_host(
    backend: Backend, folder: Path, canary: Path
) -> None:
    traps = (
        f"mkfifo fifo; ln -s {canary} link; ln -s {canary.parent} folder; ln -s / root;"
        "mkdir locked; touch locked/x; chmod 000 locked; ln -s loop loop; printf x > suid; chmod 4755 suid"
    )
    result = suffered(backend, folder, "sh", "-c", traps, time_s=20)
    assert result.code == 0
    assert stat.S_ISFIFO((folder / "fifo").lstat().st_mode)


def test_nothing_of_the_host_is_seen_or_changed(walls: Backend, folder: Path, canary: Path) -> None:
    home = Path.home() / f".bakeoff-canary-{os.getpid()}"
    home.write_text("s3cr3t of the host")
    try:
        script = (
            f"cat {canary} {home} /etc/shadow /proc/1/environ 2>&1; echo changed > {canary};"
            f"rm -rf {canary} {home} {canary.parent} 2>&1;"
            "find / -xdev -name '*canary*' 2>/dev/null; ls /root /home/* /var/lib 2>&1"
        )
        result = suffered(walls, folder, "sh", "-c", script, time_s=40)
        assert "s3cr3t" not in result.output
        assert home.read_text() == "s3cr3t of the host"
    finally:
        home.unlink()


REACH = """
import os, signal
try:
    os.kill(-1, signal.SIGKILL)
except OSError as error:
    print(error)
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) not in (1, os.getpid()):
        try: os.kill(int(name), signal.SIGKILL)
        except OSError: pass
print("still here", flush=True)
"""


def test_processes_of_the_host_cannot_be_reached(walls: Backend, folder: Path) -> None:
    result = suffered(walls, folder, "python3", "-c", REACH, time_s=20)
    assert result.output.endswith("still here\n")


def test_a_flood_of_output_takes_neither_memory_nor_the_loop(
    backend: Backend, folder: Path
) -> None:
    result = suffered(backend, folder, "yes", time_s=2)
    assert result.stopped is not None
    assert result.truncated
    assert len(result.output) <= 1_000_000
