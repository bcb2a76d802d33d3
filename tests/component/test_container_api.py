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
from bakeoff.sandboxes.containers import api, change
from bakeoff.sandboxes.containers.api import ApiCalls, PodmanApiCalls
from bakeoff.sandboxes.containers.calls import ClientCalls, Exec, NewContainer
from bakeoff.sandboxes.containers.engine import Engine as Client
from bakeoff.sandboxes.containers.engine_socket import docker_socket, has_died
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


_WITHOUT_NETWORK = {"/etc/hosts", "/etc/resolv.conf"}  # docker mounts its own there otherwise


def _specs(image: str, folder: Path) -> dict[str, BoxSpec]:
    mounts = (Mount(source=str(folder), target="/shown"),)
    return {
        "folder": spec(folder, limits=LIMITS, mounts=mounts),
        "whole": replace(whole(image), mounts=mounts),
        "network": spec(folder, limits=LIMITS, network=True),
    }


def _targets(settings: dict[str, Any]) -> set[str]:
    return {json.loads(mount)["Destination"] for mount in settings["Mounted"]}


@pytest.mark.parametrize("kind", ["folder", "whole", "network"])
def test_a_container_made_at_the_socket_is_as_closed_as_one_made_by_the_client(
    docker: Engine, tmp_path: Path, kind: str
) -> None:
    specs = _specs(docker.with_busybox(), tmp_path)
    at_socket, by_client = sandbox(docker), replace(sandbox(docker), use_socket=False)

    async def scenario() -> None:
        ours = await _settings(docker, at_socket, specs[kind])
        theirs = await _settings(docker, by_client, specs[kind])
        assert isinstance(await at_socket._engine_calls(), ApiCalls)
        assert isinstance(await by_client._engine_calls(), ClientCalls)
        for key in ("MemorySwappiness", "OomKillDisable"):  # the client says what is so anyway
            ours.pop(key, None)
            theirs.pop(key, None)
        if kind != "network":
            assert ours["NetworkDisabled"]
            assert _targets(ours) - _targets(theirs) == _WITHOUT_NETWORK
        for settings in (ours, theirs):
            settings.pop("NetworkDisabled", None)
            for key in ("Mounted", "Mounts"):
                mounts = settings[key] or ()
                settings[key] = [
                    m for m in mounts if not any(f in str(m) for f in _WITHOUT_NETWORK)
                ]
        assert ours == theirs

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["folder", "whole"])
def test_podmans_containers_are_made_at_the_socket_once_they_are_those_of_the_client(
    tmp_path: Path, kind: str
) -> None:
    podman = engine("podman")
    specs = _specs(podman.with_busybox(), tmp_path)
    at_socket, by_client = sandbox(podman), replace(sandbox(podman), use_socket=False)

    async def scenario() -> None:
        await _settings(podman, at_socket, specs["network"])  # the first one: compared
        ours = await _settings(podman, at_socket, specs[kind])
        theirs = await _settings(podman, by_client, specs[kind])
        await at_socket.close()
        assert "system" in ours.pop("CreateCommand")
        assert "run" in theirs.pop("CreateCommand")
        for settings in (ours, theirs):
            settings["Image"] = settings["Env"] = None  # by its number; with the name of the box
            settings["LogConfig"]["Path"] = None
            settings["Binds"] = sorted(settings["Binds"])
            for key in api._NOT_COMPARED:
                settings.pop(key, None)
            for key in api._NOTES:
                settings["Annotations"].pop(key, None)
        assert ours == theirs

    asyncio.run(scenario())


def test_podmans_client_makes_the_containers_where_its_socket_makes_others(tmp_path: Path) -> None:
    log, client = tmp_path / "calls", tmp_path / "podman"
    client.write_text(_CLIENT.format(calls=log, works="run", error=""))
    client.chmod(0o755)
    made: list[str] = []

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter, request: str) -> None:
        method, path = request.split()[:2]
        if method == "GET" and "/images/" in path:
            _json(writer, 200, {"Id": "sha256:1"})
        elif method == "GET":
            ulimits = [] if "-probe" in path else ["RLIMIT_NPROC"]
            host = {"Ulimits": ulimits, "LogConfig": {}}
            _json(writer, 200, {"Config": {"Env": []}, "HostConfig": host})
        else:
            made.append(method)
            _json(writer, 200, {})

    async def scenario() -> None:
        async with _engine_that(answer) as calls:
            socket = calls._api.socket
            environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
            podman = PodmanApiCalls(Client("podman", environment), socket)
            for name in ("one", "two"):
                await podman.start(
                    NewContainer(name=name, labels=(), spec=whole("x"), mounts=(), image="x")
                )
        assert made == ["POST", "DELETE"]  # what was compared
        assert log.read_text().split() == ["run", "run"]

    asyncio.run(scenario())


