"""Control groups, version 1 or 2, with which the kernel enforces the limits of a whole box.

Version 1 has a tree per controller; version 2 has one tree, of which an ordinary user may own a
part or nothing. `find` detects what this process may use.
"""

import errno
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bakeoff._lib import process_identity
from bakeoff.core.workspace import BoxLimits
from bakeoff.sandboxes.host.process_tags import kill_if_running

PREFIX = "bakeoff-"
CONTROLLERS = ("memory", "pids", "cpu")
_OWN_PROCESSES = 3  # the sandbox's own processes in the box: two of bubblewrap, one relay
_PERIOD_US = 100_000
_REMOVE_TIMEOUT_S = 5.0
_MAX_DEPTH = 8


@dataclass(frozen=True, kw_only=True)
class Cgroups:
    """The parent groups under which this process may create groups, by controller."""

    version: int
    parents: Mapping[str, Path]

    def make(self, tag: str, limits: BoxLimits) -> "Cgroup":
        """Create a group with the limits of a box; OSError where that fails."""
        needed = ("memory", "pids") if limits.cpus is None else CONTROLLERS
        folders = {n: p / f"{PREFIX}{tag}" for n, p in self.parents.items() if n in needed}
        group = Cgroup(version=self.version, folders=folders)
        try:
            for folder in set(folders.values()):
                folder.mkdir()
            group.limit(limits)
        except OSError:
            group.remove()
            raise
        return group


@dataclass(frozen=True, kw_only=True)
class Cgroup:
    """The control group of one box."""

    version: int
    folders: Mapping[str, Path]

    @property
    def entry_files(self) -> list[Path]:
        """The files to which a single-threaded process writes 0 to enter the group.

        In version 1 it is the file for threads: the one for processes makes the kernel wait for an
        RCU grace period, which takes longer than the rest of starting a box.
        """
        name = "tasks" if self.version == 1 else "cgroup.procs"
        return sorted({folder / name for folder in self.folders.values()})

    def limit(self, limits: BoxLimits) -> None:
        """Set the limits that can be enforced here."""
        v1 = self.version == 1
        if limits.memory_mb is not None and "memory" in self.folders:
            limit = str(limits.memory_mb << 20)
            self._set("memory", "memory.limit_in_bytes" if v1 else "memory.max", limit)
            # swap counts as memory; a kernel without swap accounting has no such file
            swap, swap_limit = (
                ("memory.memsw.limit_in_bytes", limit) if v1 else ("memory.swap.max", "0")
            )
            if (self.folders["memory"] / swap).exists():
                self._set("memory", swap, swap_limit)
        if limits.processes is not None and "pids" in self.folders:
            self._set("pids", "pids.max", str(limits.processes + _OWN_PROCESSES))
        if limits.cpus is not None and "cpu" in self.folders:
            quota = max(1000, int(limits.cpus * _PERIOD_US))
            if v1:
                self._set("cpu", "cpu.cfs_period_us", str(_PERIOD_US))
                self._set("cpu", "cpu.cfs_quota_us", str(quota))
            else:
                self._set("cpu", "cpu.max", f"{quota} {_PERIOD_US}")

    def _set(self, controller: str, name: str, value: str) -> None:
        (self.folders[controller] / name).write_text(value)

    @property
    def oom_kills(self) -> int:
        """How many processes were killed because the box ran out of memory."""
        if "memory" not in self.folders:
            return 0
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        for line in (self.folders["memory"] / name).read_text().splitlines():
            key, _, count = line.partition(" ")
            if key == "oom_kill":
                return int(count)
        return 0

    def processes(self) -> set[int]:
        """Return the ids of the processes in the group."""
        pids: set[int] = set()
        for folder in self.folders.values():
            try:
                text = (folder / "cgroup.procs").read_text()
                pids.update(int(pid) for pid in text.split())
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENODEV):  # removed by another process
                    raise
        return pids

    def kill(self) -> int:
        """Kill processes of the group until there is none, and return how many there were."""
        killed: set[int] = set()
        until = time.monotonic() + _REMOVE_TIMEOUT_S
        while (pids := self.processes()) and time.monotonic() < until:
            for pid in pids:
                kill_if_running(pid)
            killed |= pids
            time.sleep(0.001)
        return len(killed)

    def remove(self) -> None:
        """Remove the group, whose processes must have ended."""
        for folder in set(self.folders.values()):
            _remove(folder)


