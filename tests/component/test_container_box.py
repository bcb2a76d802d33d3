"""A box that is a container: what its commands see, and that they end. Real docker, real podman."""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bakeoff.core.errors import SandboxError
from bakeoff.core.sandbox import Command, Mount
from bakeoff.core.workspace import BoxLimits
from bakeoff.sandboxes.containers.sandbox import Container
from support.container_boxes import opened, sandbox, shell, spec
from support.container_engines import Engine, engine
from support.parts import require

# the shell itself forks once: a second time might be refused already, which would end it
FORK_BOMB = "bomb() { bomb | bomb & }; (bomb) & exec sleep 600"


@pytest.fixture(params=["docker", "podman"])
def where(request: pytest.FixtureRequest) -> Engine:
    found = engine(request.param)
    found.with_busybox()
    return found


@pytest.fixture
def containers(where: Engine) -> Container:
    return sandbox(where)


def test_a_command_gets_its_folder_environment_input_and_gives_its_code_and_output(
    containers: Container, tmp_path: Path
) -> None:
    (tmp_path / "given").write_text("from the host")
    (tmp_path / "sub").mkdir()
    value = "a 'quoted' \"value\" $HOME `id`\nwith a second line"

    async def scenario() -> None:
        async with opened(containers, spec(tmp_path, environment={"OF_BOX": value})) as box:
            ran = await shell(
                box,
                "cat ../given; echo; cat; echo err >&2; echo out; pwd; echo $OF_BOX_2; "
                'printf %s "$OF_BOX" > ../value; exit 3',
                cwd="/app/sub",
                stdin=b"input\n",
                environment={"OF_BOX_2": "two"},
            )
        assert (ran.code, ran.stopped) == (3, None)
        assert ran.output == "from the host\ninput\nerr\nout\n/app/sub\ntwo\n"

    asyncio.run(scenario())
    assert (tmp_path / "value").read_text() == value


def test_nothing_of_the_runners_environment_enters_a_box(where: Engine, tmp_path: Path) -> None:
    environment = {
        **where.environment,
        "SECRET_OF_THE_HOST": "s3cr3t",
        "HTTP_PROXY": "http://u:p@x",
    }
    containers = Container(name=where.name, environment=environment, default_image="unused")

    async def scenario() -> str:
        of = spec(tmp_path, image=where.with_busybox())
        async with opened(containers, of) as box:
            return (await shell(box, "env")).output

    seen = asyncio.run(scenario())
    assert "s3cr3t" not in seen
    assert "PROXY" not in seen.upper()
    assert "HOME=/home/agent" in seen


def test_no_variable_is_in_the_arguments_of_a_process_of_the_host(
    containers: Container, tmp_path: Path
) -> None:
    secret = "a-value-that-nobody-else-has"

    def arguments() -> str:
        seen = ""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen += path.read_text(errors="replace")
            except OSError:
                continue
        return seen

    async def scenario() -> None:
        of = spec(tmp_path, environment={"TOKEN": secret})
        async with opened(containers, of) as box:
            running = asyncio.create_task(
                shell(box, "touch started; sleep 2; echo $TOKEN", environment={"OTHER": secret})
            )
            await _until((tmp_path / "started").exists)
            seen = await asyncio.to_thread(arguments)
            assert "touch started" in seen
            assert secret not in seen
            assert (await running).output == f"{secret}\n"

    asyncio.run(scenario())


def test_output_is_heard_as_it_comes_and_only_that_of_the_command(
    containers: Container, tmp_path: Path
) -> None:
    heard: list[bytes] = []

    async def scenario() -> None:
        async with opened(containers, spec(tmp_path)) as box:
            running = asyncio.create_task(
                shell(
                    box,
                    "echo one; while [ ! -e go ]; do sleep 0.1; done; echo two",
                    on_output=heard.append,
                )
            )
            await _until(lambda: b"".join(heard) == b"one\n")
            (tmp_path / "go").touch()
            assert (await running).output == "one\ntwo\n"

    asyncio.run(scenario())
    assert b"".join(heard) == b"one\ntwo\n"


