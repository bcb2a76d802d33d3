"""Child processes that end in time, with all their children."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from bakeoff._lib.process import Child, ProcessResult, Program, run

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
Runs = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=LOOPS)
def loop_run(request: pytest.FixtureRequest) -> Runs:
    def go(work: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            return runner.run(work)

    return go


def shell(script: str, **more: Any) -> Program:
    return Program(argv=("sh", "-c", script), environment={"PATH": os.environ["PATH"]}, **more)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int) -> bool:
    for _ in range(200):
        if not alive(pid):
            return True
        time.sleep(0.01)
    return False


def test_the_exit_code_and_the_output_come_back(loop_run: Runs) -> None:
    result = loop_run(run(shell("echo out; echo err >&2; echo more; exit 7")))
    assert (result.code, result.output) == (7, "out\nerr\nmore\n")
    assert result.stopped is None
    assert not result.truncated


def test_a_program_that_a_signal_ended_has_the_code_a_shell_gives_it(loop_run: Runs) -> None:
    assert loop_run(run(shell("kill -TERM $$"))).code == 128 + signal.SIGTERM


def test_standard_input_of_any_size_is_read_without_a_pipe_to_feed(loop_run: Runs) -> None:
    data = b"x" * 3_000_000
    assert loop_run(run(shell("wc -c", stdin=data))).output.strip() == "3000000"
    assert loop_run(run(shell("true", stdin=data))).code == 0
    assert loop_run(run(shell("wc -c"))).output.strip() == "0"


def test_a_program_is_ended_when_its_time_is_over(loop_run: Runs) -> None:
    result = loop_run(run(shell("trap '' TERM INT HUP; echo on; sleep 60"), time_s=0.5))
    assert result.code is None
    assert result.stopped == "its time was over after 0.5 s"
    assert result.output == "on\n"
    assert result.elapsed_s < 20


def test_a_grandchild_that_holds_the_pipe_holds_nobody_up(loop_run: Runs, tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    # it goes on only when the grandchild is in a session of its own
    start = f"setsid sh -c 'echo $$ > {pids}; exec sleep 60'"
    script = f"{start} & while [ ! -s {pids} ]; do sleep 0.01; done; echo done"
    result = loop_run(run(shell(script), time_s=50))
    assert (result.code, result.output) == (0, "done\n")
    assert result.elapsed_s < 20
    os.kill(int(pids.read_text()), signal.SIGKILL)


def test_children_left_behind_are_ended_unless_they_are_to_be_kept(
    loop_run: Runs, tmp_path: Path
) -> None:
    pids = tmp_path / "pid"
    script = f"sleep 60 >/dev/null 2>&1 & echo $! > {pids}"
    loop_run(run(shell(script)))
    assert gone(int(pids.read_text()))
    loop_run(run(shell(script, keeps_children=True)))
    kept = int(pids.read_text())
    assert alive(kept)
    os.kill(kept, signal.SIGKILL)


def test_children_are_ended_with_a_program_that_was_stopped(loop_run: Runs, tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {pids}; wait"
    loop_run(run(shell(script, keeps_children=True), time_s=0.5))
    assert gone(int(pids.read_text()))


def test_a_cancelled_wait_kills_the_tree_before_it_goes_on(loop_run: Runs, tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    async def cancel() -> list[int]:
        script = f"sleep 60 & echo $! > {pids}; echo $$ >> {pids}; trap '' TERM; wait"
        task = asyncio.create_task(run(shell(script)))
        while not pids.exists() or pids.read_text().count("\n") < 2:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        found = [int(pid) for pid in pids.read_text().split()]
        assert not alive(found[1])
        return found

    assert all(gone(pid) for pid in loop_run(cancel()))


def test_two_cancellations_leave_nothing_either(loop_run: Runs, tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    async def cancel() -> int:
        task = asyncio.create_task(run(shell(f"setsid sleep 2 & echo $$ > {pids}; exec sleep 60")))
        while not pids.exists() or not pids.read_text():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return int(pids.read_text())

    assert not alive(loop_run(cancel()))


def test_output_is_heard_as_it_comes_and_kept_within_its_room(loop_run: Runs) -> None:
    heard = bytearray()
    result = loop_run(run(shell("seq 1 200000", on_output=heard.extend, most_output=2000)))
    assert bytes(heard) == "".join(f"{n}\n" for n in range(1, 200001)).encode()
    assert len(result.output) <= 2000
    assert result.output.startswith("1\n2\n")
    assert result.output.endswith("200000\n")
    assert result.truncated


def test_a_flood_of_output_does_not_keep_the_loop_from_other_work(loop_run: Runs) -> None:
    async def flood() -> tuple[int, ProcessResult]:
        turns = 0
        task = asyncio.create_task(run(shell("exec yes"), time_s=1.0))
        while not task.done():
            await asyncio.sleep(0.01)
            turns += 1
        return turns, await task

    turns, result = loop_run(flood())
    assert turns > 10
    assert result.stopped is not None
    assert result.output.startswith("y\ny\n")


def test_a_long_output_is_whole_however_fast_it_came(loop_run: Runs) -> None:
    heard = bytearray()
    loop_run(run(shell("head -c 40000000 /dev/zero", on_output=heard.extend)))
    assert len(heard) == 40_000_000


def test_an_error_of_the_listener_ends_the_program_and_is_raised(loop_run: Runs) -> None:
    def deaf(_: bytes) -> None:
        raise ValueError("deaf")

    with pytest.raises(ValueError, match="deaf"):
        loop_run(run(shell("echo x; sleep 60", on_output=deaf)))


def test_the_first_reason_to_kill_is_the_one_that_is_told(loop_run: Runs) -> None:
    async def kill() -> ProcessResult:
        child = Child(shell("sleep 60"))
        child.kill("the disk")
        child.kill("something else")
        return await child.end(time_s=30)

    assert loop_run(kill()).stopped == "the disk"


def test_nothing_is_inherited_but_what_is_named(
    loop_run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "s3cr3t")
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    try:
        result = loop_run(run(shell("env; ls /proc/self/fd")))
    finally:
        os.close(reading)
        os.close(writing)
    assert "s3cr3t" not in result.output
    assert result.output.split()[-4:] == ["0", "1", "2", "3"]  # the last is that of ls itself


def test_a_hundred_programs_at_once_leave_no_open_file(loop_run: Runs) -> None:
    async def counted() -> None:
        await run(shell("true"))
        before = len(list(Path("/proc/self/fd").iterdir()))
        async with asyncio.TaskGroup() as group:
            for _ in range(100):
                group.create_task(run(shell("echo hi")))
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    loop_run(counted())