def _remove(folder: Path) -> None:
    until = time.monotonic() + _REMOVE_TIMEOUT_S
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.002)  # the last process has ended but the kernel has not released it yet
        else:
            return


def find() -> Cgroups | None:
    """Return where this process may create and enter groups; None where nowhere."""
    try:
        own = Path("/proc/self/cgroup").read_text()
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return None
    v1 = {name: path for name, path in _version_1(own, mounts).items() if _can_enter(path)}
    if "memory" in v1 or "pids" in v1:
        return Cgroups(version=1, parents=v1)
    for parent in _version_2(own, mounts):
        if _can_enter(parent):
            offered = (parent / "cgroup.subtree_control").read_text().split()
            return Cgroups(version=2, parents={n: parent for n in CONTROLLERS if n in offered})
    return None


def _version_1(own: str, mounts: str) -> dict[str, Path]:
    """Return this process's group in the tree of each controller."""
    groups = {}
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        for name in set(controllers.split(",")) & set(CONTROLLERS):
            for mount in mounts.splitlines():
                group = _mounted(mount, "cgroup", path)
                if group is not None and name in mount.rpartition(" ")[2].split(","):
                    groups[name] = group
    return groups


def _version_2(own: str, mounts: str) -> list[Path]:
    """Return where groups may be created; seldom our own group, which contains processes."""
    for line in own.splitlines():
        if line.startswith("0::"):
            for mount in mounts.splitlines():
                group = _mounted(mount, "cgroup2", line[3:])
                if group is not None:
                    top = Path(mount.split(" ")[4])
                    ancestors = [p for p in group.parents if p == top or top in p.parents]
                    return [p for p in (group, *ancestors) if _offers_controllers(p)]
    return []


def _offers_controllers(folder: Path) -> bool:
    try:
        offered = (folder / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    return "memory" in offered and "pids" in offered


def _mounted(mount: str, kind: str, path: str) -> Path | None:
    """Return the folder of a group's *path* by one line of mountinfo; None if it is another mount."""
    before, _, after = mount.partition(" - ")
    if after.split(" ")[0] != kind:
        return None
    root, point = before.split(" ")[3:5]
    inner = path.removeprefix(root.rstrip("/")) if path.startswith(root.rstrip("/")) else ""
    return Path(point, inner.lstrip("/"))


def _can_enter(parent: Path) -> bool:
    """Whether a child process can enter a new group under *parent*; tries it."""
    if not os.access(parent, os.W_OK):
        return False
    probe = parent / f"{PREFIX}{process_identity.current()}-probe{time.monotonic_ns()}"
    try:
        probe.mkdir()
    except OSError:
        return False
    try:
        entry = ["/bin/sh", "-c", 'echo 0 > "$1"', "sh", str(probe / "cgroup.procs")]
        completed = subprocess.run(entry, capture_output=True, check=False, env={})
        return completed.returncode == 0
    finally:
        _remove(probe)


def reap() -> list[str]:
    """Kill and remove the groups of dead owners; return a line for each."""
    lines = []
    for folder in _orphaned_groups():
        try:
            count = Cgroup(version=1, folders={"any": folder}).kill()
            _remove(folder)
        except OSError:
            continue  # the kernel still holds a process of it; no run has to wait for that
        lines.append(f"control group {folder} with {count} processes")
    return lines


def _orphaned_groups() -> list[Path]:
    top = Path("/sys/fs/cgroup")
    orphans = []
    for folder, names, _ in os.walk(top):
        if len(Path(folder).parts) - len(top.parts) > _MAX_DEPTH:
            names.clear()
        for name in [name for name in names if name.startswith(PREFIX)]:
            names.remove(name)
            tag = process_identity.find(name)
            if tag is not None and process_identity.is_dead(tag) and _is_ours(Path(folder, name)):
                orphans.append(Path(folder, name))
    return orphans


def _is_ours(folder: Path) -> bool:
    """Whether this user may remove a group; other users remove their own."""
    try:
        return os.geteuid() in (0, folder.stat().st_uid)
    except FileNotFoundError:
        return False
