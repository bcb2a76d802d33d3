"""Asks a container engine through its socket: HTTP over a unix socket, without a process for each call.

Both engines have Docker's API at their sockets; where podman's differs, its own is used. The messages
are those of the command-line client, so that an error says the same whichever way was taken.
"""

import asyncio
import json
import os
import socket
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import quote, urlencode

from bakeoff._lib import scratch
from bakeoff._lib.process import BoundedOutput, ProcessResult, run_to_completion
from bakeoff.core.errors import SandboxError
from bakeoff.core.sandbox import Mount
from bakeoff.core.values import Json
from bakeoff.sandboxes.containers import change as container_change
from bakeoff.sandboxes.containers.calls import (
    ClientCalls,
    ContainerState,
    Exec,
    NewContainer,
    readable_paths,
    retry_start,
)
from bakeoff.sandboxes.containers.ending import end_exec_monitors
from bakeoff.sandboxes.containers.engine import Engine, container_settings
from bakeoff.sandboxes.host.supervision import RunningCommand

_AT_ONCE = 8  # more concurrent calls make an engine slower, not faster
_CALL_S = 120.0
_EXIT_S = 10.0
_MAX_SHOWN = 2000
_MAX_HEAD = 1 << 16
_PIECE = 1 << 16
_FREE_PIECES = 256  # then the output is a flood: it is read slowly, so that it costs no one much
_FLOOD_PAUSE_S = 0.01
_FRAME = 8  # bytes before each piece of output: which stream, and how long it is
_NOT_RUNNABLE, _KILLED = 126, 137
_UPGRADED = (200, 101)
_FORGOTTEN = "no exec session with ID"  # podman, with status 500 while its container restarts
_LIBPOD = "/v4.0.0/libpod"
_KINDS = "CAD"  # changed, added, deleted
_ETC = {
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n",
    "/etc/resolv.conf": "",
}


class ApiError(SandboxError):
    """The engine answered a call with an error."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class EngineApi:
    """Makes calls at an engine's socket, each on a connection of its own."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.socket = path
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def call(
        self,
        what: str,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json | bytes = None,
        time_s: float = _CALL_S,
    ) -> bytes:
        """Return the engine's answer; *what* names the call in errors."""
        import aiohttp
        from yarl import URL

        tar = isinstance(body, bytes)
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body)
        url = URL(f"http://engine{path}?{urlencode(query or {}, quote_via=quote)}", encoded=True)
        headers = {"Content-Type": "application/x-tar" if tar else "application/json"}
        try:
            async with (
                self._slots,
                aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(self.socket, force_close=True),
                    timeout=aiohttp.ClientTimeout(total=time_s),
                ) as session,
                session.request(method, url, data=data, headers=headers) as response,
            ):
                answer = await response.read()
        except TimeoutError as error:
            why = f"{self.name} {what} did not end within {time_s:g} s"
            raise SandboxError(why, transient=True) from error
        except (aiohttp.ClientError, OSError) as error:
            raise SandboxError(f"{self.name} {what} failed: {error}", transient=True) from error
        self.check(what, response.status, answer)
        return answer

    def check(self, what: str, status: int, answer: bytes) -> None:
        """Raise ApiError where *status* says that the call failed."""
        if status < 400:
            return
        try:
            message = str(json.loads(answer)["message"])
        except (ValueError, KeyError, TypeError):
            message = answer.decode(errors="replace")
        why = f"{self.name} {what} failed: {message.strip()[-_MAX_SHOWN:]}"
        raise ApiError(why, status=status)