def test_a_container_without_a_network_has_a_loopback_of_its_own_and_knows_its_name(
    docker: Engine,
) -> None:
    look = (
        "readlink /proc/self/ns/net; ls /sys/class/net; echo 127.0.0.1 mine >> /etc/hosts; "
        "echo there | nc -l -p 5000 & sleep 0.5; nc localhost 5000 </dev/null; "
        "nc 10.255.255.1 80 </dev/null; cat /etc/hosts"
    )

    async def scenario() -> None:
        containers = sandbox(docker)
        before = set(scratch.base().iterdir())
        async with (
            opened(containers, whole(docker.with_busybox())) as box,
            opened(containers, whole(docker.with_busybox())) as other,
        ):
            network, *seen = (await shell(box, look)).output.splitlines()
            others, *of_other = (await shell(other, look)).output.splitlines()
            await box.stop()
            _, gone = await box.change()
        assert seen[:2] == ["lo", "there"]
        assert "nc: can't connect to remote host (10.255.255.1): Network is unreachable" in seen
        assert of_other.count("127.0.0.1 mine") == 1, "the hosts of another box"
        assert len({network, others, str(Path("/proc/self/ns/net").readlink())}) == 3
        assert gone == ()
        scratch.wait_removed()
        assert set(scratch.base().iterdir()) <= before

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
        # its memory is gone before its last thread is: only then is it dead
        until(lambda: has_died(containers._engine), timeout_s=_LIMIT_S)
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


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((404, {"message": "no such exec"}), id="docker"),
        pytest.param((500, {"message": "retrieving: no exec session with ID 1"}), id="podman"),
    ],
)
def test_a_container_that_is_gone_has_killed_its_commands(answer: tuple[int, object]) -> None:
    async def scenario() -> None:
        forgotten = _exec_that_prints(b"", answer)
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


# --- an engine that fails for no reason -----------------------------------------------------------

_NO_SHELL = (
    "failed to create shim task: OCI runtime create failed: runc create failed: unable to start "
    'container process: exec: "sh": executable file not found in $PATH: unknown'
)


@asynccontextmanager
async def answering(folder: Path, *answers: tuple[int, str]) -> AsyncIterator[list[str]]:
    """Serve *answers* at a socket in *folder*, the last one for ever; yield the calls to come."""
    calls: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        calls.append(head.split("?")[0])
        status, message = answers[min(len(calls), len(answers)) - 1]
        body = json.dumps({"message": message}).encode() if message else b""
        length = "" if status == 204 else f"Content-Length: {len(body)}\r\n"
        writer.write(f"HTTP/1.1 {status} so\r\n{length}Connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(answer, folder / "engine.sock")
    async with server:
        yield calls


@pytest.mark.parametrize(
    ("answers", "tries", "error"),
    [
        (((204, ""),), 1, None),
        (((500, _NO_SHELL), (204, "")), 2, None),
        (((500, _NO_SHELL),), 3, "executable file not found"),
        (((500, "the disk is full"),), 1, "docker restart failed: the disk is full"),
    ],
)
def test_a_start_that_the_runtime_failed_is_tried_again(
    tmp_path: Path, answers: tuple[tuple[int, str], ...], tries: int, error: str | None
) -> None:
    async def scenario() -> None:
        async with answering(tmp_path, *answers) as calls:
            engine_calls = ApiCalls(Client("docker", {}), str(tmp_path / "engine.sock"))
            if error is None:
                await engine_calls.restart("box")
            else:
                with pytest.raises(SandboxError, match=error):
                    await engine_calls.restart("box")
        assert calls == ["POST /containers/box/restart"] * tries

    asyncio.run(scenario())


_CLIENT = """\
#!/bin/sh
echo "$@" | cut -d' ' -f1 >> "{calls}"
[ "$1" = {works} ] && exit 0
echo '{error}' >&2
exit 125
"""


@pytest.mark.parametrize(
    ("works", "error", "calls"),
    [
        ("run", "", ["run"]),
        ("start", _NO_SHELL, ["run", "start"]),
        ("never", _NO_SHELL, ["run", "start", "start", "start"]),
        ("never", "the disk is full", ["run"]),
    ],
)
def test_a_client_whose_runtime_failed_starts_the_same_container_again(
    tmp_path: Path, works: str, error: str, calls: list[str]
) -> None:
    log, client = tmp_path / "calls", tmp_path / "docker"
    client.write_text(_CLIENT.format(calls=log, works=works, error=error))
    client.chmod(0o755)
    engine_calls = ClientCalls(Client("docker", {"PATH": f"{tmp_path}:{os.environ['PATH']}"}))
    container = NewContainer(name="box", labels=(), spec=whole("image"), mounts=(), image="image")
    if works == "never":
        with pytest.raises(SandboxError, match=error[-20:].replace("$", r"\$")):
            asyncio.run(engine_calls.start(container))
    else:
        asyncio.run(engine_calls.start(container))
    assert log.read_text().split() == calls


_EXPORTER = """\
#!/bin/sh
echo "$1" >> "{calls}"
[ $(wc -l < "{calls}") -lt {works_at} ] && exec tar -c -C "{folder}" -T /dev/null
exec tar -c -C "{folder}" etc
"""


@pytest.mark.parametrize(("works_at", "error"), [(1, None), (2, None), (9, "exported no file")])
def test_an_export_without_a_single_file_is_made_again_and_never_taken_for_the_change(
    tmp_path: Path, works_at: int, error: str | None
) -> None:
    log, client = tmp_path / "calls", tmp_path / "docker"
    (tmp_path / "box" / "etc").mkdir(parents=True)
    (tmp_path / "box" / "etc" / "file").write_text("changed")
    client.write_text(_EXPORTER.format(calls=log, works_at=works_at, folder=tmp_path / "box"))
    client.chmod(0o755)
    engine_calls = ClientCalls(Client("docker", {"PATH": f"{tmp_path}:{os.environ['PATH']}"}))
    changed = change.differences([("C", "/etc"), ("A", "/etc/file")], own=())
    if error is not None:
        with pytest.raises(SandboxError, match=error):
            asyncio.run(engine_calls.export("box", changed, max_mb=8))
    else:
        packed, _ = asyncio.run(engine_calls.export("box", changed, max_mb=8))
        assert set(_members(packed)) == {"etc", "etc/file"}
    assert log.read_text().split() == ["export"] * min(works_at, 3)
