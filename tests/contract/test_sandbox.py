"""What every sandbox promises; run against each backend."""

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from bakeoff._lib import process_identity, scratch
from bakeoff.core.errors import SandboxError
from bakeoff.core.sandbox import Box, Command, CommandResult, Mount
from bakeoff.core.workspace import BoxLimits
from support.sandboxes import (
    BACKENDS,
    Backend,
    cgroups_with,
    folders_with,
    mounts_with,
    new_token,
    processes_with,
)
from support.unix_http import UnixHttp

TESTS = Path(__file__).parents[1]
Work = Callable[[Box], Coroutine[Any, Any, Any]]


@pytest.fixture(params=BACKENDS, ids=str)
def backend(request: pytest.FixtureRequest) -> Backend:
    chosen: Backend = request.param
    chosen.require()
    return chosen


@pytest.fixture
def folder() -> Any:
    made = scratch.new_folder("contract")
    yield made
    scratch.remove(made)


def do(backend: Backend, folder: Path, work: Work, **spec: Any) -> Any:
    async def inside() -> Any:
        async with backend.box(folder, **spec) as box:
            return await work(box)

    return asyncio.run(inside())


def sh(script: str, **more: Any) -> Command:
    return Command(argv=("sh", "-c", script), **{"time_s": 60, **more})


def ran(
    backend: Backend, folder: Path, script: str, *, spec: Any = None, **more: Any
) -> CommandResult:
    return do(backend, folder, lambda box: box.run(sh(script, **more)), **(spec or {}))


def none_left(token: str, within_s: float = 10.0) -> bool:
    until = time.monotonic() + within_s
    while processes_with(token):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


# ---- commands


@pytest.mark.parametrize("code", [0, 1, 7, 125, 255])
def test_the_exit_code_of_a_command_comes_back(backend: Backend, folder: Path, code: int) -> None:
    result = ran(backend, folder, f"exit {code}")
    assert (result.code, result.stopped) == (code, None)


def test_a_command_killed_by_a_signal_has_the_code_a_shell_gives_it(
    backend: Backend, folder: Path
) -> None:
    assert ran(backend, folder, "kill -TERM $$").code == 128 + signal.SIGTERM


def test_a_program_that_is_not_there_is_127_and_says_so(backend: Backend, folder: Path) -> None:
    result = do(backend, folder, lambda box: box.run(Command(argv=("no-such-program", "x"))))
    assert result.code == 127
    assert "no-such-program" in result.output


def test_output_and_errors_come_in_order(backend: Backend, folder: Path) -> None:
    result = ran(backend, folder, "echo 1; echo 2 >&2; echo 3; echo 4 >&2")
    assert result.output == "1\n2\n3\n4\n"
    assert not result.truncated


def test_of_long_output_the_beginning_and_the_end_are_kept(backend: Backend, folder: Path) -> None:
    heard = bytearray()
    result = ran(backend, folder, "seq 1 100000", most_output=1000, on_output=heard.extend)
    assert len(result.output.encode()) <= 1000
    assert result.output.startswith("1\n2\n3\n")
    assert result.output.endswith("99999\n100000\n")
    assert result.truncated
    assert bytes(heard) == "".join(f"{n}\n" for n in range(1, 100001)).encode()


def test_standard_input_is_what_the_command_is_given(backend: Backend, folder: Path) -> None:
    data = bytes(range(256)) * 4000
    assert ran(backend, folder, "wc -c", stdin=data).output.strip() == str(len(data))
    assert ran(backend, folder, "wc -c").output.strip() == "0"


def test_arguments_arrive_as_they_are(backend: Backend, folder: Path) -> None:
    words = ("a b", "", "$HOME", "'\"\\", "é\n", "--", "-x")
    script = 'for word in "$@"; do printf "<%s>" "$word"; done'
    command = Command(argv=("sh", "-c", script, "sh", *words))
    result = do(backend, folder, lambda box: box.run(command))
    assert result.output == "".join(f"<{word}>" for word in words)