class _Incoming:
    """Reads what comes in on a socket, also after the other end has stopped listening.

    A stream of asyncio drops what it has received when its own data can no longer be sent.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._loop = asyncio.get_running_loop()
        self._buffer = b""

    async def piece(self, most: int) -> bytes:
        """Return the next bytes, at most *most*; none at the end."""
        if not self._buffer:
            self._buffer = await self._receive()
        piece, self._buffer = self._buffer[:most], self._buffer[most:]
        return piece

    async def exactly(self, count: int) -> bytes:
        """Return the next *count* bytes; fewer at the end."""
        while len(self._buffer) < count and (more := await self._receive()):
            self._buffer += more
        return await self.piece(count) if self._buffer else b""

    async def head(self) -> bytes:
        """Return an HTTP head; whatever there is where it does not end."""
        while b"\r\n\r\n" not in self._buffer and len(self._buffer) < _MAX_HEAD:
            if not (more := await self._receive()):
                break
            self._buffer += more
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        return head

    async def _receive(self) -> bytes:
        try:
            return await self._loop.sock_recv(self._socket, _PIECE)
        except ConnectionError:
            return b""


def _status(head: bytes) -> int | None:
    """Return the status of an HTTP answer; None where it is none."""
    words = head.split(None, 2)
    is_http = len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit()
    return int(words[1]) if is_http else None


class ApiCommand:
    """A command in a container, with its output as a stream; started by the constructor."""

    def __init__(self, api: EngineApi, container: str, command: Exec) -> None:
        self._loop = asyncio.get_running_loop()
        self._api = api
        self._container = container
        self._command = command
        self._bounded = BoundedOutput(command.most_output)
        self._pieces = 0
        self._stopped: str | None = None
        self._started = time.monotonic()
        self._work = asyncio.ensure_future(self._run())

    def kill(self, why: str) -> None:
        """Stop listening; the first to call it says why. The caller ends what runs in the box."""
        if self._stopped is None and not self._work.done():
            self._stopped = why
        self._work.cancel()

    async def end(self, *, time_s: float | None = None) -> ProcessResult:
        """Wait until the command has ended, and return how."""
        try:
            await asyncio.wait([self._work], timeout=time_s)
            if not self._work.done():
                self.kill(f"its time was over after {time_s:g} s")
        except asyncio.CancelledError:
            self.kill("it was cancelled")
            raise
        finally:
            await run_to_completion(self._wait())
        code = None if self._stopped else self._work.result()
        return ProcessResult(
            code=code,
            output=self._bounded.text(),
            elapsed_s=time.monotonic() - self._started,
            stopped=self._stopped,
            truncated=self._bounded.truncated,
        )

    async def _wait(self) -> None:
        await asyncio.wait([self._work])
        if not self._work.cancelled():
            self._work.exception()  # retrieved here, raised by `end`

    async def _run(self) -> int:
        """Return the exit code."""
        command = self._command
        settings: dict[str, Json] = {
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "Cmd": list(command.argv),
        }
        if command.user is not None:
            settings["User"] = command.user
        path = f"/containers/{self._container}/exec"
        try:
            answer = await self._api.call("exec", "POST", path, body=settings)
            number = str(json.loads(answer)["Id"])
            await self._stream(number)
        except ApiError as error:
            self._bounded.add(f"{error}\n".encode())  # as the client prints it
            return _NOT_RUNNABLE
        return await self._exit_code(number)

    async def _stream(self, number: str) -> None:
        """Start the command, give it its input, and take its output until it has ended."""
        try:
            with socket.socket(socket.AF_UNIX) as connected:
                connected.settimeout(0)  # not blocking
                await self._loop.sock_connect(connected, self._api.socket)
                stream = _Incoming(connected)
                await self._upgrade(number, connected, stream)
                feeding = asyncio.ensure_future(self._feed(connected))
                try:
                    await self._listen(stream)
                finally:
                    feeding.cancel()
                    await asyncio.wait([feeding])
        except OSError as error:
            why = f"{self._api.name} exec failed: {error}"
            raise SandboxError(why, transient=True) from error

    async def _upgrade(self, number: str, connected: socket.socket, stream: "_Incoming") -> None:
        """Turn the connection into the command's input and output."""
        body = b'{"Detach": false, "Tty": false}'
        head = (
            f"POST /exec/{number}/start HTTP/1.1\r\nHost: engine\r\n"
            "Connection: Upgrade\r\nUpgrade: tcp\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        await self._loop.sock_sendall(connected, head.encode() + body)
        status = _status(await stream.head())
        if status is None:
            why = f"{self._api.name} exec failed: its answer is no HTTP"
            raise SandboxError(why, transient=True)
        if status not in _UPGRADED:
            self._api.check("exec", max(status, 400), await stream.piece(_MAX_HEAD))

    async def _feed(self, connected: socket.socket) -> None:
        with suppress(OSError):  # it has ended without reading all of its input
            await self._loop.sock_sendall(connected, self._command.stdin)
            connected.shutdown(socket.SHUT_WR)

    async def _listen(self, stream: "_Incoming") -> None:
        while len(frame := await stream.exactly(_FRAME)) == _FRAME:
            rest = int.from_bytes(frame[4:], "big")
            while rest:
                piece = await stream.piece(min(rest, _PIECE))
                if not piece:
                    return
                rest -= len(piece)
                self._take(piece)
                flood = self._pieces > _FREE_PIECES
                await asyncio.sleep(_FLOOD_PAUSE_S if flood else 0)

    def _take(self, piece: bytes) -> None:
        self._pieces += 1
        self._bounded.add(piece)
        if self._command.on_output is not None:
            self._command.on_output(piece)

    async def _exit_code(self, number: str) -> int:
        """Return the exit code, which may be known a moment after the end of the output."""
        until, pause_s = time.monotonic() + _EXIT_S, 0.002
        while True:
            try:
                answer = await self._api.call("exec", "GET", f"/exec/{number}/json")
            except ApiError as error:
                if error.status != HTTPStatus.NOT_FOUND and _FORGOTTEN not in str(error):
                    raise
                return _KILLED  # with its container
            state = json.loads(answer)
            if not state["Running"]:
                return int(state["ExitCode"] or 0)
            if time.monotonic() > until:
                why = f"{self._api.name} exec failed: its output has ended, and it still runs"
                raise SandboxError(why, transient=True)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.1)


