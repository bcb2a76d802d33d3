"""The local sandbox: commands run on the host, as this user, in a folder, without isolation.

A command sees the box's files at their path on the host, not at the box's root. `BAKEOFF_ROOT` holds
that path, and an argument, variable or working directory that is a path under the root or a mount
is translated. A path inside a script is not.
"""

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from bakeoff._lib import scratch
from bakeoff._lib.process import Child, ProcessResult, Program
from bakeoff.core.errors import SandboxError
from bakeoff.core.sandbox import Box, BoxSpec, Command, CommandResult
from bakeoff.core.workspace import Image
from bakeoff.sandboxes.host import cgroups, process_tags, shell_limits
from bakeoff.sandboxes.host.cgroups import Cgroups
from bakeoff.sandboxes.host.cleanup import BoxResources, reap
from bakeoff.sandboxes.host.imageless import WHOLE_BOX, refuse_image, refuse_whole_box
from bakeoff.sandboxes.host.supervision import Supervision, not_started, unstartable


class Local:
    """Opens boxes that are a private folder and a process group.

    Programs are looked up on *path*, by default that of this process.
    """

    name = "local"
    isolates = False

    def __init__(self, *, path: str | None = None) -> None:
        self._path = path
        self._cgroups: asyncio.Task[Cgroups | None] | None = None

    @classmethod
    def available(cls) -> str | None:
        """Return None where there is a shell, which is all that it needs."""
        return None if shutil.which("sh", path=os.defpath) else "there is no sh on this machine"

    async def image(self, image: Image | None) -> None:
        """Refuse an image: only containers can start from one."""
        refuse_image(image, sandbox="the local sandbox")

    async def open(self, spec: BoxSpec) -> Box:
        """Return a box that is ready."""
        refuse_whole_box(spec)
        if self._cgroups is None:
            self._cgroups = asyncio.create_task(asyncio.to_thread(cgroups.find))
        path = self._path or os.environ.get("PATH", os.defpath)  # it uses the host's programs
        try:
            return _LocalBox(spec, path=path, groups=await asyncio.shield(self._cgroups))
        except OSError as error:
            raise SandboxError(f"no box can be opened: {error}") from error

    async def reap(self) -> Sequence[str]:
        """Remove the control groups, processes and folders of dead runs."""
        return await asyncio.to_thread(reap)

    async def close(self) -> None:
        """Wait until the folders of closed boxes are removed."""
        await asyncio.to_thread(scratch.wait_removed)


class _LocalBox:
    """A folder, a home and a temp folder; its processes carry the box's tag."""

    def __init__(self, spec: BoxSpec, *, path: str, groups: Cgroups | None) -> None:
        self._spec = spec
        self._path = path
        self._commands = 0
        self._started_in: set[str] = set()
        self._resources = BoxResources(spec, groups)
        self._host_paths = {mount.target: mount.source for mount in spec.mounts}
        self._host_paths[spec.root] = str(self._resources.folder)
        self._supervision = Supervision(
            spec.limits, cgroup=self._resources.cgroup, disk=self._resources.disk
        )

    @property
    def gateway_url(self) -> str | None:
        """The URL of the gateway on the host."""
        return None if self._spec.gateway is None else self._spec.gateway.url

    @property
    def refused_traffic(self) -> tuple[str, ...]:
        """Nothing: commands use the host's network."""
        return ()

    async def run(self, command: Command) -> CommandResult:
        """Run *command* in the folder; what it leaves running continues until `stop`."""
        if (ran := unstartable(command)) is not None:
            return ran
        self._commands += 1
        tag = f"{self._resources.tag}.{self._commands}"

        async def after(ended: ProcessResult | None) -> None:
            if ended is None or ended.stopped is not None:  # also what left the process group
                await asyncio.to_thread(process_tags.kill, process_tags.has_tag(tag))

        cwd = self._on_host(str(PurePosixPath(self._spec.root, command.cwd or self._spec.workdir)))
        if not _is_folder(cwd):
            why = f"there is no folder {cwd!r} for {command.argv[0]!r} to start in"
            if cwd in self._started_in:
                return not_started(why)
            raise SandboxError(why)
        self._started_in.add(cwd)
        program = self._program(command, cwd, tag)
        return await self._supervision.run(command, lambda: Child(program), after)

    def _program(self, command: Command, cwd: str, tag: str) -> Program:
        environment = {
            "PATH": self._path,
            "HOME": str(self._resources.home),
            "LANG": "C.UTF-8",
            "TMPDIR": str(self._resources.temp),
            "BAKEOFF_ROOT": str(self._resources.folder),
            **self._spec.environment,
            **command.environment,
        }
        return Program(
            argv=(
                *shell_limits.enter_cgroups(
                    self._resources.entry_files, max_file_mb=self._spec.limits.disk_mb
                ),
                *(self._on_host(path) for path in command.argv),
            ),
            environment={
                **{name: self._each_on_host(value) for name, value in environment.items()},
                process_tags.VARIABLE: tag,
            },
            cwd=cwd,
            stdin=command.stdin,
            most_output=command.most_output,
            on_output=command.on_output,
            keeps_children=True,
        )

    def _each_on_host(self, value: str) -> str:
        return ":".join(self._on_host(part) for part in value.split(":"))

    def _on_host(self, path: str) -> str:
        """Translate a path of the box to one of the host, by the deepest mount."""
        for target in sorted(self._host_paths, key=len, reverse=True):
            if path == target or path.startswith(f"{target.rstrip('/')}/"):
                return self._host_paths[target] + path[len(target.rstrip("/")) :]
        return path

    async def stop(self) -> None:
        """End every process that carries the box's tag or is in its control group."""
        await self._supervision.stop()
        await asyncio.to_thread(self._kill)

    def _kill(self) -> None:
        if self._resources.cgroup is not None:
            self._resources.cgroup.kill()
        process_tags.kill(process_tags.has_tag(self._resources.tag))

    async def change(self) -> tuple[bytes, tuple[str, ...]]:
        """Refuse: there is no image here to differ from."""
        raise SandboxError(WHOLE_BOX)

    async def close(self) -> None:
        """End every process; remove the private folders and the control group."""
        await self.stop()
        await asyncio.to_thread(self._resources.remove)


def _is_folder(path: str) -> bool:
    return Path(path).is_dir()