@pytest.mark.parametrize(
    "command",
    [
        Command(argv=("sh", "-c", "echo a\0b")),
        Command(argv=("true",), cwd="/app\0--bind\0/\0/mnt"),
        Command(argv=("true",), environment={"A": "x\0--bind\0/\0/mnt"}),
        Command(argv=("true", "x" * 3_000_000)),
    ],
    ids=["argument", "folder", "environment", "length"],
)
def test_a_command_that_cannot_be_is_its_author_s_fault_not_the_box_s(
    backend: Backend, folder: Path, command: Command
) -> None:
    result = do(backend, folder, lambda box: box.run(command))
    assert result.code == 126
    assert result.output


def test_a_command_starts_where_it_is_told(backend: Backend, folder: Path) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "here").touch()

    async def work(box: Box) -> list[str]:
        places: list[str | None] = [None, "/app/inner", "inner"]
        return [(await box.run(sh("ls; pwd", cwd=place))).output for place in places]

    seen = do(backend, folder, work)
    names = [text.split()[:-1] for text in seen]
    assert names == [["inner"], ["here"], ["here"]]
    if backend.shows_root:
        assert [text.split()[-1] for text in seen] == ["/app", "/app/inner", "/app/inner"]


def test_a_folder_that_is_not_there_to_start_in_is_a_fault_of_the_box(
    backend: Backend, folder: Path
) -> None:
    with pytest.raises(SandboxError):
        ran(backend, folder, "true", cwd="/app/nowhere")


def test_a_folder_that_a_command_took_away_is_no_fault_of_the_box(
    backend: Backend, folder: Path
) -> None:
    (folder / "inner").mkdir()

    async def work(box: Box) -> list[int | None]:
        commands = (sh('rm -rf "$PWD"', cwd="inner"), sh("true", cwd="inner"), sh("true"))
        return [(await box.run(command)).code for command in commands]

    assert do(backend, folder, work) == [0, 126, 0]


