"""Boxes on Modal, against a stand-in for the service (see support/modal_stand_in.py).

What the live service does has not been tried; the last tests hold our calls against the real SDK.
"""

import asyncio
import importlib.util
import inspect
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bakeoff._lib import process_identity, scratch
from bakeoff.core.errors import SandboxError, UsageError
from bakeoff.core.sandbox import BoxSpec, Command, CommandResult, GatewayAddress, Mount
from bakeoff.core.workspace import BoxLimits, Image, Tree
from bakeoff.sandboxes.modal import sandbox as modal_files
from bakeoff.sandboxes.modal.sandbox import Modal
from support.modal_stand_in import StandIn
from support.parts import require


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder where those of workspaces lie: on one file system with what a box brings back."""
    folder = scratch.new_folder("modal-test")
    yield folder
    scratch.remove(folder)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    from shutil import which

    require("bubblewrap", which("bwrap"), "sh tests/setup_system.sh")
    standing_in = StandIn()
    monkeypatch.setitem(sys.modules, "modal", standing_in)
    yield standing_in
    standing_in.close()


@asynccontextmanager
async def opened(spec: BoxSpec) -> Any:
    box = await Modal().open(spec)
    try:
        yield box
    finally:
        await box.close()


def spec(folder: Path, **more: Any) -> BoxSpec:
    return BoxSpec(label="run 1: trial/2", folder=folder, **more)


async def shell(box: Any, script: str, **more: Any) -> CommandResult:
    ran: CommandResult = await box.run(
        replace(Command(argv=("sh", "-c", script), time_s=60), **more)
    )
    return ran


def test_the_folder_goes_there_and_comes_back_as_it_is_there(
    service: StandIn, tmp_path: Path
) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "removed").write_text("old")
    (tmp_path / "sub").mkdir()

    async def scenario() -> None:
        async with opened(spec(tmp_path)) as box:
            ran = await shell(
                box,
                "cat ../kept; rm ../removed; echo new > made; chmod 750 made; ln -s /etc/passwd link;"
                "ln made hard; mkfifo fifo; mkdir -p deep/er; echo x > deep/er/file",
                cwd="sub",
            )
            assert (ran.code, ran.output) == (0, "kept")
            assert (tmp_path / "removed").exists()  # not yet: it works on a copy
            await box.stop()

    asyncio.run(scenario())
    sub = tmp_path / "sub"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "sub"]
    assert (sub / "made").read_text() == "new\n"
    assert (sub / "made").stat().st_mode & 0o777 == 0o750
    assert (sub / "made").stat().st_ino == (sub / "hard").stat().st_ino
    assert (sub / "link").readlink() == Path("/etc/passwd")
    assert (sub / "deep/er/file").read_text() == "x\n"
    assert not (sub / "fifo").exists()
    assert service.boxes[0].ended


def test_a_command_has_its_environment_input_code_and_output(
    service: StandIn, tmp_path: Path
) -> None:
    heard: list[bytes] = []
    data = bytes(range(256)) * 10_000

    async def scenario() -> None:
        async with opened(spec(tmp_path, environment={"A": "one\ntwo"})) as box:
            ran = await shell(
                box,
                'echo "$A $B"; echo err >&2; wc -c; exit 7',
                environment={"B": "b"},
                stdin=data,
                on_output=heard.append,
            )
            assert (ran.code, ran.stopped) == (7, None)
            assert ran.output == f"one\ntwo b\nerr\n{len(data)}\n"
            assert (await box.run(Command(argv=("no-such-program",)))).code == 127
            with pytest.raises(SandboxError, match="nowhere"):
                await shell(box, "true", cwd="/nowhere")
            with pytest.raises(SandboxError, match="whole-box"):
                await box.change()
        assert box.gateway_url is None

    asyncio.run(scenario())
    assert b"".join(heard).startswith(b"one\ntwo b\nerr\n")


def test_a_command_out_of_time_or_cancelled_is_killed_with_its_children(
    service: StandIn, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with opened(spec(tmp_path)) as box:
            script = "(while :; do date > beat; sleep 0.1; done) & setsid sleep 600 & sleep 600"
            ran = await shell(box, script, time_s=1)
            assert ran.code is None
            assert ran.stopped == "its time was over after 1 s"
            assert (await shell(box, "rm -f beat; sleep 0.5; ls beat")).code != 0

            running = asyncio.create_task(shell(box, script, time_s=None))
            async with asyncio.timeout(60):
                while (await shell(box, "ls beat")).code != 0:
                    await asyncio.sleep(0.05)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert (await shell(box, "rm -f beat; sleep 0.5; ls beat")).code != 0

    asyncio.run(scenario())


def test_a_stop_ends_what_runs_and_nothing_runs_after_it(service: StandIn, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(spec(tmp_path)) as box:
            running = asyncio.create_task(shell(box, "echo x > up; sleep 600", time_s=None))
            async with asyncio.timeout(60):
                while (await shell(box, "ls up")).code != 0:
                    await asyncio.sleep(0.05)
            await box.stop()
            await box.stop()
            assert (await running).stopped == "the box was stopped"
            with pytest.raises(SandboxError, match="stopped"):
                await shell(box, "true")

    asyncio.run(scenario())
    assert (tmp_path / "up").read_text() == "x\n"


def test_mounts_are_copied_and_what_cannot_be_had_there_is_refused(
    service: StandIn, tmp_path: Path
) -> None:
    shown, folder = tmp_path / "shown", tmp_path / "folder"
    shown.mkdir()
    folder.mkdir()
    (shown / "test.sh").write_text("hidden test")

    async def scenario() -> None:
        mount = Mount(source=str(shown), target="/tests")
        async with opened(spec(folder, mounts=(mount,))) as box:
            assert (await shell(box, "cat /tests/test.sh")).output == "hidden test"
        gateway = GatewayAddress(socket="/s", url="http://127.0.0.1:1")
        with pytest.raises(UsageError, match="--sandbox docker"):
            await Modal().open(spec(folder, gateway=gateway))
        with pytest.raises(UsageError, match="written back"):
            await Modal().open(spec(folder, mounts=(replace(mount, writable=True),)))
        with pytest.raises(UsageError, match="whole-box"):
            await Modal().open(replace(spec(folder), folder=None))

    asyncio.run(scenario())


def test_the_box_that_is_asked_for_has_the_limits_and_marks_of_its_spec(
    service: StandIn, tmp_path: Path
) -> None:
    limits = BoxLimits(memory_mb=512, cpus=1.5, disk_mb=1)

    async def scenario() -> None:
        async with opened(spec(tmp_path, limits=limits)) as box:
            too_big = await shell(box, "head -c 5000000 /dev/zero > big")
            assert too_big.code != 0
        async with opened(spec(tmp_path, limits=BoxLimits(memory_mb=None), network=True)):
            pass

    asyncio.run(scenario())
    first, second = service.calls.named("Sandbox.create")
    assert (first["memory"], first["cpu"]) == ((512, 512), (1.5, 1.5))
    assert first["block_network"]
    assert not second["block_network"]
    assert second["memory"] is None
    assert first["tags"]["owner"] == process_identity.current()
    assert first["tags"]["label"] == "run-1-trial-2"


def test_more_than_its_disk_does_not_come_back(service: StandIn, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(spec(tmp_path, limits=BoxLimits(disk_mb=2))) as box:
            await shell(box, "for n in 1 2 3; do head -c 1000000 /dev/zero > $n; done")
            with pytest.raises(SandboxError, match="more than its 2 MB"):
                await box.stop()

    asyncio.run(scenario())
    assert list(tmp_path.iterdir()) == []
    assert service.boxes[0].ended


def test_images_are_built_once_and_a_failure_is_the_users_to_fix(
    service: StandIn, tmp_path: Path
) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    recipe = Image(context=Tree(path=str(tmp_path), digest="d"))

    async def scenario() -> None:
        sandbox = Modal(default_image="debian:12")
        assert await sandbox.image(None) == "debian:12"
        assert await sandbox.image(None) == "debian:12"
        assert (await sandbox.image(recipe)).startswith("bakeoff-")
        service.build_fails = "step 1 did not work"
        with pytest.raises(UsageError, match="step 1 did not work"):
            await sandbox.image(Image(name="other"))
        missing = replace(recipe, dockerfile="Missing")
        with pytest.raises(UsageError, match="Missing"):
            await sandbox.image(missing)

    asyncio.run(scenario())
    assert len(service.calls.named("Image.build")) == 3
    assert service.calls.named("Image.from_dockerfile")[0]["context_dir"] == str(tmp_path)


def test_boxes_of_dead_runs_are_ended_and_those_of_the_living_are_not(
    service: StandIn, tmp_path: Path
) -> None:
    script = "from bakeoff._lib import process_identity; print(process_identity.current())"
    gone = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    mark = gone.stdout.strip()

    async def scenario() -> None:
        tags = {"bakeoff": "box", "owner": mark}
        left = await service.Sandbox.create.aio("sleep", tags=tags, block_network=True)
        async with opened(spec(tmp_path)) as box:
            assert await Modal().reap() == [f"a box on Modal of {mark}"]
            assert left.ended
            assert (await shell(box, "echo alive")).output == "alive\n"

    asyncio.run(scenario())


def test_a_box_whose_files_cannot_be_sent_is_not_left_running(
    service: StandIn, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(Modal().open(spec(tmp_path / "missing")))
    assert [box.ended for box in service.boxes] == [True]


# --- what comes back was made by an agent -----------------------------------------------------------


def packed(path: Path, *members: tuple[str, bytes, str]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            member.size = 4 if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(b"evil") if member.size else None)
    return path


@pytest.mark.parametrize(
    "members",
    [
        [("../out", tarfile.REGTYPE, "")],
        [("/out", tarfile.REGTYPE, "")],
        [("a/../../out", tarfile.REGTYPE, "")],
        [("door", tarfile.SYMTYPE, "{outside}"), ("door/out", tarfile.SYMTYPE, "x")],
        [("out", tarfile.LNKTYPE, "../secret")],
    ],
    ids=["parent", "absolute", "parent-inside", "link-through-a-link", "hard-link-to-outside"],
)
def test_nothing_that_comes_back_can_be_put_elsewhere(
    tmp_path: Path, members: list[tuple[str, bytes, str]]
) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    named = [(name, kind, link.format(outside=outside)) for name, kind, link in members]
    with pytest.raises(SandboxError):
        modal_files.unpack(packed(tmp_path / "tar", *named), folder, max_mb=10)
    assert list(outside.iterdir()) == []
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_named_through_a_link_is_put_into_the_folder(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    folder.mkdir()
    members = [("door", tarfile.SYMTYPE, str(outside)), ("door/file", tarfile.REGTYPE, "")]
    with pytest.raises(SandboxError, match="door"):
        modal_files.unpack(packed(tmp_path / "tar", *members), folder, max_mb=10)
    assert list(outside.iterdir()) == []


def test_what_is_no_archive_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "tar").write_bytes(b"no archive" * 1000)
    with pytest.raises(SandboxError, match="cannot be unpacked"):
        modal_files.unpack(tmp_path / "tar", tmp_path, max_mb=10)


# --- the real SDK -----------------------------------------------------------------------------------


def test_every_call_we_make_fits_the_real_sdk(tmp_path: Path) -> None:
    require("Modal's SDK", importlib.util.find_spec("modal"), "uv sync --extra modal")
    standing_in = StandIn()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "modal", standing_in)
        asyncio.run(_every_call(tmp_path))
    standing_in.close()
    called = {name for name, _, _ in standing_in.calls}
    assert len(called) == 15
    for name, args, named in standing_in.calls:
        inspect.signature(_real(name)).bind(*_with_self(name, args), **named)


async def _every_call(folder: Path) -> None:
    (folder / "Dockerfile").write_text("FROM scratch\n")
    sandbox = Modal()
    recipe = Image(context=Tree(path=str(folder), digest="d"))
    box = await sandbox.open(spec(folder, image=await sandbox.image(recipe)))
    await shell(box, "cat", stdin=b"x")
    await sandbox.image(None)
    await sandbox.reap()
    await box.stop()


def _real(name: str) -> Any:
    """Return a function of the real SDK; one that can be awaited must have `.aio`."""
    import modal

    assert modal.Sandbox.exec is not None  # reading it imports the classes that a sandbox hands out
    owner_name, _, function = name.partition(".")
    modules = [module for at, module in list(sys.modules.items()) if at.split(".")[0] == "modal"]
    found = next(getattr(module, owner_name) for module in modules if hasattr(module, owner_name))
    real = getattr(found, function)
    is_blocking = function in {"write", "write_eof", "from_registry", "from_dockerfile"}
    assert is_blocking or hasattr(real, "aio"), name
    return real


def _with_self(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    is_of_class = name in {
        "App.lookup", "Sandbox.create", "Sandbox.list", "Image.from_registry", "Image.from_dockerfile"
    }  # fmt: skip
    return args if is_of_class else (object(), *args)


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("modal") is not None:
        monkeypatch.setenv("MODAL_TOKEN_ID", "")
        monkeypatch.setenv("MODAL_CONFIG_PATH", "/nonexistent")
    assert "modal setup" in str(Modal.available())
