"""An engine that is asked at its socket does what its client does, and a broken one is a fault."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bakeoff._lib import scratch
from bakeoff.core.errors import SandboxError
from bakeoff.core.sandbox import Box, BoxSpec, Command, Mount
from bakeoff.core.workspace import IN_IMAGE, BoxLimits
from bakeoff.sandboxes.containers import change
from bakeoff.sandboxes.containers.api import ApiCalls, PodmanApiCalls
from bakeoff.sandboxes.containers.calls import ClientCalls, Exec
from bakeoff.sandboxes.containers.engine import Engine as Client
from bakeoff.sandboxes.containers.engine_socket import docker_socket
from bakeoff.sandboxes.containers.sandbox import Container
from support.cli import not_outliving, until
from support.container_boxes import opened, sandbox, shell, spec
from support.container_engines import Engine, engine
from support.sandboxes import processes_with

LIMITS = BoxLimits(memory_mb=256, processes=64, disk_mb=None, cpus=0.5)
_LIMIT_S = 60


@pytest.fixture(params=["docker", "podman"])
def where(request: pytest.FixtureRequest) -> Engine:
    found = engine(request.param)
    found.with_busybox()
    return found


@pytest.fixture
def docker() -> Engine:
    found = engine("docker")
    found.with_busybox()
    return found


def whole(image: str) -> BoxSpec:
    return BoxSpec(label="whole", folder=None, workdir="/", image=image, limits=LIMITS)


def client_of(where: Engine) -> Client:
    return Client(where.name, where.environment)


# --- the same container ---------------------------------------------------------------------------

_PER_CONTAINER = ("ContainerIDFile", "Hostname", "ConsoleSize")


async def _settings(where: Engine, containers: Container, of: BoxSpec) -> dict[str, Any]:
    async with opened(containers, of) as box:
        known = json.loads(where.call("inspect", box.name))[0]  # type: ignore[attr-defined]
    settings = {**known["Config"], **known["HostConfig"], "Path": known["Path"]}
    settings["Args"] = known["Args"]
    settings["Mounted"] = sorted(json.dumps(mount, sort_keys=True) for mount in known["Mounts"])
    # unset is empty or unset, by who says so
    return {key: value or None for key, value in settings.items() if key not in _PER_CONTAINER}


@pytest.mark.parametrize("kind", ["folder", "whole", "network"])
def test_a_container_made_at_the_socket_is_as_closed_as_one_made_by_the_client(
    docker: Engine, tmp_path: Path, kind: str
) -> None:
    mounts = (Mount(source=str(tmp_path), target="/shown"),)
    specs = {
        "folder": spec(tmp_path, limits=LIMITS, mounts=mounts),
        "whole": replace(whole(docker.with_busybox()), mounts=mounts),
        "network": spec(tmp_path, limits=LIMITS, network=True),
    }
    at_socket, by_client = sandbox(docker), replace(sandbox(docker), use_socket=False)

    async def scenario() -> None:
        ours = await _settings(docker, at_socket, specs[kind])
        theirs = await _settings(docker, by_client, specs[kind])
        assert isinstance(await at_socket._engine_calls(), ApiCalls)
        assert isinstance(await by_client._engine_calls(), ClientCalls)
        for key in ("MemorySwappiness", "OomKillDisable"):  # the client says what is so anyway
            ours.pop(key, None)
            theirs.pop(key, None)
        assert ours == theirs

    asyncio.run(scenario())


# --- the same change ------------------------------------------------------------------------------

WORK = r"""
set -e
mkdir -p /work/deep && echo new > /work/deep/file && chown 1234:4321 /work/deep
ln -s /etc/passwd /work/link; ln /work/deep/file /work/hard; mkfifo /work/fifo
echo changed >> /etc/hostname.extra; chmod 600 /etc/hostname.extra
ln -s /bin /etc/to-a-folder; ln -s nowhere/at/all /etc/dangling; chown -h 7:8 /etc/dangling
rm -r /home; echo 'now a file' > /home
chmod 700 /bin; mkdir -p /tmp/left && echo left > /tmp/left/out
printf odd > "/etc/a name with 'quotes', ümlaut, ?&#%20 + and
a line break"
mkdir /etc/..dots; echo dots > /etc/..dots/.hidden
"""


def _members(packed: bytes) -> dict[str, tuple[Any, ...]]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        return {
            member.name.strip("/"): (
                member.type,
                member.mode & 0o7777,
                (member.uid, member.gid),
                int(member.mtime),
                member.linkname,
                IN_IMAGE in member.pax_headers,
                tar.extractfile(member).read() if member.isreg() else b"",
            )
            for member in tar
        }


async def _both_ways(
    where: Engine, box: Any, containers: Container
) -> tuple[dict[str, Any], dict[str, Any], tuple[tuple[str, ...], tuple[str, ...]]]:
    calls = await containers._engine_calls()
    assert isinstance(calls, ApiCalls)
    ours, gone = await calls.change(box.name, own=(), max_mb=8)
    if (
        where.name == "docker"
    ):  # as root it is read from the layer, by others asked for by its paths
        differences = change.differences(await calls._changes(box.name), own=())
        fetched, _ = await calls.fetch(box.name, differences, max_mb=8)
        assert _members(fetched) == _members(ours)
    theirs, gone_by_client = await ClientCalls(client_of(where)).change(box.name, own=(), max_mb=8)
    return _members(ours), _members(theirs), (gone, gone_by_client)


def test_a_change_that_is_fetched_by_its_paths_is_that_of_a_whole_export(where: Engine) -> None:
    containers = sandbox(where)

    async def scenario() -> None:
        async with opened(containers, whole(where.with_busybox())) as box:
            did = await shell(box, WORK)
            assert did.code == 0, did.output
            await box.stop()
            ours, theirs, (gone, gone_by_client) = await _both_ways(where, box, containers)
        assert ours == theirs
        assert gone == gone_by_client
        assert ours["work/deep"][2] == (1234, 4321)
        assert ours["work/hard"][4] == "work/deep/file"
        assert ours["etc/dangling"][2] == (7, 8)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "work",
    [
        pytest.param("for n in $(seq 40); do echo $n > /etc/file$n; done", id="many-paths"),
        pytest.param(r"echo x > /etc/$(printf 'no\377utf8')", id="a-name-that-is-no-utf-8"),
    ],
)
def test_what_cannot_be_fetched_by_its_paths_is_exported(where: Engine, work: str) -> None:
    containers = sandbox(where)

    async def scenario() -> None:
        async with opened(containers, whole(where.with_busybox())) as box:
            assert (await shell(box, work)).code == 0
            await box.stop()
            ours, theirs, _ = await _both_ways(where, box, containers)
        assert ours == theirs
        assert len(ours) >= 2

    asyncio.run(scenario())


def test_a_change_too_large_for_its_limit_is_refused_while_it_is_fetched(where: Engine) -> None:
    containers = replace(sandbox(where), most_change_mb=1)

    async def scenario() -> None:
        async with opened(containers, whole(where.with_busybox())) as box:
            await shell(box, "head -c 3000000 /dev/urandom > /noise")
            await box.stop()
            with pytest.raises(SandboxError, match=r"over 1 MB.*most_change_mb"):
                await box.change()

    asyncio.run(scenario())


def test_paths_are_fetched_once_and_folders_of_the_image_by_themselves() -> None:
    listed = [("C", "/etc"), ("A", "/etc/one"), ("A", "/work"), ("A", "/work/deep")]
    listed += [("A", "/work/deep/file"), ("C", "/usr"), ("C", "/usr/bin"), ("C", "/usr/bin/sh")]
    listed += [("D", "/opt"), ("A", "/tmp/left"), ("A", "/ours/file")]
    paths = change.paths_to_fetch(change.differences(listed, own=["/ours"]))
    assert paths == ("/etc", "/etc/one", "/usr", "/usr/bin", "/usr/bin/sh", "/work")


# --- where the socket is --------------------------------------------------------------------------


def test_the_socket_is_that_of_the_clients_context(docker: Engine, tmp_path: Path) -> None:
    host = docker.environment["DOCKER_HOST"]
    of_context = {**docker.environment, "HOME": str(tmp_path)}
    del of_context["DOCKER_HOST"]
    there = replace(docker, environment=of_context)
    there.call("context", "create", "mine", "--docker", f"host={host}")
    there.call("context", "use", "mine")
    found = asyncio.run(docker_socket(client_of(there)))
    assert found == host.removeprefix("unix://")


@pytest.mark.parametrize("host", ["tcp://127.0.0.1:1", "ssh://nobody@127.0.0.1", "unix:///none"])
def test_without_a_socket_of_this_machine_the_client_is_asked(docker: Engine, host: str) -> None:
    environment = {**docker.environment, "DOCKER_HOST": host}
    containers = Container(name="docker", environment=environment)
    assert isinstance(asyncio.run(containers._engine_calls()), ClientCalls)


_PODMAN_RUNNER = """
import asyncio, sys
from bakeoff.sandboxes.containers.sandbox import Container