def test_a_command_that_does_not_exist_is_a_result_and_a_missing_folder_is_a_fault(
    containers: Container, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with opened(containers, spec(tmp_path)) as box:
            ran = await box.run(Command(argv=("no-such-program",)))
            assert ran.code == 127
            assert "no-such-program" in ran.output
            with pytest.raises(SandboxError, match="no/such/folder"):
                await box.run(Command(argv=("true",), cwd="/no/such/folder"))

    asyncio.run(scenario())


def test_a_box_has_no_network_and_no_capability(containers: Container, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(containers, spec(tmp_path)) as box:
            ran = await shell(
                box, "ls /sys/class/net; grep -E 'CapEff|NoNewPrivs' /proc/self/status"
            )
        links, *status = ran.output.split("\n", 1)
        assert links == "lo"
        assert status[0].split() == ["CapEff:", "0000000000000000", "NoNewPrivs:", "1"]

    asyncio.run(scenario())


def test_a_read_only_mount_cannot_be_written_and_paths_may_hold_commas_and_colons(
    containers: Container, tmp_path: Path
) -> None:
    shown = tmp_path / 'a,b:c "d"'
    shown.mkdir()
    (shown / "file").write_text("shown")
    folder = tmp_path / "folder, too"
    folder.mkdir()

    async def scenario() -> None:
        of = spec(folder, mounts=(Mount(source=str(shown), target="/shown"),))
        async with opened(containers, of) as box:
            ran = await shell(box, "cat /shown/file; echo x > /shown/file; echo y > made")
        assert ran.output.startswith("shown")
        assert "Read-only" in ran.output

    asyncio.run(scenario())
    assert (shown / "file").read_text() == "shown"
    assert (folder / "made").read_text() == "y\n"


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("trap '' TERM INT HUP; while :; do sleep 1; done", id="a-hung-tool"),
        pytest.param("setsid sleep 600 & (setsid sh -c 'sleep 600' &) ; sleep 600", id="daemons"),
        pytest.param(FORK_BOMB, id="a-fork-bomb"),
        pytest.param("yes", id="a-flood"),
    ],
)
def test_when_its_time_is_over_every_process_ends_and_the_box_goes_on(
    containers: Container, tmp_path: Path, script: str
) -> None:
    async def scenario() -> None:
        async with opened(containers, spec(tmp_path)) as box:
            await shell(box, "echo kept > /tmp/kept")
            started = time.monotonic()
            ran = await shell(box, script, time_s=2)
            assert time.monotonic() - started < 60
            assert ran.code is None
            assert ran.stopped == "its time was over after 2 s"
            after = await shell(box, "cat /tmp/kept; ps -o comm | sort | uniq -c")
            assert after.code == 0
            # the shell and the sleep that keep the container, and those who look
            assert "kept" in after.output
            assert after.output.count("sleep") == 1
            assert "yes" not in after.output

    asyncio.run(scenario())


def test_a_box_that_was_left_full_of_processes_takes_the_next_command(
    containers: Container, tmp_path: Path
) -> None:
    left = f"setsid sh -c '{FORK_BOMB}' >/dev/null 2>&1 & sleep 0.5"

    async def scenario() -> None:
        async with opened(containers, spec(tmp_path)) as box:
            await shell(box, left)
            ran = [await shell(box, "echo taken") for _ in range(3)]
            assert [each.output for each in ran] == ["taken\n"] * 3

    asyncio.run(scenario())


