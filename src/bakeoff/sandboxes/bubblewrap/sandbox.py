"""The bubblewrap sandbox: boxes of Linux namespaces without daemon or image, started in milliseconds."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path

from bakeoff._lib import scratch
from bakeoff._lib.process import Child, ProcessResult, Program
from bakeoff.core.errors import BakeoffError, SandboxError, UsageError
from bakeoff.core.sandbox import Box, BoxSpec, Command, CommandResult
from bakeoff.core.workspace import Image, Network
from bakeoff.sandboxes.bubblewrap.host_support import (
    PATH,
    HostSupport,
    find_bwrap,
    prepare,
    usable_namespaces,
)
from bakeoff.sandboxes.bubblewrap.root import HOME, SUPPORT, root_arguments
from bakeoff.sandboxes.egress import uplink
from bakeoff.sandboxes.egress.proxy import PORT as PROXY_PORT
from bakeoff.sandboxes.egress.proxy import (
    EgressProxy,
    checked_private_hosts,
    open_proxy,
    proxy_environment,
)
from bakeoff.sandboxes.egress.uplink import AwaitedUplink
from bakeoff.sandboxes.host import process_tags, shell_limits
from bakeoff.sandboxes.host.cleanup import BoxResources, reap
from bakeoff.sandboxes.host.imageless import WHOLE_BOX, refuse_image, refuse_whole_box
from bakeoff.sandboxes.host.supervision import Supervision, not_started, unstartable

GATEWAY_PORT = 8642
_SHM_BYTES = 256 << 20
_EXIT_TIMEOUT_S = 10.0
_BY_SIGNAL = 128
# bubblewrap's error where a folder that it needs was removed, replaced or made inaccessible
_FOLDER_BROKEN = re.compile(
    r"bwrap: Can't .*: (?:No such file or directory|Not a directory|Permission denied)"
)
_TMP = "/tmp"  # noqa: S108 -- the box's own


class _NotStartedError(SandboxError):
    """Bubblewrap gave up before it started the command."""


class BubblewrapBox:
    """A box: private folders and a control group; each command runs in new namespaces."""

    def __init__(
        self, spec: BoxSpec, host: HostSupport, *, proxy: EgressProxy | None, host_network: bool
    ) -> None:
        _check(spec, host)
        self._spec = spec
        self._proxy = proxy
        self._on_host_network = spec.network is True and host_network
        self._has_uplink = spec.network is True and not host_network
        self._host = host
        self._shared_arguments: list[str] = []
        self._started_in: set[str] = set()
        self._resources = BoxResources(spec, host.cgroups)
        self._supervision = Supervision(
            spec.limits, cgroup=self._resources.cgroup, disk=self._resources.disk
        )

    @property
    def gateway_url(self) -> str | None:
        """The URL of the gateway for commands: through the relay, or directly on the host network."""
        if self._spec.gateway is None:
            return None
        return self._spec.gateway.url if self._on_host_network else _local_url(GATEWAY_PORT)

    @property
    def refused_traffic(self) -> tuple[str, ...]:
        """What the box's proxy refused."""
        return () if self._proxy is None else self._proxy.refused

    @property
    def _relays(self) -> dict[int, str]:
        """The ports of the box that are relayed to a socket of the host, and the socket."""
        relays = {}
        if self._spec.gateway is not None and not self._on_host_network:
            relays[GATEWAY_PORT] = self._spec.gateway.socket
        if self._proxy is not None:
            relays[PROXY_PORT] = str(self._proxy.socket)
        return relays

    async def run(self, command: Command) -> CommandResult:
        """Run *command* in new namespaces, which end with it."""
        if (ran := unstartable(command)) is not None:
            return ran
        with ExitStack() as files:
            reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            files.callback(os.close, reading)
            files.callback(os.close, writing)
            pass_fds = [writing]
            self._shared_arguments = self._shared_arguments or self._mount_arguments()
            arguments = [
                *self._shared_arguments,
                *self._command_arguments(command),
                "--json-status-fd",
                str(writing),
            ]
            seccomp_filter = (
                self._host.grading_seccomp_filter
                if self._spec.grading
                else self._host.seccomp_filter
            )
            if seccomp_filter is not None:
                pass_fds.append(os.open(seccomp_filter, os.O_RDONLY | os.O_CLOEXEC))
                files.callback(os.close, pass_fds[-1])
                arguments += ["--seccomp", str(pass_fds[-1])]
            uplink = AwaitedUplink(files) if self._has_uplink else None
            if uplink is not None:
                pass_fds += uplink.pass_fds
                arguments += uplink.arguments
            # through a file: the environment may hold a token, and arguments are visible to all users
            arguments_fd = _memory_file("\0".join([*arguments, ""]).encode())
            files.callback(os.close, arguments_fd)
            program = self._program(command, arguments_fd, pass_fds=(arguments_fd, *pass_fds))
            async with uplink or nullcontext():
                return await self._supervised(command, program, reading)

    async def _supervised(self, command: Command, program: Program, status: int) -> CommandResult:
        """Run *program*; exit code 126 where earlier commands removed its folder or made it inaccessible."""
        start = self._start_of(command)
        try:
            ran = await self._supervision.run(
                command, lambda: Child(program), lambda ended: self._wait_gone(status, ended)
            )
        except _NotStartedError as error:
            if start in self._started_in and _FOLDER_BROKEN.search(str(error)):
                return not_started(str(error))
            raise
        self._started_in.add(start)
        return ran

    def _start_of(self, command: Command) -> str:
        return os.path.normpath(Path(self._spec.root, command.cwd or self._spec.workdir))

    def _program(
        self, command: Command, arguments_fd: int, *, pass_fds: tuple[int, ...]
    ) -> Program:
        limits = self._spec.limits
        group = self._resources.cgroup
        limited = group.folders if group else {}
        inside = shell_limits.set_rlimits(
            memory_mb=None if "memory" in limited else limits.memory_mb,
            processes=None if "pids" in limited else limits.processes,
        )
        for port in self._relays:  # each relay execs the next one, and the last one the command
            relay = (str(self._host.python), "-I", "-S", f"{SUPPORT}/relay.py")
            inside = (*inside, *relay, str(port), f"{SUPPORT}/{port}.sock", "--")
        return Program(
            argv=(
                *shell_limits.enter_cgroups(
                    self._resources.entry_files, max_file_mb=limits.disk_mb
                ),
                *(self._host.program, "--args", str(arguments_fd), "--"),
                *inside,
                *command.argv,
            ),
            environment={"PATH": PATH, process_tags.VARIABLE: self._resources.tag},
            stdin=command.stdin,
            most_output=command.most_output,
            on_output=command.on_output,
            pass_fds=pass_fds,
        )

    def _mount_arguments(self) -> list[str]:
        """Return bubblewrap's arguments that are the same for all commands of the box."""
        spec, host = self._spec, self._host
        arguments = [*host.namespaces, *(["--share-net"] if self._on_host_network else [])]
        targets = (spec.root, *(mount.target for mount in (*spec.mounts, *spec.pinned)))
        arguments += root_arguments(
            host.support, rootfs=host.rootfs, targets=targets, resolver=self._resolver()
        )
        arguments += host.python_mounts
        arguments += ["--bind", str(self._resources.temp), _TMP]
        arguments += ["--bind", str(self._resources.home), HOME]
        arguments += ["--perms", "1777", "--size", str(_SHM_BYTES), "--tmpfs", "/dev/shm"]  # noqa: S108
        arguments += ["--bind", str(self._resources.folder), spec.root]
        for mount in (*spec.mounts, *spec.pinned):
            arguments += ["--bind" if mount.writable else "--ro-bind", mount.source, mount.target]
        if relays := self._relays:
            arguments += ["--ro-bind", str(host.support / "relay.py"), f"{SUPPORT}/relay.py"]
        for port, socket in relays.items():
            arguments += ["--ro-bind", socket, f"{SUPPORT}/{port}.sock"]
        return [*arguments, "--remount-ro", "/dev", "--remount-ro", "/"]

    def _resolver(self) -> Path | None:
        """Return the resolv.conf that the box sees; None where it has no name server."""
        if self._has_uplink:
            return self._host.support / "resolv.conf"
        names = Path("/etc/resolv.conf").resolve()
        return names if self._on_host_network and names.exists() else None

    def _command_arguments(self, command: Command) -> list[str]:
        environment = {
            "PATH": self._host.path,
            "HOME": HOME,
            "USER": "agent",
            "LANG": "C.UTF-8",
            "TMPDIR": _TMP,
            "BAKEOFF_ROOT": self._spec.root,
            **({} if self._proxy is None else proxy_environment()),
            **self._spec.environment,
            **command.environment,
            process_tags.VARIABLE: self._resources.tag,
        }
        arguments = ["--chdir", self._start_of(command), "--clearenv"]
        for name, value in environment.items():
            arguments += ["--setenv", name, value]
        return arguments

    async def _wait_gone(self, status: int, ended: ProcessResult | None) -> None:
        """Wait until the namespaces have ended; raise where bubblewrap itself failed."""
        report = _read_status(status)
        child = report.get("child-pid")
        clock = asyncio.get_running_loop().time
        until = clock() + _EXIT_TIMEOUT_S
        while child is not None and _is_init(child):
            if clock() > until:
                raise SandboxError(f"the processes of box {self._spec.label!r} do not end")
            await asyncio.sleep(0.002)
        if ended is not None and _never_started(ended, report):
            why = f"bubblewrap could not start the command: {ended.output.strip()}"
            raise _NotStartedError(why)

    async def stop(self) -> None:
        """End every command."""
        await self._supervision.stop()
        group = self._resources.cgroup
        if group is not None and group.processes():
            await asyncio.to_thread(group.kill)

    async def change(self) -> tuple[bytes, tuple[str, ...]]:
        """Refuse: there is no image here to differ from."""
        raise SandboxError(WHOLE_BOX)

    async def close(self) -> None:
        """End every command; remove the private folders and the control group."""
        await self.stop()
        if self._proxy is not None:
            await self._proxy.close()
        await asyncio.to_thread(self._resources.remove)


