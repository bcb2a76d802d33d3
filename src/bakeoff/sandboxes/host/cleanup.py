"""The host resources of a box (folders, control group, disk watch), and cleanup after dead runs."""

from pathlib import Path

from bakeoff._lib import scratch
from bakeoff.core.sandbox import BoxSpec
from bakeoff.sandboxes.host import cgroups, process_tags
from bakeoff.sandboxes.host.cgroups import Cgroup, Cgroups
from bakeoff.sandboxes.host.disk_watch import DiskWatch


def reap() -> list[str]:
    """Remove control groups, processes and folders of dead runs; return a line for each."""
    lines = cgroups.reap()
    killed = process_tags.kill(process_tags.has_dead_owner)
    if killed:
        lines.append(f"{killed} processes")
    return [*lines, *(f"folder {folder}" for folder in scratch.reap())]


class BoxResources:
    """A box's home, temp folder, folder for the files if none is given, and control group."""

    def __init__(self, spec: BoxSpec, groups: Cgroups | None) -> None:
        self.tag = process_tags.new_tag()
        self._private = scratch.new_folder("box")
        self.home = self._private / "home"
        self.temp = self._private / "tmp"
        self.folder = spec.folder or self._private / "files"
        self.cgroup: Cgroup | None = None
        try:
            for path in (self.home, self.temp, *([] if spec.folder else [self.folder])):
                path.mkdir()
            self.temp.chmod(0o1777)
            if groups is not None:
                self.cgroup = groups.make(self.tag, spec.limits)
            self.disk = self._watch(spec.limits.disk_mb)
        except OSError:
            self.remove()
            raise

    @property
    def entry_files(self) -> list[Path]:
        """The files that a command writes to in order to enter the control group."""
        return self.cgroup.entry_files if self.cgroup else []

    def _watch(self, max_mb: int | None) -> DiskWatch | None:
        """Return the watch over everything that the box can write; None where it has no limit."""
        if max_mb is None:
            return None
        processes_of = self.cgroup.processes if self.cgroup else None
        return DiskWatch((self.folder, self._private), max_mb, processes=processes_of)

    def remove(self) -> None:
        """Remove everything except a given folder, files in the background; no process may be left."""
        try:
            if self.cgroup is not None:
                self.cgroup.remove()
        finally:
            scratch.remove_later(self._private)