class ApiCalls:
    """Asks the engine at its socket, and its client for what the socket cannot do."""

    def __init__(self, engine: Engine, path: str) -> None:
        self._engine = engine
        self._client = ClientCalls(engine)
        self._api = EngineApi(engine.name, path)
        self._info: dict[str, Any] | None = None
        self._etc_folders: dict[str, Path] = {}

    async def start(self, container: NewContainer) -> None:
        """Create a container and start it."""
        has_network = container.spec.network is True
        if has_network or not await self._can_leave_out_network():
            await self._create(container, container.mounts)
        else:
            await self._create(
                container, (*container.mounts, *self._etc_mounts(container)), NetworkDisabled=True
            )
        await self._start("run", f"/containers/{container.name}/start")

    async def _create(
        self, container: NewContainer, mounts: tuple[Mount, ...], **more: Json
    ) -> None:
        settings = container_settings(
            container.spec, mounts, container.image, engine=self._engine.name
        )
        labels = dict(label.split("=", 1) for label in container.labels)
        query, body = {"name": container.name}, {**settings, "Labels": labels, **more}
        await self._api.call("run", "POST", "/containers/create", query=query, body=body)

    async def _can_leave_out_network(self) -> bool:
        """Whether docker's runtime gives a container a network of its own, with only a loopback.

        Docker's network `none` is the same, but takes three times as long as the rest of a start.
        """
        info = await self._engine_info()
        return info.get("DefaultRuntime") == "runc" and not _remaps_users(info)

    def _etc_mounts(self, container: NewContainer) -> Iterator[Mount]:
        """Yield the files of /etc that docker writes only for a container with a network."""
        folder = self._etc_folders[container.name] = scratch.new_folder("etc")
        taken = {mount.target for mount in container.mounts}
        for target, text in _ETC.items():
            if target not in taken:
                file = folder / Path(target).name
                file.write_text(text, encoding="ascii")
                file.chmod(0o644)
                yield Mount(source=str(file), target=target, writable=True)

    async def _start(self, what: str, path: str, **query: str) -> None:
        await retry_start(lambda: self._api.call(what, "POST", path, query=query))

    async def state(self, name: str) -> ContainerState:
        """Return the state of a container."""
        known = await self._inspect(name)
        layers = (known.get("GraphDriver") or {}).get("Data") or {}
        return ContainerState(
            id=str(known.get("Id", "")),
            running=bool(known["State"]["Running"]),
            pid=str(known["State"].get("Pid", "")),
            layer=str(layers.get("UpperDir", "")),
        )

    async def _inspect(self, name: str, **query: str) -> dict[str, Any]:
        answer = await self._api.call("inspect", "GET", f"/containers/{name}/json", query=query)
        known: dict[str, Any] = json.loads(answer)
        return known

    async def used_bytes(self, name: str) -> int:
        """Return the size of a container's own layer; 0 where it is not known."""
        try:
            size = (await self._inspect(name, size="1")).get("SizeRw")
        except SandboxError:
            return 0
        return int(size) if isinstance(size, int) else 0

    def exec(self, name: str, command: Exec) -> RunningCommand:
        """Start a command."""
        return ApiCommand(self._api, name, command)

    async def kill(self, name: str) -> None:
        """Kill every process of a container."""
        await self._api.call("kill", "POST", f"/containers/{name}/kill")

    async def restart(self, name: str) -> None:
        """Kill every process of a container and start it again."""
        await self._start("restart", f"/containers/{name}/restart", t="0")

    async def remove(self, name: str) -> None:
        """Remove a container, running or not, with its volumes; nothing where there is none."""
        try:
            await self._api.call(
                "rm", "DELETE", f"/containers/{name}", query={"force": "1", "v": "1"}
            )
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        if (folder := self._etc_folders.pop(name, None)) is not None:
            scratch.remove_later(folder)

    async def last_output(self, name: str) -> str:
        """Return the last lines that a container itself printed."""
        query = {"stdout": "1", "stderr": "1", "tail": "20"}
        try:
            framed = await self._api.call("logs", "GET", f"/containers/{name}/logs", query=query)
        except SandboxError as error:
            return str(error)
        return _without_frames(framed).decode(errors="replace")

    async def changed_paths(self, name: str) -> str:
        """Return how a container differs from its image: a letter and a path a line."""
        return "".join(f"{kind} {path}\n" for kind, path in await self._changes(name))

    async def _changes(self, name: str) -> list[tuple[str, str]]:
        answer = await self._api.call("diff", "GET", f"/containers/{name}/changes")
        return [(_KINDS[entry["Kind"]], entry["Path"]) for entry in json.loads(answer) or ()]

    async def put(self, name: str, archive: bytes) -> None:
        """Unpack a gzipped tar in a container, with the owners that it names."""
        query = {"path": "/", "copyUIDGID": "1"}
        await self._api.call("cp", "PUT", f"/containers/{name}/archive", query=query, body=archive)

    async def change(
        self, name: str, *, own: Iterable[str], max_mb: int
    ) -> tuple[bytes, tuple[str, ...]]:
        """Return the changed files and the deleted paths."""
        with readable_paths():
            changes = await self._changes(name)
        differences = container_change.differences(changes, (*own, *_ETC))
        if _remaps_users(await self._engine_info()):
            return await self._client.export(name, differences, max_mb=max_mb)
        packed = await self._from_layer(name, differences, max_mb=max_mb)
        if packed is None:
            return await self.fetch(name, differences, max_mb=max_mb)
        return packed, differences.gone

    async def _from_layer(
        self, name: str, differences: container_change.Differences, *, max_mb: int
    ) -> bytes | None:
        """Return the changed files from the container's layer; None where it cannot be read here."""
        layer = (await self.state(name)).layer
        exact = container_change.has_exact_names(differences)
        if os.geteuid() != 0 or not layer.startswith("/") or not exact:
            return None
        try:
            return await asyncio.to_thread(
                container_change.read_files, Path(layer), differences, max_mb=max_mb
            )
        except (OSError, container_change.IncompleteLayerError):
            return None  # on another machine, or not all in this layer

    async def fetch(
        self, name: str, differences: container_change.Differences, *, max_mb: int
    ) -> tuple[bytes, tuple[str, ...]]:
        """Return what *differences* name, asked for by its paths, or exported where they are many."""
        paths = container_change.paths_to_fetch(differences)
        if paths is None:
            return await self._client.export(name, differences, max_mb=max_mb)
        packed = await asyncio.to_thread(
            container_change.fetched,
            lambda path: self._tar(name, path),
            paths,
            differences,
            max_mb=max_mb,
        )
        return packed, differences.gone

    async def _engine_info(self) -> dict[str, Any]:
        if self._info is None:
            self._info = json.loads(await self._api.call("info", "GET", "/info"))
        return self._info

    @contextmanager
    def _tar(self, name: str, path: str) -> Iterator[BinaryIO]:
        """Provide one path of a container as the stream of a tar; blocks."""
        connection = _UnixConnection(self._api.socket)
        try:
            connection.request("GET", f"/containers/{name}/archive?path={quote(path, safe='')}")
            with connection.getresponse() as response:
                if response.status != HTTPStatus.OK:
                    self._api.check("cp", response.status, response.read(_MAX_HEAD))
                yield cast("BinaryIO", response)
        except (HTTPException, OSError, tarfile.TarError) as error:
            why = f"{self._api.name} cp of {path} failed: {error!r}"
            raise SandboxError(why, transient=True) from error
        finally:
            connection.close()


