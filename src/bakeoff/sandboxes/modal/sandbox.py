"""The Modal sandbox: boxes in the cloud (extra `modal`).

The folder of a box is copied there when it opens and back when it stops; mounts are copied too. The
gateway of this machine cannot be reached from there, so external agent programs do not work on
Modal; agents whose model is called from here, such as `shell`, do, and so does grading. Modal
enforces the limits of memory and processors, but not of processes.
"""

import asyncio
import os
import posixpath
import re
import secrets
import shlex
import tarfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from bakeoff._lib import process_identity, scratch
from bakeoff._lib.digest import digest
from bakeoff._lib.process import BoundedOutput, run_to_completion
from bakeoff.core.errors import SandboxError, UsageError, boundary
from bakeoff.core.sandbox import Box, BoxSpec, Command, CommandResult
from bakeoff.core.workspace import Image, Network
from bakeoff.sandboxes.host import shell_limits
from bakeoff.sandboxes.host.imageless import WHOLE_BOX
from bakeoff.sandboxes.host.process_tags import VARIABLE
from bakeoff.sandboxes.host.shell_limits import StartMarker
from bakeoff.sandboxes.host.supervision import not_started, unstartable
from bakeoff.sandboxes.modal import sdk
from bakeoff.sandboxes.modal.sdk import ModalBoxSpec, Remote, Sdk, unavailable_reason

_KIND = {"bakeoff": "box"}
_CREATE_S = 900.0
_NOT_IN_A_TAG = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(kw_only=True)
class Modal:
    """Opens boxes on Modal under one app.

    A box lives at most `lifetime_s`, whatever happens to this machine. `add_python` is the version
    to add to images without Python, which Modal may require.
    """

    app: str = "bakeoff"
    default_image: str = "python:3.11-slim"
    lifetime_s: int = 4 * 3600
    add_python: str | None = None
    name: str = field(default="modal", init=False)
    isolates: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self._sdk = Sdk(self.app)
        self._images: dict[str, Any] = {}
        self._lock = asyncio.Lock()

    @staticmethod
    def available() -> str | None:
        """Return None where the SDK is installed and has a token, else what to do."""
        return unavailable_reason()

    async def image(self, image: Image | None) -> str:
        """Build the image on Modal, and return a name for it."""
        image_spec = image or Image(name=self.default_image)
        key = image_spec.name or f"bakeoff-{digest(image_spec.identity())}"
        async with self._lock:
            if key not in self._images:
                definition = self._define_image(image_spec)
                try:
                    await self._sdk.build(definition)
                except Exception as error:
                    raise UsageError(f"Modal cannot make the image {key!r}: {error}") from error
                self._images[key] = definition
        return key

    def _define_image(self, image: Image) -> Any:
        if image.context is None:
            name = image.name or self.default_image
            return self._sdk.image_by_name(name, add_python=self.add_python)
        folder = Path(image.context.path, image.context.subdir or "").resolve()
        dockerfile = folder / image.dockerfile
        if image.context.commit is not None or not dockerfile.is_file():
            raise UsageError(f"there is no {dockerfile} to build an image from")
        return self._sdk.image_from_dockerfile(
            dockerfile, folder, left_out=image.left_out, add_python=self.add_python
        )

    def check_network(self, network: Network) -> None:
        """Refuse a list of hosts: the allow-list proxy cannot run on Modal."""
        if not isinstance(network, bool) and network:
            raise UsageError(
                "a box on Modal cannot be held to a list of hosts; write network = true or false, "
                "or choose another sandbox: --sandbox docker"
            )

    async def open(self, spec: BoxSpec) -> Box:
        """Return a box on Modal that has a copy of the folder of *spec*."""
        _check(spec)
        self.check_network(spec.network)
        key = spec.image or await self.image(None)
        if key not in self._images:
            key = await self.image(Image(name=key))
        box_spec = ModalBoxSpec(
            image=self._images[key],
            lifetime_s=self.lifetime_s,
            block_network=not spec.network,
            memory_mb=spec.limits.memory_mb,
            cpus=spec.limits.cpus,
            tags={**_KIND, "owner": process_identity.current(), "label": _tag(spec.label)},
        )
        remote = await self._create(box_spec)
        box = ModalBox(remote, spec, tag=f"{process_identity.current()}-{secrets.token_hex(4)}")
        try:
            await box.send()
        except BaseException:
            await box.close()
            raise
        return box

    async def _create(self, box_spec: ModalBoxSpec) -> Remote:
        """Create a box; the request is not cancelled, because the box would keep running unnoticed."""
        created: list[Remote] = []

        async def create() -> None:
            with boundary(SandboxError, "modal"):
                async with asyncio.timeout(_CREATE_S):
                    created.append(await self._sdk.create(box_spec))

        try:
            await run_to_completion(create())
        except BaseException:
            for remote in created:
                await remote.terminate()
            raise
        return created[0]

    async def reap(self) -> Sequence[str]:
        """End the boxes whose owners are dead."""
        lines = []
        with boundary(SandboxError, "modal"):
            async for remote in self._sdk.running(_KIND):
                tag = (await remote.tags()).get("owner", "")
                if process_identity.is_dead(tag):
                    await remote.terminate()
                    lines.append(f"a box on Modal of {tag}")
        return lines

    async def close(self) -> None:
        """Do nothing: nothing is held for the whole run."""