async def main():
    containers = Container(name="podman")
    print((await containers._engine_calls())._api.socket, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def _processes_at(socket: str) -> list[str]:
    return processes_with(f"unix://{socket}")


def test_the_service_of_an_engine_without_a_daemon_dies_with_a_run_that_is_killed() -> None:
    podman = engine("podman")
    runner = subprocess.Popen(
        [sys.executable, "-c", _PODMAN_RUNNER],
        env={**os.environ, **podman.environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    with not_outliving(runner):
        assert runner.stdout is not None
        socket = runner.stdout.readline().strip()
        assert _processes_at(socket)
        runner.kill()
        runner.wait(_LIMIT_S)
    until(lambda: not _processes_at(socket), timeout_s=_LIMIT_S)
    scratch.reap()  # whoever is first takes it away
    assert not Path(socket).parent.exists()


def test_the_service_of_an_engine_without_a_daemon_ends_with_the_last_sandbox_that_uses_it() -> (
    None
):
    found = engine("podman")
    # a service of its own: boxes of other tests may use the one without this variable
    podman = replace(found, environment={**found.environment, "OF": "this test"})

    async def scenario() -> None:
        first, second = sandbox(podman), sandbox(podman)
        calls = await first._engine_calls()
        assert isinstance(calls, PodmanApiCalls)
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(second._engine_calls())
        await first.close()
        assert _processes_at(calls._api.socket)
        await second.close()
        assert not _processes_at(calls._api.socket)
        assert not Path(calls._api.socket).parent.exists()
        await second.close()

    asyncio.run(scenario())


def test_a_service_that_was_killed_is_started_again_for_the_next_box(tmp_path: Path) -> None:
    found = engine("podman")
    podman = replace(found, environment={**found.environment, "OF": "a killed service"})
    image = podman.with_busybox()

    async def scenario() -> None:
        containers = sandbox(podman)
        calls = await containers._engine_calls()
        assert isinstance(calls, PodmanApiCalls)
        for line in _processes_at(calls._api.socket):
            os.kill(int(line.split(":")[0]), signal.SIGKILL)
        until(lambda: not _processes_at(calls._api.socket), timeout_s=_LIMIT_S)
        try:
            async with opened(containers, spec(tmp_path, image=image)) as box:
                assert (await _soon(box)) == "fine\n"
            assert not Path(calls._api.socket).parent.exists()
        finally:
            await containers.close()

    asyncio.run(scenario())


def test_an_engine_of_another_machine_is_asked_through_its_client() -> None:
    podman = engine("podman")
    environment = {**podman.environment, "CONTAINER_HOST": "ssh://nobody@127.0.0.1"}
    containers = Container(name="podman", environment=environment)
    assert isinstance(asyncio.run(containers._engine_calls()), ClientCalls)


# --- a broken engine ------------------------------------------------------------------------------

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter, str], Awaitable[None]]


@asynccontextmanager
async def _engine_that(answers: Answer) -> AsyncIterator[ApiCalls]:
    """Listen at a socket as an engine would, and answer each request with *answers*."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            await answers(reader, writer, head.split(b"\r\n")[0].decode())
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # the other side has gone
        finally:
            writer.close()

    folder = scratch.new_folder("engine")
    server = await asyncio.start_unix_server(serve, folder / "s")
    try:
        yield ApiCalls(Client("docker", {"PATH": ""}), str(folder / "s"))
    finally:
        server.close()
        scratch.remove(folder)


def _json(writer: asyncio.StreamWriter, status: int, value: object) -> None:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


def _exec_that_prints(frames: bytes, exit_answer: tuple[int, object]) -> Answer:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter, request: str) -> None:
        if "/start" in request:
            writer.write(b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n" + frames)
        elif request.startswith("POST"):
            _json(writer, 201, {"Id": "number"})
        else:
            _json(writer, *exit_answer)

    return answer


def _frame(text: bytes) -> bytes:
    return b"\1\0\0\0" + len(text).to_bytes(4, "big") + text


async def _ends(calls: ApiCalls, *, time_s: float = _LIMIT_S) -> Any:
    command = Exec(argv=("true",), stdin=b"x" * 1_000_000)
    return await asyncio.wait_for(calls.exec("box", command).end(time_s=time_s), _LIMIT_S)


def test_output_in_frames_of_any_size_is_put_together_again() -> None:
    frames = _frame(b"one ") + b"\2\0\0\0" + _frame(b"two\n")[4:] + _frame(b"x" * 300_000)

    async def scenario() -> None:
        async with _engine_that(
            _exec_that_prints(frames, (200, {"Running": False, "ExitCode": 3}))
        ) as calls:
            ended = await _ends(calls)
        assert (ended.code, ended.stopped) == (3, None)
        assert ended.output == "one two\n" + "x" * 300_000

    asyncio.run(scenario())


def test_an_engine_that_dies_under_a_command_is_a_fault_that_may_pass() -> None:
    async def scenario() -> None:
        cut = _exec_that_prints(_frame(b"begun")[:-2], (500, {"message": "shutting down"}))
        async with _engine_that(cut) as calls:
            with pytest.raises(SandboxError, match="docker exec failed: shutting down"):
                await _ends(calls)

    asyncio.run(scenario())


def test_a_container_that_is_gone_has_killed_its_commands() -> None:
    async def scenario() -> None:
        forgotten = _exec_that_prints(b"", (404, {"message": "no such exec"}))
        async with _engine_that(forgotten) as calls:
            assert (await _ends(calls)).code == 137

    asyncio.run(scenario())


def test_a_command_in_a_container_that_does_not_run_is_said_as_the_client_says_it() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: str) -> None:
        _json(writer, 409, {"message": "Container box is not running"})

    async def scenario() -> None:
        async with _engine_that(answer) as calls:
            ended = await _ends(calls)
        assert (ended.code, ended.stopped) == (126, None)
        assert "Container box is not running" in ended.output

    asyncio.run(scenario())


def test_an_engine_that_never_answers_holds_no_command_beyond_its_time() -> None:
    async def answer(reader: asyncio.StreamReader, _: asyncio.StreamWriter, __: str) -> None:
        await reader.read()
        await reader.read()

    async def scenario() -> None:
        async with _engine_that(answer) as calls:
            ended = await _ends(calls, time_s=0.2)
        assert (ended.code, ended.stopped) == (None, "its time was over after 0.2 s")

    asyncio.run(scenario())


def test_a_docker_that_remaps_users_exports_what_its_files_belong_to() -> None:
    answers = {"/info": {"SecurityOptions": ["name=seccomp,profile=default", "name=userns"]}}
    answers["/containers/box/changes"] = [{"Kind": 1, "Path": "/made"}]  # type: ignore[assignment]

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter, request: str) -> None:
        _json(writer, 200, answers[request.split()[1].partition("?")[0]])

    async def scenario() -> None:
        async with _engine_that(answer) as calls:
            with pytest.raises(FileNotFoundError, match="docker"):  # there is no client here
                await asyncio.wait_for(calls.change("box", own=(), max_mb=1), _LIMIT_S)

    asyncio.run(scenario())


def test_a_listener_that_fails_is_heard_by_whoever_waits(docker: Engine, tmp_path: Path) -> None:
    def refuse(_: bytes) -> None:
        raise ValueError("not for me")

    async def scenario() -> None:
        async with opened(sandbox(docker), spec(tmp_path)) as box:
            with pytest.raises(ValueError, match="not for me"):
                await shell(box, "echo heard; sleep 60", on_output=refuse)
            assert (await _soon(box)) == "fine\n"

    asyncio.run(scenario())


async def _soon(box: Box) -> str:
    return (await box.run(Command(argv=("echo", "fine"), time_s=_LIMIT_S))).output