_COMPARED = (
    *("Path", "Args", "Image", "Mounts", "EffectiveCaps", "BoundingCaps", "OCIRuntime", "Driver"),
    *("MountLabel", "ProcessLabel", "AppArmorProfile", "Namespace", "Dependencies"),
)
# who made it and when; what says how to stop or restart it; and the umask, which every box sets
_NOT_COMPARED = frozenset(
    {"CreateCommand", "Hostname", "Umask", "StopTimeout", "RestartPolicy", "sdNotifyMode"}
)


_NOTES = frozenset(  # the first two are in a container only before or after its first start
    {
        "io.container.manager",
        "org.opencontainers.image.stopSignal",
        "io.kubernetes.cri-o.Created",
    }
)


class PodmanApiCalls(ApiCalls):
    """Asks podman's socket for what it does as its client does, and the client for the rest.

    Its socket gives files out without their owners and follows links, and takes archives only for
    its own user. Containers are made at the socket once a comparison has shown that they are those
    of the client, with every default of podman's settings.
    """

    def __init__(self, engine: Engine, path: str) -> None:
        super().__init__(engine, path)
        self._makes_the_same: bool | None = None  # None until it was compared
        self._is_comparing = False
        self._image_ids: dict[str, str] = {}

    async def start(self, container: NewContainer) -> None:
        """Create a container and start it."""
        if container.spec.network is True or not self._makes_the_same:
            await self._client.start(container)
            if self._makes_the_same is None and not self._is_comparing:
                self._is_comparing = True
                try:
                    self._makes_the_same = await self._compare(container)
                finally:
                    self._is_comparing = False
            return
        await self._create(
            replace(container, image=await self._image_id(container.image)), container.mounts
        )
        await self._start("run", f"{_LIBPOD}/containers/{container.name}/start")

    async def _compare(self, by_client: NewContainer) -> bool:
        """Whether a container made at the socket has the settings of one that the client made."""
        probe = replace(
            by_client,
            name=f"{by_client.name}-probe",
            image=await self._image_id(by_client.image),
        )
        try:
            await self._create(probe, probe.mounts)
            return await self._settings(probe.name) == await self._settings(by_client.name)
        except ApiError:
            return False
        finally:
            await run_to_completion(self.remove(probe.name))

    async def _settings(self, name: str) -> dict[str, Any]:
        """Return the settings of a container but for those that differ between any two."""
        known = json.loads(
            await self._api.call("inspect", "GET", f"{_LIBPOD}/containers/{name}/json")
        )
        settings = {**known["Config"], **known["HostConfig"]}
        settings["Env"] = sorted(e for e in settings["Env"] if not e.startswith("HOSTNAME="))
        settings["LogConfig"] = {**settings["LogConfig"], "Path": None}
        settings["Binds"] = sorted(settings.get("Binds") or ())
        settings["Annotations"] = {
            key: value
            for key, value in (settings.get("Annotations") or {}).items()
            if key not in _NOTES
        }
        settings |= {key: known.get(key) for key in _COMPARED}
        settings["Mounts"] = sorted(known.get("Mounts") or (), key=itemgetter("Destination"))
        return {k: v or None for k, v in settings.items() if k not in _NOT_COMPARED}

    async def _image_id(self, image: str) -> str:
        """Return what no other image is called: the socket takes short names for Docker Hub's."""
        if image not in self._image_ids:
            path = f"{_LIBPOD}/images/{quote(image, safe='')}/json"
            known = json.loads(await self._api.call("image inspect", "GET", path))
            self._image_ids[image] = str(known["Id"])
        return self._image_ids[image]

    async def put(self, name: str, archive: bytes) -> None:
        """Unpack a gzipped tar in a container, with the owners that it names."""
        await self._client.put(name, archive)

    async def kill(self, name: str) -> None:
        """Kill every process of a container; docker's call would wait for seconds here."""
        await self._api.call("kill", "POST", f"{_LIBPOD}/containers/{name}/kill")

    async def restart(self, name: str) -> None:
        """Kill every process of a container and start it again."""
        query = {"t": "0", "timeout": "0"}
        await self._api.call("restart", "POST", f"{_LIBPOD}/containers/{name}/restart", query=query)

    async def remove(self, name: str) -> None:
        """Remove a container, running or not, with its volumes; nothing where there is none."""
        query = {"force": "true", "v": "true", "timeout": "0"}
        try:
            await self._api.call("rm", "DELETE", f"{_LIBPOD}/containers/{name}", query=query)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        await asyncio.to_thread(end_exec_monitors, name)

    async def change(
        self, name: str, *, own: Iterable[str], max_mb: int
    ) -> tuple[bytes, tuple[str, ...]]:
        """Return the changed files and the deleted paths; mounted where this user may read them."""
        with readable_paths():
            changes = await self._changes(name)
        differences = container_change.differences(changes, own)
        exact = container_change.has_exact_names(differences)
        if os.geteuid() != 0 or not exact or await self._has_other_users(name):
            return await self._client.export(name, differences, max_mb=max_mb)
        place = f"{_LIBPOD}/containers/{name}"
        answer = await self._api.call("mount", "POST", f"{place}/mount")
        root = Path(answer.decode("utf-8", "surrogateescape").strip().strip('"'))
        try:
            packed = await asyncio.to_thread(
                container_change.read_files, root, differences, max_mb=max_mb
            )
        except OSError as error:
            raise SandboxError(f"podman mount gave files that cannot be read: {error}") from error
        finally:
            await run_to_completion(self._unmount(place))
        return packed, differences.gone

    async def _unmount(self, place: str) -> None:
        await self._api.call("umount", "POST", f"{place}/unmount")

    async def _has_other_users(self, name: str) -> bool:
        """Whether user numbers of a container are others on the host."""
        answer = await self._api.call("inspect", "GET", f"{_LIBPOD}/containers/{name}/json")
        host = json.loads(answer)["HostConfig"]
        return bool(host.get("IDMappings")) or host.get("UsernsMode", "") not in ("", "host")


def _remaps_users(info: Mapping[str, Any]) -> bool:
    """Whether docker gives files out with the user numbers of the host, which an export does not."""
    return "name=userns" in (info.get("SecurityOptions") or ())


class _UnixConnection(HTTPConnection):
    """A blocking connection to a socket, for streams that are read in a thread."""

    def __init__(self, path: str) -> None:
        super().__init__("engine")
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_CALL_S)
        self.sock.connect(self._path)


def _without_frames(framed: bytes) -> bytes:
    output, at = b"", 0
    while at + _FRAME <= len(framed):
        size = int.from_bytes(framed[at + 4 : at + _FRAME], "big")
        output += framed[at + _FRAME : at + _FRAME + size]
        at += _FRAME + size
    return output