def _check(spec: BoxSpec) -> None:
    if spec.gateway is not None:
        raise UsageError(
            "an agent that is a program of its own reaches its model through the gateway on this "
            "machine, which boxes on Modal cannot; use --sandbox docker, or the agent shell"
        )
    if spec.folder is None:
        raise UsageError(WHOLE_BOX)
    for mount in spec.mounts:
        if mount.writable:
            raise UsageError(f"{mount.target} cannot be written back from Modal: --sandbox docker")


def _tag(label: str) -> str:
    return _NOT_IN_A_TAG.sub("-", label)[:60] or "none"


_OWNER_MAY = 0o700  # files that come back must be readable and removable here


def pack(sources: Iterable[tuple[Path, str]], into: Path) -> None:
    """Write a tar of host paths, each at its path in the box."""
    with tarfile.open(into, "w", format=tarfile.PAX_FORMAT) as tar:
        for source, target in sources:
            tar.add(source, arcname=target.strip("/"), filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack(packed: Path, folder: Path, *, max_mb: int | None) -> None:
    """Unpack a tar into the empty *folder*; SandboxError where it is too large or not a tar."""
    try:
        _unpack(packed, folder, max_mb)
    except (tarfile.TarError, OSError, ValueError, OverflowError) as error:
        raise SandboxError(f"what the box sent back cannot be unpacked: {error}") from error


def _unpack(packed: Path, folder: Path, max_mb: int | None) -> None:
    links: list[tarfile.TarInfo] = []
    remaining = None if max_mb is None else max_mb << 20
    with tarfile.open(packed, "r:") as tar:
        for member in tar:
            if remaining is not None:
                remaining -= member.size
                if remaining < 0:
                    raise SandboxError(f"the box's files take more than its {max_mb} MB")
            if member.issym() or member.islnk():
                links.append(member)
            else:
                _put(tar, member, folder)
    for member in sorted(links, key=lambda link: link.issym()):  # hard links first
        _link(member, folder)


def _path_in(name: str, folder: Path) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise SandboxError(f"the box sent back a file with the name {name!r}")
    return folder / path


def _put(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    path = _path_in(member.name, folder)
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(member.mode & 0o777 | _OWNER_MAY)
        return
    content = tar.extractfile(member) if member.isreg() else None
    if content is None:
        return  # a FIFO or a device cannot be copied
    path.parent.mkdir(parents=True, exist_ok=True)
    with content, path.open("wb") as file:
        while chunk := content.read(1 << 20):
            file.write(chunk)
    path.chmod(member.mode & 0o777 | 0o400)
    os.utime(path, (member.mtime, member.mtime))


def _link(member: tarfile.TarInfo, folder: Path) -> None:
    path = _path_in(member.name, folder)
    if path.parent.resolve() != folder.resolve() / PurePosixPath(member.name).parent:
        raise SandboxError(f"the box sent back {member.name!r}, which leads through a link")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if member.issym():
        path.symlink_to(member.linkname)
    else:
        path.hardlink_to(_path_in(member.linkname, folder))


_ARCHIVE = "/tmp/.bakeoff.tar"  # noqa: S108 -- in the box, which has one user
_HOME = "/root"
_TRANSFER_S = 600.0
_KILL_S = 60.0
_CHECK_S = 0.2

_ENTER = 'exec 2>&1; cd -- "$1" && printf "%s\\n" "$2" || exit 126; shift 2; exec "$@"'

# By the tag in their environment, which a process keeps when it leaves its session.
_KILL = """\
for round in 1 2 3 4 5 6 7 8 9 10; do
  found=
  for path in /proc/[0-9]*; do
    if grep -aq "$1" "$path/environ" 2>/dev/null; then
      kill -9 "${path#/proc/}" 2>/dev/null && found=1
    fi
  done
  [ -n "$found" ] || exit 0
done
exit 1
"""


class ModalBox:
    """A running box on Modal; await `send` before the first command."""

    def __init__(self, remote: Remote, spec: BoxSpec, *, tag: str) -> None:
        self._remote = remote
        self._spec = spec
        self._tag = tag
        self._count = 0
        self._started_in: set[str] = set()
        self._stopped = False
        self._ended = False

    @property
    def gateway_url(self) -> str | None:
        """None: boxes on Modal cannot reach a gateway on this machine."""
        return None

    @property
    def refused_traffic(self) -> tuple[str, ...]:
        """Nothing: what Modal blocks is not visible here."""
        return ()

    async def send(self) -> None:
        """Copy the folder and the mounts into the box."""
        sources = [(Path(mount.source), mount.target) for mount in self._spec.mounts]
        if self._spec.folder is not None:
            sources.insert(0, (self._spec.folder, self._spec.root))
        private = scratch.new_folder("modal")
        try:
            packed = private / "sent.tar"
            await asyncio.to_thread(pack, sources, packed)
            with boundary(SandboxError, "modal: sending the files"):
                async with asyncio.timeout(_TRANSFER_S):
                    await self._remote.put(packed, _ARCHIVE)
            await self._run_script(f"tar -xf {_ARCHIVE} -C / && rm {_ARCHIVE}", time_s=_TRANSFER_S)
        finally:
            await asyncio.to_thread(scratch.remove, private)

    # --- commands ---------------------------------------------------------------------------------

    async def run(self, command: Command) -> CommandResult:
        """Run *command*; at its time limit, it is killed with all processes that carry its tag."""
        if self._stopped:
            raise SandboxError("the box has been stopped: nothing can be run in it any more")
        if (ran := unstartable(command)) is not None:
            return ran
        self._count += 1
        tag, output = f"{self._tag}.{self._count}.", BoundedOutput(command.most_output)

        def on_chunk(chunk: bytes) -> None:
            output.add(chunk)
            if command.on_output is not None:
                command.on_output(chunk)

        began = time.monotonic()
        marker = StartMarker(f"started-{secrets.token_hex(8)}", on_chunk)
        code = await self._run_to_end(command, tag, marker)
        stopped = self._why_stopped(command, code)
        if stopped is None and not marker.started:
            why = f"{command.argv[0]!r} could not be started: {output.text().strip()}"
            if self._start_of(command) in self._started_in:  # earlier commands made that impossible
                return not_started(why)
            raise SandboxError(why)
        self._started_in.add(self._start_of(command))
        return CommandResult(
            code=None if stopped else code,
            output=output.text(),
            elapsed_s=time.monotonic() - began,
            stopped=stopped,
            truncated=output.truncated,
        )

    def _start_of(self, command: Command) -> str:
        return posixpath.join(self._spec.root, command.cwd or self._spec.workdir)

    def _why_stopped(self, command: Command, code: int | None) -> str | None:
        if self._stopped:
            return "the box was stopped"
        return None if code is not None else f"its time was over after {command.time_s:g} s"

    async def _run_to_end(self, command: Command, tag: str, marker: StartMarker) -> int | None:
        """Return the exit code; None where the command reached its time limit and was killed."""
        limit = self._spec.limits.disk_mb
        enter = _ENTER if limit is None else f"{shell_limits.file_size_limit(limit)}; {_ENTER}"
        start = self._start_of(command)
        argv = ("sh", "-c", enter, "sh", start, marker.marker, *command.argv)
        following = asyncio.create_task(
            self._follow(argv, self._environment(command.environment, tag), command.stdin, marker)
        )
        try:
            done, _ = await asyncio.wait([following], timeout=command.time_s)
        except asyncio.CancelledError:
            await run_to_completion(self._kill(tag))
            following.cancel()
            raise
        if done:
            with boundary(SandboxError, "modal"):
                return following.result()
        await run_to_completion(self._kill(tag))
        await asyncio.wait([following], timeout=_CHECK_S)  # for the rest of its output
        following.cancel()
        return None

    async def _follow(
        self,
        argv: tuple[str, ...],
        environment: Mapping[str, str],
        stdin: bytes,
        marker: StartMarker,
    ) -> int:
        process: Any = await self._remote.start(argv, environment=environment)
        feeding = asyncio.create_task(sdk.feed(process, stdin))
        try:
            async for chunk in sdk.output(process):
                marker(chunk)
            return await sdk.code(process)
        finally:
            feeding.cancel()  # a command may leave input unread

    def _environment(self, of_command: Mapping[str, str], tag: str) -> dict[str, str]:
        defaults = {"HOME": _HOME, "LANG": "C.UTF-8", "BAKEOFF_ROOT": self._spec.root}
        return {**defaults, **self._spec.environment, **of_command, VARIABLE: tag}

    async def _run_script(self, script: str, *arguments: str, time_s: float) -> None:
        """Run an internal script, which must succeed in time."""
        output = BoundedOutput(2000)
        with boundary(SandboxError, "modal"):
            async with asyncio.timeout(time_s):
                process = await self._remote.start(
                    ("sh", "-c", f"exec 2>&1; {script}", "sh", *arguments), environment={}
                )
                async for chunk in sdk.output(process):
                    output.add(chunk)
                code = await sdk.code(process)
        if code != 0:
            raise SandboxError(f"modal: {shlex.quote(script)} gave {code}: {output.text().strip()}")

    async def _kill(self, tag: str) -> None:
        """Kill the processes that carry *tag*; if that fails, end the whole box."""
        try:
            await self._run_script(_KILL, f"{VARIABLE}={tag}", time_s=_KILL_S)
        except SandboxError:
            await self._end()
            raise

    # --- the end ----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """End every process, copy the folder back, end the box."""
        if self._stopped:
            return
        self._stopped = True
        await self._kill(f"{self._tag}.")
        if self._spec.folder is not None:
            await self._fetch_folder(self._spec.folder)
        await self._end()

    async def _fetch_folder(self, folder: Path) -> None:
        root = shlex.quote(self._spec.root)
        await self._run_script(f"tar -cf {_ARCHIVE} -C {root} .", time_s=_TRANSFER_S)
        private = scratch.new_folder("modal")
        try:
            packed = private / "got.tar"
            await self._download(packed)
            unpacked = private / "files"
            unpacked.mkdir()
            limit = self._spec.limits.disk_mb
            await asyncio.to_thread(unpack, packed, unpacked, max_mb=limit)
            await asyncio.to_thread(_replace, folder, unpacked)
        finally:
            await asyncio.to_thread(scratch.remove, private)

    async def _download(self, packed: Path) -> None:
        """Download the archive, up to the size that the box's disk may have."""
        limit = self._spec.limits.disk_mb
        getting = asyncio.create_task(self._remote.get(_ARCHIVE, packed))
        until = time.monotonic() + _TRANSFER_S
        try:
            while not (await asyncio.wait([getting], timeout=_CHECK_S))[0]:
                arrived = sum(path.stat().st_size for path in packed.parent.iterdir())
                if limit is not None and arrived > 2 * (limit << 20):
                    raise SandboxError(f"the box's files take more than its {limit} MB")
                if time.monotonic() > until:
                    raise SandboxError(f"the files did not come back within {_TRANSFER_S:g} s")
            with boundary(SandboxError, "modal: bringing the files back"):
                getting.result()
        finally:
            getting.cancel()

    async def change(self) -> tuple[bytes, tuple[str, ...]]:
        """Refuse: only the folder is copied back."""
        raise SandboxError(WHOLE_BOX)

    async def close(self) -> None:
        """End the box; its files are lost unless it was stopped first."""
        self._stopped = True
        await run_to_completion(self._end())

    async def _end(self) -> None:
        if not self._ended:
            with boundary(SandboxError, "modal: ending the box"):
                await self._remote.terminate()
            self._ended = True


def _replace(folder: Path, unpacked: Path) -> None:
    """Replace the content of *folder* by that of *unpacked*."""
    for old in list(folder.iterdir()):
        scratch.remove(old)
    for new in list(unpacked.iterdir()):
        new.rename(folder / new.name)
