"""NOT Modal: a stand-in with the part of its SDK's surface that we call, on this machine.

Modal's service cannot be reached from the tests. A box here is a folder seen as the root of
bubblewrap; programs in it are real processes. Every call is noted, so that a test can hold it against
the signatures of the real SDK.
"""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

_SHOWN = ("/usr", "/bin", "/lib", "/lib64", "/sbin", "/etc")


class Calls(list[tuple[str, tuple[Any, ...], dict[str, Any]]]):
    """What was called, with what."""

    def named(self, name: str) -> list[dict[str, Any]]:
        return [named for called, _, named in self if called == name]


class Both:
    """A function of the SDK as it is defined twice: blocking, and with `.aio` to be awaited."""

    def __init__(self, calls: Calls, name: str, function: Callable[..., Any]) -> None:
        self._calls, self._name, self._function = calls, name, function

    def aio(self, *args: Any, **named: Any) -> Any:
        self._calls.append((self._name, args, named))
        return self._function(*args, **named)


class StandIn:
    """The module `modal`."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.boxes: list[Box] = []
        self.App = _Namespace(lookup=Both(self.calls, "App.lookup", self._lookup))
        self.Image = _Namespace(from_registry=self._from_registry, from_dockerfile=self._from_file)
        self.Sandbox = _Namespace(
            create=Both(self.calls, "Sandbox.create", self._create),
            list=Both(self.calls, "Sandbox.list", self._list),
        )
        self.build_fails: str | None = None

    async def _lookup(self, name: str, *, create_if_missing: bool) -> Any:
        return _Namespace(app_id=f"ap-{name}")

    def _from_registry(self, tag: str, **named: Any) -> Any:
        self.calls.append(("Image.from_registry", (tag,), named))
        return _Namespace(build=Both(self.calls, "Image.build", self._build))

    def _from_file(self, path: str, **named: Any) -> Any:
        self.calls.append(("Image.from_dockerfile", (path,), named))
        return _Namespace(build=Both(self.calls, "Image.build", self._build))

    async def _build(self, app: Any) -> None:
        if self.build_fails:
            raise RuntimeError(self.build_fails)

    async def _create(self, *argv: str, **named: Any) -> "Box":
        box = Box(self.calls, named)
        self.boxes.append(box)
        return box

    async def _list(self, *, app_id: str, tags: dict[str, str]) -> AsyncIterator["Box"]:
        for box in self.boxes:
            if not box.ended and tags.items() <= box.wanted["tags"].items():
                yield box

    def close(self) -> None:
        for box in self.boxes:
            box.remove()


class _Namespace:
    def __init__(self, **named: Any) -> None:
        self.__dict__.update(named)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class Box:
    """An `modal.Sandbox`: its disk is a folder, its programs see it as their root."""

    def __init__(self, calls: Calls, wanted: dict[str, Any]) -> None:
        self.wanted = wanted
        self.ended = False
        self.disk = Path(tempfile.mkdtemp(prefix="bakeoff-modal-stand-in-"))
        for name in ("tmp", "root"):
            (self.disk / name).mkdir()
        self._processes: list[Process] = []
        self._calls = calls
        self.exec = Both(calls, "Sandbox.exec", self._exec)
        self.terminate = Both(calls, "Sandbox.terminate", self._terminate)
        self.get_tags = Both(calls, "Sandbox.get_tags", self._get_tags)
        self.filesystem = _Namespace(
            copy_from_local=Both(calls, "SandboxFilesystem.copy_from_local", self._put),
            copy_to_local=Both(calls, "SandboxFilesystem.copy_to_local", self._get),
        )

    async def _exec(self, *argv: str, env: dict[str, str], text: bool) -> "Process":
        if self.ended:
            raise RuntimeError("the sandbox has ended")
        words = [
            "bwrap",
            "--bind",
            str(self.disk),
            "/",
            "--bind",
            "/proc",
            "/proc",
            "--dev",
            "/dev",
        ]
        for path in _SHOWN:
            words += ["--ro-bind-try", path, path]
        words += ["--unshare-net"] if self.wanted["block_network"] else []
        started = await asyncio.create_subprocess_exec(
            *words,
            *("--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--"),
            *("env", *(f"{name}={value}" for name, value in env.items()), *argv),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        process = Process(self._calls, started)
        self._processes.append(process)
        return process

    async def _put(self, local_path: str, remote_path: str) -> None:
        shutil.copyfile(local_path, self.disk / remote_path.lstrip("/"))

    async def _get(self, remote_path: str, local_path: str) -> None:
        shutil.copyfile(self.disk / remote_path.lstrip("/"), local_path)

    async def _get_tags(self) -> dict[str, str]:
        return dict(self.wanted["tags"])

    async def _terminate(self, *, wait: bool) -> int:
        self.ended = True
        for process in self._processes:
            await process.kill()
        self.remove()
        return 0

    def remove(self) -> None:
        shutil.rmtree(self.disk, ignore_errors=True)


class Process:
    """A `modal.container_process.ContainerProcess`."""

    def __init__(self, calls: Calls, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.stdin = _Input(calls, process)
        self.stdout = _output(process)
        self.wait = Both(calls, "ContainerProcess.wait", self._wait)

    async def _wait(self) -> int:
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    async def kill(self) -> None:
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()


async def _output(process: asyncio.subprocess.Process) -> AsyncIterator[bytes]:
    assert process.stdout is not None
    while piece := await process.stdout.read(65536):
        yield piece


class _Input:
    def __init__(self, calls: Calls, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        self._calls, self._pipe = calls, process.stdin
        self.drain = Both(calls, "StreamWriter.drain", self._drain)

    def write(self, data: bytes) -> None:
        self._calls.append(("StreamWriter.write", (data,), {}))
        self._pipe.write(data)

    def write_eof(self) -> None:
        self._calls.append(("StreamWriter.write_eof", (), {}))
        self._pipe.write_eof()

    async def _drain(self) -> None:
        try:
            await self._pipe.drain()
        except ConnectionError:
            return  # the program has closed its input