def test_a_child_that_outlives_its_command_does_not_hold_it_up_and_ends_with_the_box(
    containers: Container, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with opened(containers, spec(tmp_path)) as box:
            ran = await shell(box, "(while :; do date > beat; sleep 0.1; done) & echo done")
            assert (ran.code, ran.output) == (0, "done\n")
            await _until((tmp_path / "beat").exists)
            await box.stop()
            (tmp_path / "beat").unlink()
            await asyncio.sleep(0.5)
            assert not (tmp_path / "beat").exists()
            with pytest.raises(SandboxError, match="stopped"):
                await shell(box, "true")

    asyncio.run(scenario())


def test_a_command_that_is_stopped_by_a_stop_of_the_box_says_so(
    containers: Container, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with opened(containers, spec(tmp_path)) as box:
            running = asyncio.create_task(shell(box, "touch started; sleep 600", time_s=None))
            await _until((tmp_path / "started").exists)
            await box.stop()
            ran = await running
            assert (ran.code, ran.stopped) == (None, "the box was stopped")

    asyncio.run(scenario())


def test_commands_that_run_side_by_side_end_together_when_one_is_out_of_time(
    containers: Container, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with opened(containers, spec(tmp_path)) as box:
            other = asyncio.create_task(shell(box, "touch started; sleep 600", time_s=None))
            await _until((tmp_path / "started").exists)
            await shell(box, "sleep 600", time_s=1)
            ran = await other
            assert (ran.code, ran.stopped) == (None, "it ended with another command of its box")

    asyncio.run(scenario())


def test_a_cancelled_command_leaves_no_process_in_the_box(
    containers: Container, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with opened(containers, spec(tmp_path)) as box:
            running = asyncio.create_task(shell(box, "touch started; sleep 601", time_s=None))
            await _until((tmp_path / "started").exists)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert "601" not in (await shell(box, "ps -o args | grep -v grep")).output

    asyncio.run(scenario())


def test_memory_that_is_used_up_is_said_and_the_box_goes_on(
    containers: Container, tmp_path: Path
) -> None:
    limits = BoxLimits(memory_mb=64, processes=64, disk_mb=None)

    async def scenario() -> None:
        async with opened(containers, spec(tmp_path, limits=limits)) as box:
            for _ in range(2):
                ran = await shell(box, "x=xxxx; while :; do x=$x$x$x; done")
                assert ran.code is None
                assert ran.stopped == "out of memory: the box may take 64 MB"
            killed = await shell(box, "kill -9 $$")
            assert (killed.code, killed.stopped) == (137, None)
            assert (await shell(box, "echo fine")).output == "fine\n"

    asyncio.run(scenario())


@pytest.mark.parametrize("place", ["/app", "/tmp"])
def test_a_disk_that_is_filled_stops_the_command(
    containers: Container, tmp_path: Path, place: str
) -> None:
    limits = BoxLimits(memory_mb=256, processes=64, disk_mb=40)
    fill = "i=0; while :; do i=$((i+1)); dd if=/dev/zero of=$i bs=1M count=8 2>/dev/null; done"

    async def scenario() -> None:
        async with opened(containers, spec(tmp_path, limits=limits)) as box:
            one_file = await shell(box, f"dd if=/dev/zero of={place}/one bs=1M count=100")
            assert one_file.code != 0
            ran = await shell(box, f"cd {place}; rm one; {fill}")
            assert ran.stopped == "its disk was full: the box may take 40 MB"

    asyncio.run(scenario())


def test_output_without_end_is_cut_in_the_middle(containers: Container, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(containers, spec(tmp_path)) as box:
            ran = await shell(box, "seq 1 200000; echo last", most_output=2000)
        assert ran.truncated
        assert ran.output.startswith("1\n2\n3\n")
        assert ran.output.endswith("200000\nlast\n")
        assert len(ran.output) <= 2000

    asyncio.run(scenario())


def test_an_engine_that_is_not_there_is_said_with_what_to_install(tmp_path: Path) -> None:
    nowhere = Container(name="docker", environment={"PATH": str(tmp_path)})
    assert "apt install docker.io" in str(nowhere.available())
    dead = Container(
        name="docker",
        environment={"PATH": "/usr/bin:/usr/local/bin", "DOCKER_HOST": f"unix://{tmp_path}/none"},
    )
    assert dead.available() is not None
    with pytest.raises(SandboxError, match="docker"):
        asyncio.run(dead.open(spec(tmp_path, image="any")))


def test_orphans_do_not_pile_up_in_a_box(containers: Container, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(containers, spec(tmp_path)) as box:
            await shell(
                box, "for n in $(seq 30); do (sleep 0.05 >/dev/null 2>&1 &); done; sleep 0.5"
            )
            seen = await shell(box, "grep -l 'State:.*Z' /proc/[0-9]*/status; echo looked")
            assert seen.output == "looked\n"

    asyncio.run(scenario())


_AS_NOBODY = """
import asyncio, sys
from pathlib import Path
from bakeoff.core.sandbox import BoxSpec, Command
from bakeoff.core.workspace import BoxLimits
from bakeoff.sandboxes.containers.sandbox import Container

FILL = "cd /tmp; n=0; while :; do n=$((n+1)); head -c 5000000 /dev/zero > $n; sleep 0.2; done"

async def main():
    limits = BoxLimits(memory_mb=100, processes=50, disk_mb=30)
    spec = BoxSpec(label="x", folder=Path(sys.argv[1]), limits=limits)
    box = await Container(name="docker", default_image=sys.argv[2]).open(spec)
    try:
        first = await box.run(Command(argv=("sh", "-c", "id -u; echo x > made; echo y > $HOME/own")))
        print(first.code, first.output.strip())
        print((await box.run(Command(argv=("sh", "-c", FILL), time_s=60))).stopped)
    finally:
        await box.close()

asyncio.run(main())
"""


# what asks the engine at its socket; another Python may not load what was compiled for ours
_CLIENT = (
    "aiohttp", "aiohappyeyeballs", "aiosignal", "attr", "frozenlist", "idna", "multidict",
    "propcache", "typing_extensions", "yarl",
)  # fmt: skip
_PURE_PYTHON = {f"{name.upper()}_NO_EXTENSIONS": "1" for name in _CLIENT}


def _copy_packages(place: Path) -> None:
    """Copy Bakeoff and its HTTP client to where every user can read them."""
    for name in ("bakeoff", *_CLIENT):
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            shutil.copytree(spec.submodule_search_locations[0], place / name)
        elif spec is not None and spec.origin:
            shutil.copy(spec.origin, place)


def test_a_caller_who_is_not_root_has_boxes_too_and_owns_what_they_write() -> None:
    where, python = engine("docker"), "/usr/bin/python3"
    asked = [python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    is_new = Path(python).exists() and subprocess.run(asked, check=False).returncode == 0
    require("a Python that every user can run", is_new, "apt install python3 (3.11 or later)")
    (where.home / "docker.sock").chmod(0o666)
    where.home.chmod(0o755)
    with TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o755)
        folder = Path(place, "folder")
        folder.mkdir()
        os.chown(folder, 4242, 4242)
        _copy_packages(Path(place, "src"))
        done = subprocess.run(
            [
                *("setpriv", "--reuid", "4242", "--regid", "4242", "--clear-groups"),
                *(python, "-B", "-c", _AS_NOBODY, str(folder), where.with_busybox()),
            ],
            env={**where.environment, "PYTHONPATH": f"{place}/src", **_PURE_PYTHON},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "0 4242\nits disk was full: the box may take 30 MB\n"
        assert (folder / "made").stat().st_uid == 4242


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.02)