def test_the_environment_is_the_box_s_and_the_command_s_and_nothing_of_the_host(
    backend: Backend, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_API_KEY", "s3cr3t-of-the-host")
    spec = {"environment": {"COLOUR": "red", "SHAPE": "round"}}
    result = ran(backend, folder, "env", spec=spec, environment={"SHAPE": "square"})
    seen = dict(line.split("=", 1) for line in result.output.splitlines() if "=" in line)
    assert (seen["COLOUR"], seen["SHAPE"]) == ("red", "square")
    assert {"PATH", "HOME"} <= set(seen)
    assert "s3cr3t-of-the-host" not in result.output
    assert str(Path.home()) != seen["HOME"] or backend.shows_root
    allowed = {
        "PATH", "HOME", "USER", "LANG", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_", "COLOUR", "SHAPE",
        "BAKEOFF_ROOT", "BAKEOFF_BOX", "HOSTNAME", "TERM", "LOGNAME", "container",
    }  # fmt: skip
    assert set(seen) <= allowed


def test_commands_can_run_side_by_side_in_one_box(backend: Backend, folder: Path) -> None:
    async def work(box: Box) -> list[CommandResult]:
        async with asyncio.TaskGroup() as group:
            waiting = sh("while [ ! -e go ]; do sleep 0.02; done; echo met")
            tasks = [group.create_task(box.run(waiting)), group.create_task(box.run(sh(": > go")))]
        return [task.result() for task in tasks]

    first, second = do(backend, folder, work)
    assert (first.output, first.code, second.code) == ("met\n", 0, 0)


# ---- files


def test_files_put_in_the_folder_are_there_and_what_is_written_persists(
    backend: Backend, folder: Path
) -> None:
    (folder / "given.txt").write_text("given\n")

    async def work(box: Box) -> str:
        await box.run(sh("cat given.txt > copy.txt; mkdir -p a/b; echo deep > a/b/c"))
        seen = await box.run(sh("cat copy.txt a/b/c; rm given.txt"))
        await box.stop()
        return seen.output

    assert do(backend, folder, work) == "given\ndeep\n"
    assert (folder / "copy.txt").read_text() == "given\n"
    assert (folder / "a/b/c").read_text() == "deep\n"
    assert not (folder / "given.txt").exists()


def test_home_and_the_temp_folder_last_as_long_as_the_box(backend: Backend, folder: Path) -> None:
    async def work(box: Box) -> str:
        await box.run(sh('echo home > "$HOME/x"; echo tmp > "${TMPDIR:-/tmp}/y"'))
        return (await box.run(sh('cat "$HOME/x" "${TMPDIR:-/tmp}/y"'))).output

    assert do(backend, folder, work) == "home\ntmp\n"
    again = ran(backend, folder, 'ls "$HOME/x" "${TMPDIR:-/tmp}/y"')
    assert again.code != 0


def test_a_mount_is_shown_and_cannot_be_changed_unless_it_may(
    backend: Backend, folder: Path, tmp_path: Path
) -> None:
    if not backend.isolates:
        pytest.skip("a box that is only a folder has no mounts")
    shown, open_ = tmp_path / "shown", tmp_path / "open"
    for path in (shown, open_):
        path.mkdir()
        (path / "file").write_text("as it was\n")
    tmp_path.chmod(0o755)
    open_.chmod(0o777)
    spec = {
        "mounts": (
            Mount(source=str(shown), target="/opt/deep/shown"),
            Mount(source=str(shown / "file"), target="/opt/one-file"),
            Mount(source=str(open_), target="/opt/open", writable=True),
        )
    }
    script = (
        "cat /opt/deep/shown/file /opt/one-file;"
        "echo no > /opt/deep/shown/new; echo no >> /opt/deep/shown/file; rm -f /opt/deep/shown/file;"
        "echo no > /opt/one-file; echo yes > /opt/open/new"
    )
    result = ran(backend, folder, script, spec=spec)
    assert result.output.startswith("as it was\nas it was\n")
    assert [path.name for path in shown.iterdir()] == ["file"]
    assert (shown / "file").read_text() == "as it was\n"
    assert (open_ / "new").read_text() == "yes\n"


# ---- ends


def test_the_tree_of_a_command_is_ended_when_its_time_is_over(
    backend: Backend, folder: Path
) -> None:
    token = new_token()
    script = f"trap '' TERM INT HUP; echo on; sleep {token} & setsid sleep {token} & sleep {token}"

    async def work(box: Box) -> CommandResult:
        result = await box.run(sh(script, time_s=1.5))
        assert none_left(token)
        return result

    result = do(backend, folder, work)
    assert result.code is None
    assert result.stopped is not None
    assert "time" in result.stopped
    assert result.output == "on\n"
    assert result.elapsed_s < 30


def test_the_tree_of_a_command_is_ended_when_its_run_is_cancelled(
    backend: Backend, folder: Path
) -> None:
    token = new_token()

    async def work(box: Box) -> None:
        started = asyncio.Event()
        script = f"sleep {token} & setsid sleep {token} & echo up; sleep {token}"
        task = asyncio.create_task(box.run(sh(script, on_output=lambda _: started.set())))
        await asyncio.wait_for(started.wait(), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert none_left(token)
        assert (await box.run(sh("echo still here"))).output == "still here\n"

    do(backend, folder, work)


def test_a_stop_ends_every_process_also_one_that_left_its_session(
    backend: Backend, folder: Path
) -> None:
    token = new_token()

    async def work(box: Box) -> None:
        result = await box.run(sh(f"setsid sleep {token} >/dev/null 2>&1 </dev/null & echo up"))
        assert (result.code, result.output) == (0, "up\n")
        running = asyncio.create_task(box.run(sh(f"sleep {token}")))
        await asyncio.sleep(0.3)
        await box.stop()
        assert none_left(token, within_s=1)
        assert (await running).stopped is not None
        with pytest.raises(SandboxError, match="stopped"):
            await box.run(sh("true"))

    do(backend, folder, work)


def test_a_stopped_box_can_be_stopped_and_closed_again(backend: Backend, folder: Path) -> None:
    async def work(box: Box) -> None:
        await box.run(sh("true"))
        for end in (box.stop, box.stop, box.close, box.close):
            await end()

    do(backend, folder, work)


def test_a_closed_box_leaves_nothing_but_its_folder(backend: Backend, folder: Path) -> None:
    token = new_token()
    mine = process_identity.current()
    before = set(folders_with(mine))

    async def work(box: Box) -> None:
        await box.run(sh(f"setsid sleep {token} & touch left; mkdir d; chmod 000 d"))

    do(backend, folder, work)
    assert not processes_with(token)
    assert not cgroups_with(mine)
    assert set(folders_with(mine)) == before
    assert not mounts_with(folder.name)
    assert (folder / "left").exists()


def test_thirty_boxes_at_once_each_have_their_own_and_leave_nothing(backend: Backend) -> None:
    mine, token = process_identity.current(), new_token()
    before = set(folders_with(mine))
    folders = [scratch.new_folder("contract") for _ in range(30)]

    async def one(opener: Any, number: int) -> str:
        box = await opener.open(folders[number])
        try:
            await box.run(sh(f"echo {number} > mine; setsid sleep {token} >/dev/null 2>&1 &"))
            return (await box.run(sh("cat mine"))).output
        finally:
            await box.close()

    async def many() -> list[str]:
        async with backend.sandbox() as opener, asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(opener, number)) for number in range(30)]
        return [task.result() for task in tasks]

    try:
        assert asyncio.run(many()) == [f"{number}\n" for number in range(30)]
    finally:
        for path in folders:
            scratch.remove(path)
    assert not processes_with(token)
    assert not cgroups_with(mine)
    assert set(folders_with(mine)) == before


