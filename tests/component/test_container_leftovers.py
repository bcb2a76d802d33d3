"""Many containers at once, and none of them left: closed, cancelled, or of a run that was killed."""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bakeoff._lib import scratch
from bakeoff.core.errors import SandboxError
from bakeoff.sandboxes.containers.calls import ContainerState
from bakeoff.sandboxes.containers.ending import kill_first_process
from bakeoff.sandboxes.containers.sandbox import Container
from support.cli import not_outliving, until
from support.container_boxes import opened, sandbox, shell, spec
from support.container_engines import BUSYBOX, Engine, engine
from support.sandboxes import processes_with

_RUNNER = """
import asyncio, os, sys
from pathlib import Path
from bakeoff.core.sandbox import BoxSpec, Command
from bakeoff.sandboxes.containers.sandbox import Container

async def main():
    containers = Container(name=sys.argv[1], default_image=sys.argv[2])
    boxes = [await containers.open(BoxSpec(label="x", folder=Path(sys.argv[3]))) for _ in range(2)]
    await boxes[0].stop()
    print("open", flush=True)
    await boxes[1].run(Command(argv=("sleep", "1000")))

asyncio.run(main())
"""


@pytest.fixture(params=["docker", "podman"])
def where(request: pytest.FixtureRequest) -> Engine:
    found = engine(request.param)
    found.with_busybox()
    return found


@pytest.fixture
def containers(where: Engine) -> Container:
    return sandbox(where)


def test_thirty_boxes_at_once_each_do_their_work_and_leave_nothing(
    containers: Container, where: Engine, tmp_path: Path
) -> None:
    before = set(where.containers())

    async def one(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        async with opened(containers, spec(folder)) as box:
            ran = await shell(box, f"echo {number} > mine; sleep 0.2; cat mine")
            assert ran.output == f"{number}\n"

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(30):
                group.create_task(one(number))

    asyncio.run(scenario())
    assert set(where.containers()) == before
    assert [(tmp_path / str(n) / "mine").read_text() for n in range(30)] == [
        f"{n}\n" for n in range(30)
    ]


def test_what_a_killed_run_left_is_taken_away_and_what_lives_is_not(
    containers: Container, where: Engine, tmp_path: Path
) -> None:
    asyncio.run(containers.reap())  # what killed runs of other tests left
    runner = subprocess.Popen(
        [sys.executable, "-c", _RUNNER, where.name, BUSYBOX, str(tmp_path)],
        env={**os.environ, **where.environment},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with not_outliving(runner):
        assert runner.stdout is not None
        assert runner.stdout.readline() == b"open\n"
        runner.kill()

    async def scenario() -> None:
        async with opened(containers, spec(tmp_path)) as box:
            left = set(where.containers())
            lines = await containers.reap()
            assert len([line for line in lines if line.startswith("container ")]) == 2
            kept = set(where.containers())
            assert len(left - kept) == 2
            assert all(any(name in line for line in lines) for name in left - kept)
            assert (await shell(box, "echo alive")).output == "alive\n"
            assert not [line for line in await containers.reap() if "container " in line]

    asyncio.run(scenario())


def test_a_box_that_is_cancelled_while_it_opens_leaves_nothing(
    containers: Container, where: Engine, tmp_path: Path
) -> None:
    before = set(where.containers())

    async def scenario() -> None:
        for delay in (0.0, 0.02, 0.1, 0.2, 0.3):
            opening = asyncio.create_task(containers.open(spec(tmp_path)))
            await asyncio.sleep(delay)
            opening.cancel()
            try:
                await (await opening).close()
            except asyncio.CancelledError:
                continue
        await containers.wait_removed()

    asyncio.run(scenario())
    assert set(where.containers()) == before


def test_a_box_that_cannot_open_says_why_and_leaves_nothing(
    containers: Container, where: Engine, tmp_path: Path
) -> None:
    before = set(where.containers())
    with pytest.raises(SandboxError, match=f"{where.name} run failed"):
        asyncio.run(containers.open(spec(tmp_path / "missing")))
    with pytest.raises(SandboxError, match=f"{where.name} run failed"):
        asyncio.run(containers.open(spec(tmp_path, image="no-such-image")))
    assert set(where.containers()) == before


def test_a_closed_box_can_be_closed_again(
    containers: Container, where: Engine, tmp_path: Path
) -> None:
    before = set(where.containers())

    async def scenario() -> None:
        box = await containers.open(spec(tmp_path))
        await box.stop()
        await box.stop()
        await box.close()
        await box.close()
        await containers.wait_removed()

    asyncio.run(scenario())
    assert set(where.containers()) == before


@pytest.mark.parametrize("use_socket", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_a_closed_box_has_no_process_left_and_its_container_is_gone_before_the_sandbox_closes(
    where: Engine, tmp_path: Path, *, use_socket: bool, whole: bool
) -> None:
    of = spec(None if whole else tmp_path, image=where.with_busybox(), workdir="/")
    mark = f"86{secrets.randbelow(10**6):06}"

    async def scenario() -> None:
        before = set(where.containers())
        containers = replace(sandbox(where), use_socket=use_socket)
        boxes = [await containers.open(of) for _ in range(3)]
        for box in boxes:
            assert (await shell(box, f"setsid sleep {mark} & setsid sleep {mark} &")).code == 0
        assert len(processes_with(f"sleep {mark}")) == 6
        for box in boxes:
            await box.close()
        assert processes_with(f"sleep {mark}") == []
        await containers.close()
        assert set(where.containers()) == before

    asyncio.run(scenario())


def test_what_watched_the_commands_of_a_box_ends_with_it(
    containers: Container, where: Engine, tmp_path: Path
) -> None:
    async def scenario() -> str:
        async with opened(containers, spec(tmp_path)) as box:
            for number in range(3):
                assert (await shell(box, f"exit {number}")).code == number
            return box.name  # type: ignore[attr-defined]

    name = asyncio.run(scenario())
    # the monitor of the container itself sees its end, and is gone soon
    until(lambda: not processes_with(name), timeout_s=60)


def test_a_process_that_is_not_the_containers_is_not_killed() -> None:
    async def scenario(pid: int) -> bool:
        state = ContainerState(id="0123abcd", running=True, pid=str(pid), layer="")
        return await kill_first_process(state)

    with subprocess.Popen(["sleep", "600"]) as another:
        try:
            assert not asyncio.run(scenario(another.pid))
            assert another.poll() is None
        finally:
            another.kill()


_CLOSER = """
import asyncio, os, signal, sys
from bakeoff.core.sandbox import BoxSpec
from bakeoff.sandboxes.containers.sandbox import Container
from pathlib import Path

async def main():
    containers = Container(name=sys.argv[1], default_image=sys.argv[2])
    boxes = [await containers.open(BoxSpec(label="x", folder=Path(sys.argv[3]))) for _ in range(3)]
    for box in boxes:
        await box.close()
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def test_what_was_to_be_removed_when_a_run_was_killed_is_taken_away(
    containers: Container, where: Engine, tmp_path: Path
) -> None:
    before = set(where.containers())
    command = [sys.executable, "-c", _CLOSER, where.name, BUSYBOX, str(tmp_path)]
    runner = subprocess.Popen(command, env={**os.environ, **where.environment})
    with not_outliving(runner):
        assert runner.wait(120) == -signal.SIGKILL
    asyncio.run(containers.reap())
    assert set(where.containers()) <= before
    assert scratch.orphans() == []