def _check(spec: BoxSpec, host: HostSupport) -> None:
    """Refuse what bubblewrap cannot do."""
    if Path(spec.root) == Path("/"):
        raise UsageError("the root of a workspace cannot be / in bubblewrap; choose a folder")
    listed = not isinstance(spec.network, bool) and bool(spec.network)
    if host.python is None and (spec.gateway is not None or listed):
        what = "a gateway" if spec.gateway is not None else "a list of allowed hosts"
        raise UsageError(f"{host.rootfs} has no python3, which a box with {what} needs")


def _local_url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _memory_file(data: bytes) -> int:
    """Return a descriptor of an in-memory file with *data*, at its start."""
    number = os.memfd_create("arguments", os.MFD_CLOEXEC)
    with os.fdopen(number, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(number, 0, os.SEEK_SET)
    return number


def _never_started(ended: ProcessResult, report: dict[str, int]) -> bool:
    """Whether bubblewrap failed before it started the command, and was not killed itself."""
    return "exit-code" not in report and ended.code is not None and ended.code < _BY_SIGNAL


def _read_status(status: int) -> dict[str, int]:
    """Return bubblewrap's JSON status: the pid of its child and the child's exit code."""
    report: dict[str, int] = {}
    try:
        text = os.read(status, 65536)
    except BlockingIOError:
        return report
    decoder, rest = json.JSONDecoder(), text.decode().strip()
    while rest:
        fields, end = decoder.raw_decode(rest)
        report |= fields
        rest = rest[end:].strip()
    return report


def _is_init(pid: int) -> bool:
    """Whether *pid* is still the first process of a namespace of its own."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    numbers = fields.get("NSpid", "").split()
    return len(numbers) > 1 and numbers[-1] == "1" and not fields["State"].strip().startswith("Z")


_NO_UPLINK = (
    "bubblewrap cannot give a task with `network = true` a network of its own: {why}. Or let the "
    'task list its hosts, which needs nothing installed: network = ["pypi.org", ...] ("*" is any '
    "public one); or choose a container: --sandbox docker; or share the host's network and all that "
    'listens on it, in your run file: sandbox = {{ name = "bubblewrap", settings = {{ network = '
    '"host" }} }}'
)


class Bubblewrap:
    """Opens boxes of Linux namespaces.

    With a *rootfs*, boxes see the programs of that unpacked image instead of the host's. Where
    control groups are not permitted, rlimits enforce the limits.

    A task that asks for a network gets its own, without the host's loopback; with `network="host"`
    it gets the host's. *private_hosts* can be reached where a task lists them.
    """

    name = "bubblewrap"
    isolates = True

    def __init__(
        self,
        *,
        rootfs: str | Path | None = None,
        control_groups: bool = True,
        network: str | None = None,
        private_hosts: Sequence[str] = (),
    ) -> None:
        if network not in (None, "host"):
            raise UsageError(
                f"network of the sandbox bubblewrap is {network!r}; "
                'write "host" to share the host\'s network with tasks that ask for one, or nothing'
            )
        self._host_network = network == "host"
        self._private_hosts = checked_private_hosts(private_hosts)
        self._rootfs = None if rootfs is None else Path(rootfs)
        self._control_groups = control_groups
        self._ready: asyncio.Task[HostSupport] | None = None

    @classmethod
    def available(cls) -> str | None:
        """Return why bubblewrap cannot be used here, and what to do; None where it can."""
        if not sys.platform.startswith("linux"):
            return "bubblewrap needs Linux; choose a container: --sandbox docker"
        try:
            usable_namespaces(find_bwrap())
        except BakeoffError as error:
            return str(error)
        return None

    def check_network(self, network: Network) -> None:
        """Raise where a box cannot have this *network* here."""
        if network is not True or self._host_network:
            return
        if why := uplink.unavailable_reason():
            raise UsageError(_NO_UPLINK.format(why=why))

    async def image(self, image: Image | None) -> None:
        """Refuse an image: only containers can start from one."""
        refuse_image(image, sandbox="bubblewrap")

    async def open(self, spec: BoxSpec) -> Box:
        """Return a box that is ready."""
        refuse_whole_box(spec)
        self.check_network(spec.network)
        if self._ready is None:
            work = asyncio.to_thread(prepare, self._rootfs, with_cgroups=self._control_groups)
            self._ready = asyncio.create_task(work)
        ready = self._ready
        try:
            return await self._opened(spec, await asyncio.shield(ready))
        except OSError as error:
            raise SandboxError(f"no box can be opened: {error}") from error
        finally:
            if ready.done() and _failed(ready):
                self._ready = None  # the cause may be fixed before the next attempt

    async def _opened(self, spec: BoxSpec, host: HostSupport) -> Box:
        proxy = await open_proxy(spec.network, private_hosts=self._private_hosts)
        try:
            return BubblewrapBox(spec, host, proxy=proxy, host_network=self._host_network)
        except BaseException:
            if proxy is not None:
                await proxy.close()
            raise

    async def reap(self) -> Sequence[str]:
        """Remove the control groups, processes and folders of dead runs."""
        return await asyncio.to_thread(reap)

    async def close(self) -> None:
        """Remove what all boxes shared, and wait until the folders of closed boxes are removed."""
        ready, self._ready = self._ready, None
        if ready is not None:
            await asyncio.wait([ready])
            if not _failed(ready):
                await asyncio.to_thread(scratch.remove, ready.result().support)
        await asyncio.to_thread(scratch.wait_removed)


def _failed(ready: asyncio.Task[HostSupport]) -> bool:
    return ready.cancelled() or ready.exception() is not None
