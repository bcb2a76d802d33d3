"""Boxes of Linux namespaces, by bubblewrap: no daemon, no image, and started in milliseconds.

Every command is a bubblewrap of its own, with its own processes and its own network: nothing of a
command outlives it. What a box keeps from one command to the next are its folder, its home and
its /tmp.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from bakeoff._lib import scratch
from bakeoff._lib.process import Ended, Program
from bakeoff.core.boxes import Box, BoxSpec, Command, Ran
from bakeoff.core.errors import SandboxError, UsageError
from bakeoff.core.workspace import Image
from bakeoff.sandboxes import cgroups, marks, prelude
from bakeoff.sandboxes.bubblewrap_root import (
    HOME,
    SUPPORT,
    python_of,
    root_arguments,
    write_support,
)
from bakeoff.sandboxes.cgroups import Cgroup, Cgroups
from bakeoff.sandboxes.disk_watch import DiskWatch
from bakeoff.sandboxes.leftovers import reap
from bakeoff.sandboxes.supervision import Supervision

INSTALL = "apt install bubblewrap (or: dnf install bubblewrap, pacman -S bubblewrap)"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GATEWAY_PORT = 8642
_RELAY = Path(__file__).with_name("relay.py")
_SHM_BYTES = 256 << 20
_DEATH_S = 10.0
_NAMESPACES = (
    "--unshare-all",
    "--unshare-user",
    "--uid",
    "1000",
    "--gid",
    "1000",
    "--cap-drop",
    "ALL",
    "--hostname",
    "box",
    "--die-with-parent",
    "--new-session",
)


class Bubblewrap:
    """Opens boxes of namespaces; with a `rootfs`, an unpacked image is what they see of programs."""

    name: ClassVar[str] = "bubblewrap"
    isolates: ClassVar[bool] = True

    def __init__(self, *, rootfs: Path | None = None) -> None:
        self._rootfs = rootfs
        self._ready: asyncio.Task[_Ground] | None = None

    @classmethod
    def available(cls) -> str | None:
        """Return why no box can be had here, and what to do about it; None where all is fine."""
        if not sys.platform.startswith("linux"):
            return "bubblewrap needs Linux; choose a container: --sandbox docker"
        program = shutil.which("bwrap")
        if program is None:
            return f"bubblewrap is not installed; get it with: {INSTALL}"
        try:
            _namespaces(program)
        except SandboxError as error:
            return str(error)
        return None

    @property
    def limits_kept_by(self) -> str:
        """What keeps the limits of boxes here; known once the first has been opened."""
        if self._ready is None or not self._ready.done():
            return "not known before the first box is opened"
        found = self._ready.result().cgroups
        if found is None:
            return "memory and processes: rlimits of each process; disk: watched"
        names = ", ".join(found.parents)
        return f"{names}: control groups, version {found.version}; disk: watched"

    async def image(self, image: Image | None) -> str | None:
        """Refuse an image: only a container can start from one."""
        if image is None:
            return None
        wanted = image.name or f"what {image.dockerfile} builds"
        raise UsageError(
            f"the task needs a container ({wanted}), which bubblewrap is not; "
            "choose one with: --sandbox docker (or --sandbox podman)"
        )

    async def open(self, spec: BoxSpec) -> Box:
        """Return a box that is ready."""
        if spec.image is not None or spec.archive is not None:
            raise SandboxError("a whole-box task needs a container: --sandbox docker")
        if self._ready is None:
            self._ready = asyncio.create_task(asyncio.to_thread(_prepare, self._rootfs))
        try:
            ground = await asyncio.shield(self._ready)
        except (UsageError, SandboxError, OSError) as error:
            self._ready = None
            if isinstance(error, OSError):
                raise SandboxError(f"no box can be opened: {error}") from error
            raise
        return _BubblewrapBox(spec, ground)

    async def reap(self) -> Sequence[str]:
        """Take away the control groups, processes and folders of dead runs."""
        return await asyncio.to_thread(reap)

    async def close(self) -> None:
        """Take away what all boxes shared."""
        if self._ready is not None:
            ready, self._ready = self._ready, None
            await asyncio.wait([ready])
            if ready.exception() is None:
                await asyncio.to_thread(scratch.remove, ready.result().support)


class _Ground:
    """What the boxes of one sandbox have in common, found out once."""

    def __init__(self, rootfs: Path | None) -> None:
        program = shutil.which("bwrap")
        if program is None:
            raise UsageError(f"bubblewrap is not installed; get it with: {INSTALL}")
        self.program = program
        self.namespaces = _namespaces(program)
        self.rootfs = rootfs
        self.python, self.for_python = python_of(rootfs)
        self.cgroups: Cgroups | None = cgroups.find()
        self.support = scratch.new_folder("bubblewrap")
        write_support(self.support)


def _prepare(rootfs: Path | None) -> _Ground:
    return _Ground(rootfs)


def _namespaces(program: str) -> tuple[str, ...]:
    """Return the namespace arguments that work here; SandboxError where none do."""
    strict = (*_NAMESPACES, "--disable-userns")
    refusal = _refusal(program, strict)
    if refusal is None:
        return strict
    if "nknown option" in refusal:  # before 0.8
        refusal = _refusal(program, _NAMESPACES)
        if refusal is None:
            return _NAMESPACES
    raise SandboxError(
        f"bubblewrap cannot make a box here: {refusal}; user namespaces may be forbidden "
        "(sysctl kernel.unprivileged_userns_clone=1, or on Ubuntu "
        "kernel.apparmor_restrict_unprivileged_userns=0, allows them)"
    )


def _refusal(program: str, words: tuple[str, ...]) -> str | None:
    """Return what bubblewrap says against *words*, None where it takes them."""
    argv = [program, *words, "--ro-bind", "/", "/", "true"]
    tried = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={"PATH": PATH}, timeout=30
    )
    return None if tried.returncode == 0 else tried.stderr.strip()


class _BubblewrapBox:
    """One box: private folders and a control group, in which commands are run one by one."""

    def __init__(self, spec: BoxSpec, ground: _Ground) -> None:
        self._spec = spec
        self._ground = ground
        self._mark = marks.new_mark()
        self._private = scratch.new_folder("box")
        for name in ("home", "tmp", "files"):
            (self._private / name).mkdir()
        (self._private / "tmp").chmod(0o1777)
        self._folder = spec.folder or self._private / "files"
        limits = spec.limits
        self._cgroup: Cgroup | None = None
        if ground.cgroups is not None:
            self._cgroup = ground.cgroups.make(self._mark, limits)
        disk = None
        if limits.disk_mb is not None:
            disk = DiskWatch((self._folder, self._private), limits.disk_mb)
        self._supervision = Supervision(limits, cgroup=self._cgroup, disk=disk)
        self._view = self._all_mounts()

    @property
    def gateway_url(self) -> str | None:
        """Where a command reaches the gateway: through the relay, or directly over the network."""
        if self._spec.gateway is None:
            return None
        return self._spec.gateway.url if self._spec.network else f"http://127.0.0.1:{GATEWAY_PORT}"

    @property
    def _relayed(self) -> bool:
        return self._spec.gateway is not None and not self._spec.network

    async def run(self, command: Command) -> Ran:
        """Run *command* in namespaces of its own, which end with it."""
        arguments = os.memfd_create("bwrap", os.MFD_CLOEXEC)
        reading, writing = os.pipe()
        os.set_blocking(reading, False)

        async def after(ended: Ended | None) -> None:
            await self._gone(reading, ended)

        try:
            with os.fdopen(arguments, "w+b", closefd=False) as file:
                words = [*self._view, *self._own_words(command)]
                file.write("\0".join([*words, ""]).encode())
            os.lseek(arguments, 0, os.SEEK_SET)
            program = self._program(command, arguments=arguments, status=writing)
            return await self._supervision.run(command, program, after)
        finally:
            for number in (arguments, reading, writing):
                os.close(number)

    def _program(self, command: Command, *, arguments: int, status: int) -> Program:
        ground, limits = self._ground, self._spec.limits
        doors = self._cgroup.doors if self._cgroup else []
        kept = self._cgroup.folders if self._cgroup else {}
        relay = (ground.python, "-I", "-S", f"{SUPPORT}/relay.py")
        return Program(
            argv=(
                *prelude.entering(doors, most_file_mb=limits.disk_mb),
                ground.program,
                *("--args", str(arguments), "--json-status-fd", str(status), "--"),
                *prelude.within_rlimits(
                    memory_mb=None if "memory" in kept else limits.memory_mb,
                    processes=None if "pids" in kept else limits.processes,
                ),
                *(
                    (*relay, str(GATEWAY_PORT), f"{SUPPORT}/gateway.sock", "--")
                    if self._relayed
                    else ()
                ),
                *command.argv,
            ),
            environment={"PATH": PATH, marks.VARIABLE: self._mark},
            stdin=command.stdin,
            most_output=command.most_output,
            hears=command.hears,
            passing=(arguments, status),
        )

    def _all_mounts(self) -> list[str]:
        """Return bubblewrap's words for all that does not differ from command to command."""
        spec, ground = self._spec, self._ground
        targets = [spec.root, *(mount.target for mount in spec.mounts)]
        words = list(ground.namespaces)
        if spec.network:
            words.append("--share-net")
        words += root_arguments(
            ground.support, rootfs=ground.rootfs, targets=targets, network=spec.network
        )
        words += [] if shutil.which("python3", path=PATH) else ground.for_python
        words += ["--bind", str(self._private / "tmp"), "/tmp"]  # noqa: S108 -- the box's own
        words += ["--bind", str(self._private / "home"), HOME]
        words += ["--perms", "1777", "--size", str(_SHM_BYTES), "--tmpfs", "/dev/shm"]  # noqa: S108
        words += ["--bind", str(self._folder), spec.root]
        for mount in spec.mounts:
            words += ["--bind" if mount.writable else "--ro-bind", mount.source, mount.target]
        if self._relayed and spec.gateway is not None:
            words += ["--ro-bind", str(_RELAY), f"{SUPPORT}/relay.py"]
            words += ["--ro-bind", spec.gateway.socket, f"{SUPPORT}/gateway.sock"]
        return [*words, "--remount-ro", "/dev", "--remount-ro", "/"]

    def _own_words(self, command: Command) -> list[str]:
        environment = {
            "PATH": PATH,
            "HOME": HOME,
            "USER": "agent",
            "LANG": "C.UTF-8",
            "TMPDIR": "/tmp",  # noqa: S108 -- the box's own
            "BAKEOFF_ROOT": self._spec.root,
            **self._spec.environment,
            **command.environment,
            marks.VARIABLE: self._mark,
        }
        words = ["--chdir", _inside(self._spec, command.cwd), "--clearenv"]
        for name, value in environment.items():
            words += ["--setenv", name, value]
        return words

    async def _gone(self, status: int, ended: Ended | None) -> None:
        """Wait until the namespaces are gone, and raise where bubblewrap itself failed."""
        told = _told(status)
        child = told.get("child-pid")
        until = asyncio.get_running_loop().time() + _DEATH_S
        while child is not None and _is_init(child):
            if asyncio.get_running_loop().time() > until:
                raise SandboxError(f"the processes of box {self._spec.label!r} do not end")
            await asyncio.sleep(0.002)
        if ended is not None and ended.stopped is None and "exit-code" not in told:
            raise SandboxError(f"bubblewrap could not start the command: {ended.output.strip()}")

    async def stop(self) -> None:
        """End every command."""
        await self._supervision.stop()
        if self._cgroup is not None and self._cgroup.processes():
            await asyncio.to_thread(self._cgroup.kill)

    async def change(self) -> tuple[bytes, tuple[str, ...]]:
        """Refuse: there is no image here to differ from."""
        raise SandboxError("a whole-box task needs a container: --sandbox docker")

    async def close(self) -> None:
        """End every command; take the private folders and the control group away."""
        await self.stop()
        if self._cgroup is not None:
            await asyncio.to_thread(self._cgroup.remove)
        await asyncio.to_thread(scratch.remove, self._private)


def _inside(spec: BoxSpec, cwd: str | None) -> str:
    """Return where in the box a command starts; what is relative is so to the root."""
    return os.path.normpath(Path(spec.root, cwd or spec.workdir))


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
