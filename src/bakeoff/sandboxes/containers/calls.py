"""What a box asks of its container engine, and how the command-line client is asked for it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Protocol

from bakeoff._lib.process import Child, ProcessResult
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import ChangeTooLargeError, SandboxError
from bakeoff.core.sandbox import BoxSpec, Mount
from bakeoff.sandboxes.containers import change as container_change
from bakeoff.sandboxes.containers.engine import Engine, run_arguments
from bakeoff.sandboxes.host.supervision import RunningCommand

_STATE_FORMAT = (
    "id={{.Id}}\nstate={{.State.Running}}\npid={{.State.Pid}}\n"
    "layer={{with .GraphDriver}}{{.Data.UpperDir}}{{end}}"
)
_SIZE_FORMAT = "size={{.SizeRw}}"
_EXPORT_S = 600.0
_TOO_LONG = "file name too long"
_MAX_DIFF = 1 << 28
# seen with runc under load: 'exec: "sh": executable file not found' in a box that has one
_RUNTIME_FAILED = "OCI runtime create failed"
_START_AGAIN_S = (0.2, 0.6)
# seen with docker under load: an export without a single file, right after the container was killed
_EXPORT_AGAIN_S = (0.2, 1.0)


@value_object
class NewContainer:
    """A container to be started: what it shows, and from which image."""

    name: str
    labels: tuple[str, ...]
    spec: BoxSpec
    mounts: tuple[Mount, ...]
    image: str


@value_object
class ContainerState:
    """Whether a container runs, its number and first process, and its layer on the disk.

    What is not known is empty.
    """

    id: str
    running: bool
    pid: str
    layer: str


@value_object
class Exec:
    """A command to be run in a container, as *user* or as that of the container."""

    argv: tuple[str, ...]
    user: str | None = None
    stdin: bytes = b""
    most_output: int = 1_000_000
    on_output: Callable[[bytes], None] | None = None


class EngineCalls(Protocol):
    """What a box asks of its engine; SandboxError with the name of the call where one fails."""

    async def start(self, container: NewContainer) -> None:
        """Create a container and start it."""

    async def state(self, name: str) -> ContainerState:
        """Return the state of a container."""

    async def used_bytes(self, name: str) -> int:
        """Return the size of a container's own layer; 0 where it is not known."""

    def exec(self, name: str, command: Exec) -> RunningCommand:
        """Start a command; what it leaves running when it is killed stays until a restart."""

    async def kill(self, name: str) -> None:
        """Kill every process of a container."""

    async def restart(self, name: str) -> None:
        """Kill every process of a container and start it again."""

    async def remove(self, name: str) -> None:
        """Remove a container, running or not, with its volumes; nothing where there is none."""

    async def last_output(self, name: str) -> str:
        """Return the last lines that a container itself printed."""

    async def changed_paths(self, name: str) -> str:
        """Return how a container differs from its image: a letter and a path a line."""

    async def put(self, name: str, archive: bytes) -> None:
        """Unpack a gzipped tar in a container, with the owners that it names."""

    async def change(
        self, name: str, *, own: Iterable[str], max_mb: int
    ) -> tuple[bytes, tuple[str, ...]]:
        """Return the changed files of a stopped container as an archive, and the deleted paths.

        Paths under *own* are left out.
        """


