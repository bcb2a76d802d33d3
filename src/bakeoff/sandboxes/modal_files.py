"""Files on their way to a box elsewhere and back, as one tar.

What comes back was made by an agent. It is unpacked into an empty folder: first folders and plain
files, and only then links, so that no name can lead through a link to anywhere else.
"""

import os
import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from bakeoff.core.errors import SandboxError

_OWNER_MAY = 0o700  # what comes back must be readable and removable here


def pack(sources: Iterable[tuple[Path, str]], into: Path) -> None:
    """Write a tar of host paths, each at its place in the box."""
    with tarfile.open(into, "w", format=tarfile.PAX_FORMAT) as tar:
        for source, target in sources:
            tar.add(source, arcname=target.strip("/"), filter=_nobodys)


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack(packed: Path, folder: Path, *, most_mb: int | None) -> None:
    """Fill the empty *folder* from a tar; SandboxError where it holds too much or is none."""
    try:
        _unpack(packed, folder, most_mb)
    except (tarfile.TarError, OSError, ValueError, OverflowError) as error:
        raise SandboxError(f"what the box sent back cannot be unpacked: {error}") from error


def _unpack(packed: Path, folder: Path, most_mb: int | None) -> None:
    links: list[tarfile.TarInfo] = []
    room = None if most_mb is None else most_mb << 20
    with tarfile.open(packed, "r:") as tar:
        for member in tar:
            if room is not None:
                room -= member.size
                if room < 0:
                    raise SandboxError(f"the box's files take more than its {most_mb} MB")
            if member.issym() or member.islnk():
                links.append(member)
            else:
                _put(tar, member, folder)
    for member in sorted(links, key=lambda one: one.issym()):  # hard links first
        _link(member, folder)


def _place(name: str, folder: Path) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise SandboxError(f"the box sent back a file with the name {name!r}")
    return folder / path


def _put(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    place = _place(member.name, folder)
    if member.isdir():
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(member.mode & 0o777 | _OWNER_MAY)
        return
    content = tar.extractfile(member) if member.isreg() else None
    if content is None:
        return  # a FIFO or a device is nothing that can be kept
    place.parent.mkdir(parents=True, exist_ok=True)
    with content, place.open("wb") as file:
        while piece := content.read(1 << 20):
            file.write(piece)
    place.chmod(member.mode & 0o777 | 0o400)
    os.utime(place, (member.mtime, member.mtime))


def _link(member: tarfile.TarInfo, folder: Path) -> None:
    place = _place(member.name, folder)
    if place.parent.resolve() != folder.resolve() / PurePosixPath(member.name).parent:
        raise SandboxError(f"the box sent back {member.name!r}, which leads through a link")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    if member.issym():
        place.symlink_to(member.linkname)
    else:
        place.hardlink_to(_place(member.linkname, folder))