def test_what_a_killed_runner_left_is_reaped_at_the_next_start(backend: Backend) -> None:
    token = new_token()
    argv = [sys.executable, "-m", "support.box_runner", backend.name, "5", token]
    runner = subprocess.Popen(argv, cwd=TESTS, stdout=subprocess.PIPE, text=True)
    assert runner.stdout is not None
    with runner:
        mark = runner.stdout.readline().strip()
        assert mark
        runner.kill()
    assert folders_with(mark)

    async def next_start() -> list[str]:
        async with backend.sandbox() as opener:
            return list(await opener.sandbox.reap())

    lines = asyncio.run(next_start())
    assert lines
    assert none_left(token, within_s=1)
    assert not cgroups_with(mark)
    assert not folders_with(mark)
    assert not mounts_with(mark)


def test_reaping_leaves_the_living_alone(backend: Backend, folder: Path) -> None:
    async def work() -> str:
        async with backend.sandbox() as opener:
            box = await opener.open(folder)
            async with asyncio.TaskGroup() as group:
                script = "echo kept > file; while [ ! -e go ]; do sleep 0.02; done; cat file"
                running = group.create_task(box.run(sh(script)))
                await asyncio.sleep(0.2)
                await opener.sandbox.reap()
                await box.run(sh(": > go"))
            await box.close()
            return running.result().output

    assert asyncio.run(work()) == "kept\n"


# ---- the network


CONNECT = "import socket; socket.create_connection(('127.0.0.1', {port}), 3); print('connected')"


def test_an_isolating_box_has_no_network(backend: Backend, folder: Path) -> None:
    if not backend.isolates:
        pytest.skip("a box that is only a folder has the host's network")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = Command(argv=("python3", "-c", CONNECT.format(port=port)), time_s=60)
        result = do(backend, folder, lambda box: box.run(command))
        assert result.code == 1
        assert "connected" not in result.output
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()
    names = "import socket; print([n for _, n in socket.if_nameindex() if n != 'lo'])"
    seen = do(backend, folder, lambda box: box.run(Command(argv=("python3", "-c", names))))
    assert [name for name in eval(seen.output) if not name.startswith(("tunl", "sit", "ip6"))] == []


ASK = """
import os, sys, threading, urllib.request
url = sys.argv[1]
def ask(number):
    body = b"b" * 300000 + str(number).encode()
    answers[number] = urllib.request.urlopen(url, data=body, timeout=20).read().decode()
answers = {}
threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted(answers.values())[0], len(answers))
print(len(urllib.request.urlopen(url, timeout=20).read()))
try:
    os.wait()
except ChildProcessError:
    print("no strange children")
sys.exit(9)
"""