class ClientCalls:
    """Asks the engine through its command-line client: one process a call."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def start(self, container: NewContainer) -> None:
        """Create a container and start it."""
        labels = [word for label in container.labels for word in ("--label", label)]
        arguments = ("-d", "--name", container.name, *labels, *self._engine.dialect.run)
        more = run_arguments(container.spec, container.mounts, container.image)
        try:
            await self._engine.call("run", *arguments, *more)
        except SandboxError as error:
            if _RUNTIME_FAILED not in str(error):
                raise
            # the container is there, only not started
            await retry_start(lambda: self._engine.call("start", container.name))

    async def state(self, name: str) -> ContainerState:
        """Return the state of a container."""
        output = await self._engine.call(
            "inspect", "--type", "container", "--format", _STATE_FORMAT, name
        )
        fields = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
        return ContainerState(
            id=fields.get("id", ""),
            running=fields.get("state") == "true",
            pid=fields.get("pid", ""),
            layer=fields.get("layer", ""),
        )

    async def used_bytes(self, name: str) -> int:
        """Return the size of a container's own layer; 0 where it is not known."""
        inspected = await self._engine.ask(
            "inspect", "--type", "container", "--size", "--format", _SIZE_FORMAT, name
        )
        for line in inspected.output.splitlines():
            size = line.removeprefix("size=")
            if size != line and size.isdigit():
                return int(size)
        return 0

    def exec(self, name: str, command: Exec) -> RunningCommand:
        """Start a command through a client that is killed with it."""
        user = () if command.user is None else ("--user", command.user)
        program = self._engine.program(
            *("exec", "-i", *user, name, *command.argv),
            stdin=command.stdin,
            most_output=command.most_output,
        )
        return Child(replace(program, on_output=command.on_output))

    async def kill(self, name: str) -> None:
        """Kill every process of a container."""
        await self._engine.call("kill", name)

    async def restart(self, name: str) -> None:
        """Kill every process of a container and start it again."""
        await retry_start(lambda: self._engine.call("restart", "-t", "0", name))

    async def remove(self, name: str) -> None:
        """Remove a container, running or not, with its volumes; nothing where there is none."""
        await self._engine.call(*self._engine.dialect.remove, name)

    async def last_output(self, name: str) -> str:
        """Return the last lines that a container itself printed."""
        return (await self._engine.ask("logs", "--tail", "20", name)).output

    async def changed_paths(self, name: str) -> str:
        """Return how a container differs from its image: a letter and a path a line."""
        return await self._engine.call("diff", name, most_output=_MAX_DIFF)

    async def put(self, name: str, archive: bytes) -> None:
        """Unpack a gzipped tar in a container, with the owners that it names."""
        await self._engine.call(*self._engine.dialect.copy, "-", f"{name}:/", stdin=archive)

    async def change(
        self, name: str, *, own: Iterable[str], max_mb: int
    ) -> tuple[bytes, tuple[str, ...]]:
        """Return the changed files and the deleted paths; the whole container is exported for it."""
        with readable_paths():
            printed = await self.changed_paths(name)
        differences = container_change.read_differences(printed, own)
        return await self.export(name, differences, max_mb=max_mb)

    async def export(
        self, name: str, differences: container_change.Differences, *, max_mb: int
    ) -> tuple[bytes, tuple[str, ...]]:
        """Return what *differences* name out of an export of the whole container."""
        for pause_s in _EXPORT_AGAIN_S:
            try:
                return await self._exported(name, differences, max_mb=max_mb)
            except container_change.EmptyExportError:
                await asyncio.sleep(pause_s)
        return await self._exported(name, differences, max_mb=max_mb)

    async def _exported(
        self, name: str, differences: container_change.Differences, *, max_mb: int
    ) -> tuple[bytes, tuple[str, ...]]:
        packed, present = await asyncio.to_thread(
            container_change.archive,
            (self._engine.name, "export", name),
            environment=self._engine.environment,
            included=differences,
            in_image=differences.in_image,
            check_for=differences.perhaps_gone,
            max_mb=max_mb,
            time_s=_EXPORT_S,
        )
        return packed, tuple(sorted({*differences.gone, *differences.perhaps_gone} - present))


async def retry_start(start: Callable[[], Awaitable[object]]) -> None:
    """Start a container; a few times, because a busy docker fails now and then for no reason."""
    for pause_s in _START_AGAIN_S:
        try:
            await start()
        except SandboxError as error:
            if _RUNTIME_FAILED not in str(error):
                raise
            await asyncio.sleep(pause_s)
        else:
            return
    await start()


class readable_paths:  # noqa: N801 -- reads as a word at its place: `with readable_paths()`
    """Turns an engine's error about a path that is too long into one about the agent's change."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise ChangeTooLargeError where the agent's paths are the cause."""
        if isinstance(error, SandboxError) and _TOO_LONG in str(error):
            raise ChangeTooLargeError("the agent left a path too long to be read") from error


async def run_in(calls: EngineCalls, name: str, command: Exec, *, time_s: float) -> ProcessResult:
    """Run a short command of ours in a container and return how it ended."""
    return await calls.exec(name, command).end(time_s=time_s)
