"""One bubblewrap box. Every command is a bubblewrap of its own.

A command has its own processes and its own network, and nothing of it outlives it. What a box keeps
from one command to the next are its folder, its home and its /tmp.
"""

import asyncio
import json
import os
import re
from contextlib import ExitStack, nullcontext
from pathlib import Path

from bakeoff._lib.process import Ended, Program
from bakeoff.core.boxes import BoxSpec, Command, Ran
from bakeoff.core.errors import SandboxError, UsageError
from bakeoff.sandboxes import marks, prelude
from bakeoff.sandboxes.bubblewrap_ground import PATH, Ground
from bakeoff.sandboxes.bubblewrap_root import HOME, SUPPORT, root_arguments
from bakeoff.sandboxes.egress_proxy import PORT as PROXY_PORT
from bakeoff.sandboxes.egress_proxy import EgressProxy, proxy_environment
from bakeoff.sandboxes.holdings import Holdings
from bakeoff.sandboxes.imageless import WHOLE_BOX
from bakeoff.sandboxes.supervision import Supervision, impossible, not_started
from bakeoff.sandboxes.uplink import AwaitedUplink

GATEWAY_PORT = 8642
_SHM_BYTES = 256 << 20
_DEATH_S = 10.0
_BY_SIGNAL = 128
# what bubblewrap says where a folder that it needs has been taken away, replaced or closed
_FOLDER_BROKEN = re.compile(
    r"bwrap: Can't .*: (?:No such file or directory|Not a directory|Permission denied)"
)
_TMP = "/tmp"  # noqa: S108 -- the box's own


class _NotStartedError(SandboxError):
    """Bubblewrap gave up before it started the command."""


class BubblewrapBox:
    """Private folders and a control group, in which commands are run."""

    def __init__(
        self, spec: BoxSpec, ground: Ground, *, proxy: EgressProxy | None, host_network: bool
    ) -> None:
        _check(spec, ground)
        self._spec = spec
        self._proxy = proxy
        self._on_host_network = spec.network is True and host_network
        self._has_uplink = spec.network is True and not host_network
        self._ground = ground
        self._view: list[str] = []
        self._started_in: set[str] = set()
        self._holdings = Holdings(spec, ground.cgroups)
        self._supervision = Supervision(
            spec.limits, cgroup=self._holdings.cgroup, disk=self._holdings.disk
        )

    @property
    def gateway_url(self) -> str | None:
        """Where a command reaches the gateway: through the relay, or directly on the host's network."""
        if self._spec.gateway is None:
            return None
        return self._spec.gateway.url if self._on_host_network else _local_url(GATEWAY_PORT)

    @property
    def refused_traffic(self) -> tuple[str, ...]:
        """What the box's proxy refused."""
        return () if self._proxy is None else self._proxy.refused

    @property
    def _relays(self) -> dict[int, str]:
        """The ports of the box that lead to a socket of the host, and the socket."""
        relays = {}
        if self._spec.gateway is not None and not self._on_host_network:
            relays[GATEWAY_PORT] = self._spec.gateway.socket
        if self._proxy is not None:
            relays[PROXY_PORT] = str(self._proxy.socket)
        return relays

    async def run(self, command: Command) -> Ran:
        """Run *command* in namespaces of its own, which end with it."""
        if (ran := impossible(command)) is not None:
            return ran
        with ExitStack() as files:
            reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            files.callback(os.close, reading)
            files.callback(os.close, writing)
            passing = [writing]
            self._view = self._view or self._all_mounts()
            words = [*self._view, *self._own_words(command), "--json-status-fd", str(writing)]
            calls = self._ground.grading_calls if self._spec.grading else self._ground.calls
            if calls is not None:
                passing.append(os.open(calls, os.O_RDONLY | os.O_CLOEXEC))
                files.callback(os.close, passing[-1])
                words += ["--seccomp", str(passing[-1])]
            uplink = AwaitedUplink(files) if self._has_uplink else None
            if uplink is not None:
                passing += uplink.passing
                words += uplink.words
            # through a file: the environment may hold a token, and arguments are seen by everyone
            arguments = _file_with("\0".join([*words, ""]).encode())
            files.callback(os.close, arguments)
            program = self._program(command, arguments, passing=(arguments, *passing))
            async with uplink or nullcontext():
                return await self._supervised(command, program, reading)

    async def _supervised(self, command: Command, program: Program, status: int) -> Ran:
        """Run *program*; the exit code is 126 where what ran before has closed or removed its folder."""
        start = self._start_of(command)
        try:
            ran = await self._supervision.run(
                command, program, lambda ended: self._gone(status, ended)
            )
        except _NotStartedError as error:
            if start in self._started_in and _FOLDER_BROKEN.search(str(error)):
                return not_started(str(error))
            raise
        self._started_in.add(start)
        return ran

    def _start_of(self, command: Command) -> str:
        return os.path.normpath(Path(self._spec.root, command.cwd or self._spec.workdir))

    def _program(self, command: Command, arguments: int, *, passing: tuple[int, ...]) -> Program:
        limits = self._spec.limits
        group = self._holdings.cgroup
        kept = group.folders if group else {}
        inside = prelude.within_rlimits(
            memory_mb=None if "memory" in kept else limits.memory_mb,
            processes=None if "pids" in kept else limits.processes,
        )
        for port in self._relays:  # one becomes the next, and the last the command
            relay = (str(self._ground.python), "-I", "-S", f"{SUPPORT}/relay.py")
            inside = (*inside, *relay, str(port), f"{SUPPORT}/{port}.sock", "--")
        return Program(
            argv=(
                *prelude.entering(self._holdings.doors, most_file_mb=limits.disk_mb),
                *(self._ground.program, "--args", str(arguments), "--"),
                *inside,
                *command.argv,
            ),
            environment={"PATH": PATH, marks.VARIABLE: self._holdings.mark},
            stdin=command.stdin,
            most_output=command.most_output,
            hears=command.hears,
            passing=passing,
        )

    def _all_mounts(self) -> list[str]:
        """Return bubblewrap's words for all that does not differ from command to command."""
        spec, ground = self._spec, self._ground
        words = [*ground.namespaces, *(["--share-net"] if self._on_host_network else [])]
        targets = (spec.root, *(mount.target for mount in (*spec.mounts, *spec.pinned)))
        words += root_arguments(
            ground.support, rootfs=ground.rootfs, targets=targets, resolver=self._resolver()
        )
        words += ground.python_mounts
        words += ["--bind", str(self._holdings.temp), _TMP]
        words += ["--bind", str(self._holdings.home), HOME]
        words += ["--perms", "1777", "--size", str(_SHM_BYTES), "--tmpfs", "/dev/shm"]  # noqa: S108
        words += ["--bind", str(self._holdings.folder), spec.root]
        for mount in (*spec.mounts, *spec.pinned):
            words += ["--bind" if mount.writable else "--ro-bind", mount.source, mount.target]
        if relays := self._relays:
            words += ["--ro-bind", str(ground.support / "relay.py"), f"{SUPPORT}/relay.py"]
        for port, socket in relays.items():
            words += ["--ro-bind", socket, f"{SUPPORT}/{port}.sock"]
        return [*words, "--remount-ro", "/dev", "--remount-ro", "/"]

    def _resolver(self) -> Path | None:
        """Return the resolv.conf that the box sees; None where there is nobody to ask."""
        if self._has_uplink:
            return self._ground.support / "resolv.conf"
        names = Path("/etc/resolv.conf").resolve()
        return names if self._on_host_network and names.exists() else None

    def _own_words(self, command: Command) -> list[str]:
        environment = {
            "PATH": self._ground.path,
            "HOME": HOME,
            "USER": "agent",
            "LANG": "C.UTF-8",
            "TMPDIR": _TMP,
            "BAKEOFF_ROOT": self._spec.root,
            **({} if self._proxy is None else proxy_environment()),
            **self._spec.environment,
            **command.environment,
            marks.VARIABLE: self._holdings.mark,
        }
        words = ["--chdir", self._start_of(command), "--clearenv"]
        for name, value in environment.items():
            words += ["--setenv", name, value]
        return words

    async def _gone(self, status: int, ended: Ended | None) -> None:
        """Wait until the namespaces are gone, and raise where bubblewrap itself failed."""
        told = _told(status)
        child = told.get("child-pid")
        clock = asyncio.get_running_loop().time
        until = clock() + _DEATH_S
        while child is not None and _is_init(child):
            if clock() > until:
                raise SandboxError(f"the processes of box {self._spec.label!r} do not end")
            await asyncio.sleep(0.002)
        if ended is not None and _never_started(ended, told):
            why = f"bubblewrap could not start the command: {ended.output.strip()}"
            raise _NotStartedError(why)

    async def stop(self) -> None:
        """End every command."""
        await self._supervision.stop()
        group = self._holdings.cgroup
        if group is not None and group.processes():
            await asyncio.to_thread(group.kill)

    async def change(self) -> tuple[bytes, tuple[str, ...]]:
        """Refuse: there is no image here to differ from."""
        raise SandboxError(WHOLE_BOX)

    async def close(self) -> None:
        """End every command; take the private folders and the control group away."""
        await self.stop()
        if self._proxy is not None:
            await self._proxy.close()
        await asyncio.to_thread(self._holdings.remove)