def test_the_gateway_is_reached_through_its_url_and_the_command_is_still_itself(
    backend: Backend, folder: Path, tmp_path: Path
) -> None:
    with UnixHttp(scratch_socket := scratch.new_folder("socket")) as server:

        async def work(box: Box) -> CommandResult:
            assert box.gateway_url is not None
            assert box.gateway_url.startswith("http://127.0.0.1:")
            command = Command(argv=("python3", "-c", ASK, box.gateway_url), time_s=60)
            async with asyncio.TaskGroup() as group:  # two relays at one address in one box
                tasks = [group.create_task(box.run(command)) for _ in range(2)]
            assert tasks[1].result().code == 9
            return tasks[0].result()

        result = do(backend, folder, work, gateway=server.address)
    scratch.remove(scratch_socket)
    first = f"heard 300001 {'b' * 19}0 8"
    assert result.output == f"{first}\n{64 * 65536}\nno strange children\n"
    assert result.code == 9


def test_with_a_gateway_commands_end_as_they_do_without(backend: Backend, folder: Path) -> None:
    token = new_token()
    with UnixHttp(at := scratch.new_folder("socket")) as server:

        async def work(box: Box) -> list[int | None]:
            missing = await box.run(Command(argv=("no-such-program",)))
            killed = await box.run(sh("kill -TERM $$"))
            broken_pipe = await box.run(sh("yes | head -n 1; exit 4"))
            late = await box.run(sh(f"setsid sleep {token} & sleep {token}", time_s=1.5))
            assert none_left(token)
            return [missing.code, killed.code, broken_pipe.code, late.code]

        codes = do(backend, folder, work, gateway=server.address)
    scratch.remove(at)
    assert codes == [127, 143, 4, None]


def test_without_a_gateway_there_is_no_url(backend: Backend, folder: Path) -> None:
    async def work(box: Box) -> str | None:
        return box.gateway_url

    assert do(backend, folder, work) is None


# ---- limits


HOG = "x = bytearray(); n = 0\nwhile True: x += b'x' * 10_000_000"


def test_a_box_out_of_memory_stops_its_command_and_says_so(backend: Backend, folder: Path) -> None:
    spec = {"limits": BoxLimits(memory_mb=200)}
    command = Command(argv=("python3", "-c", HOG), time_s=60)
    result = do(backend, folder, lambda box: box.run(command), **spec)
    assert result.code is None
    assert result.stopped is not None
    assert "memory" in result.stopped
    assert "200 MB" in result.stopped


def test_a_box_may_have_only_so_many_processes(backend: Backend, folder: Path) -> None:
    script = """
import os, time
made = 0
try:
    while made < 400:
        if os.fork() == 0:
            time.sleep(30)
        made += 1
except OSError:
    print("refused after", made)
"""
    spec = {"limits": BoxLimits(processes=40)}
    command = Command(argv=("python3", "-c", script), time_s=60)
    result = do(backend, folder, lambda box: box.run(command), **spec)
    assert "refused after" in result.output
    assert 20 <= int(result.output.split()[2]) <= 44


def test_a_box_that_fills_the_disk_is_stopped_and_says_so(backend: Backend, folder: Path) -> None:
    spec = {"limits": BoxLimits(disk_mb=60)}
    script = "i=0; while :; do i=$((i+1)); head -c 2000000 /dev/zero > f$i; sleep 0.02; done"
    result = ran(backend, folder, script, spec=spec)
    assert result.code is None
    assert result.stopped is not None
    assert "disk" in result.stopped
    taken = sum(path.stat().st_size for path in folder.iterdir())
    assert taken < 600_000_000


def test_one_file_cannot_grow_beyond_the_disk_of_the_box(backend: Backend, folder: Path) -> None:
    spec = {"limits": BoxLimits(disk_mb=20)}
    ran(backend, folder, "head -c 300000000 /dev/zero > big", spec=spec)
    assert (folder / "big").stat().st_size <= 20 << 20


def test_a_box_gets_no_more_of_the_processor_than_it_may(backend: Backend, folder: Path) -> None:
    spin = (
        "import resource, time\nend = time.monotonic() + 2\n"
        "while time.monotonic() < end: pass\n"
        "used = resource.getrusage(resource.RUSAGE_SELF); print(used.ru_utime + used.ru_stime)"
    )
    spec = {"limits": BoxLimits(cpus=0.25)}
    command = Command(argv=("python3", "-c", spin), time_s=60)
    result = do(backend, folder, lambda box: box.run(command), **spec)
    assert float(result.output) < 2 * 0.25 * 1.6
