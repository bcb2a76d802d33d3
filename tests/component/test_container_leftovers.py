"""Many containers at once, and none of them left: closed, cancelled, or of a run that was killed."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bakeoff.core.errors import SandboxError
from bakeoff.sandboxes.containers.sandbox import Container
from support.cli import not_outliving
from support.container_boxes import opened, sandbox, shell, spec
from support.container_engines import BUSYBOX, Engine, engine

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


def test_a_closed_box_can_be_closed_again(containers: Container, tmp_path: Path) -> None:
    async def scenario() -> None:
        box = await containers.open(spec(tmp_path))
        await box.stop()
        await box.stop()
        await box.close()
        await box.close()

    asyncio.run(scenario())