def _check(spec: BoxSpec, ground: Ground) -> None:
    """Refuse what bubblewrap cannot do."""
    if Path(spec.root) == Path("/"):
        raise UsageError("the root of a workspace cannot be / in bubblewrap; choose a folder")
    listed = not isinstance(spec.network, bool) and bool(spec.network)
    if ground.python is None and (spec.gateway is not None or listed):
        what = "a gateway" if spec.gateway is not None else "a list of allowed hosts"
        raise UsageError(f"{ground.rootfs} has no python3, which a box with {what} needs")


def _local_url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _file_with(data: bytes) -> int:
    """Return an open file in memory that holds *data*, at its beginning."""
    number = os.memfd_create("arguments", os.MFD_CLOEXEC)
    with os.fdopen(number, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(number, 0, os.SEEK_SET)
    return number


def _never_started(ended: Ended, told: dict[str, int]) -> bool:
    """Whether bubblewrap gave up before the command: it says so, unless somebody killed it."""
    return "exit-code" not in told and ended.code is not None and ended.code < _BY_SIGNAL


def _told(status: int) -> dict[str, int]:
    """Return what bubblewrap told about itself: its child, and how that ended."""
    told: dict[str, int] = {}
    try:
        text = os.read(status, 65536)
    except BlockingIOError:
        return told
    decoder, rest = json.JSONDecoder(), text.decode().strip()
    while rest:
        found, end = decoder.raw_decode(rest)
        told |= found
        rest = rest[end:].strip()
    return told


def _is_init(pid: int) -> bool:
    """Whether *pid* is still the first process of a namespace of its own."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    known = dict(line.split(":", 1) for line in lines if ":" in line)
    numbers = known.get("NSpid", "").split()
    return len(numbers) > 1 and numbers[-1] == "1" and not known["State"].strip().startswith("Z")
