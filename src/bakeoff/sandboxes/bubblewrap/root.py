"""The file system that a command in bubblewrap sees: the host's programs, none of its users' files.

The host's programs and libraries, and the few files of /etc that they need, are mounted read-only.
/home, /root, /var, /run and the rest of /etc are not shown. Where this process is root, files that
only root may read are not shown either: the user in the box is 1000, but accesses the host's files
as root.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath

from bakeoff.sandboxes.egress.uplink import NAMESERVER

HOME = "/home/agent"
SUPPORT = "/run/bakeoff"
_RELAY = Path(__file__).parents[1] / "relay_programs" / "relay.py"
_PROGRAMS = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_BOX_FOLDERS = ("proc", "dev", "sys", "tmp", "run", "home", "root")  # of an unpacked image
_PYTHONS = ("usr/bin/python3", "usr/local/bin/python3", "bin/python3")
_ETC_FOLDERS = ("alternatives", "pki/ca-trust/extracted", "pki/tls/certs", "ssl/certs")
_ETC_FILES = (
    "ca-certificates.conf",
    "debian_version",
    "ld.so.cache",
    "localtime",
    "mime.types",
    "os-release",
    "pki/tls/openssl.cnf",
    "protocols",
    "services",
    "ssl/openssl.cnf",
    "timezone",
)
_ETC_CONTENT = {
    "passwd": f"root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:{HOME}:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "group": "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost box\n::1 localhost\n",
    "hostname": "box\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "gitconfig": "[safe]\n\tdirectory = *\n",
}


def write_support(folder: Path) -> None:
    """Write the files that every box shows in addition to the host's: its own /etc.

    They are copies, because each mount makes every command slower.
    """
    etc = folder / "etc"
    etc.mkdir()
    for name in _etc_folders():
        (etc / name).mkdir(parents=True)
    for name in _ETC_FILES:
        source, target = Path("/etc", name), etc / name
        if os.access(source, os.R_OK):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target, follow_symlinks=False)
    for name, text in _ETC_CONTENT.items():
        (etc / name).write_text(text)
    (etc / "resolv.conf").touch()
    (folder / "resolv.conf").write_text(f"nameserver {NAMESERVER}\n")
    (folder / "nothing").mkdir()
    # a copy: a box sees the host path of each mount in its list of mounts
    shutil.copyfile(_RELAY, folder / "relay.py")


def _etc_folders() -> list[str]:
    return [name for name in _ETC_FOLDERS if Path("/etc", name).is_dir()]


def python_of(rootfs: Path | None) -> tuple[str | None, list[str]]:
    """Return the python3 of a box, and the mounts that it needs if it is this process's own."""
    root = rootfs or Path("/")
    for name in _PYTHONS:
        if (root / name).is_file():
            return f"/{name}", []
    if rootfs is not None:
        return None, []  # this process's own needs libraries that may be missing there
    prefix = sys.base_prefix
    return f"{prefix}/bin/python3", ["--ro-bind", prefix, prefix]


@lru_cache(maxsize=256)  # most boxes of a run have the same arguments
def root_arguments(
    support: Path, *, rootfs: Path | None, targets: tuple[str, ...], resolver: Path | None
) -> tuple[str, ...]:
    """Return bubblewrap's arguments for the file system that all boxes share.

    *targets* are paths where something will be mounted later; *resolver* is the resolv.conf of a box
    with a network.
    """
    mount_points = [PurePosixPath(target) for target in (*targets, HOME, "/tmp", SUPPORT)]  # noqa: S108
    arguments: list[str] = []
    if rootfs is None:
        for name in _PROGRAMS:
            arguments += _shown(Path("/", name), PurePosixPath("/", name), mount_points)
        arguments += _etc(support)
        if _has_entries(Path("/usr/local/etc")):
            arguments += ["--ro-bind", str(support / "nothing"), "/usr/local/etc"]
    else:
        arguments += _image(rootfs, mount_points)
    if resolver is not None and (rootfs is None or (rootfs / "etc/resolv.conf").is_file()):
        arguments += ["--ro-bind", str(resolver), "/etc/resolv.conf"]
    if rootfs is None or not (rootfs / "var").is_symlink():
        arguments += ["--symlink", "../tmp", "/var/tmp"]  # noqa: S108 -- the box's own
    return (*arguments, *_kernel())


def _image(rootfs: Path, mount_points: list[PurePosixPath]) -> Iterator[str]:
    """Show an unpacked image except for the folders that are the box's own."""
    for entry in sorted(rootfs.iterdir()):
        target = PurePosixPath("/", entry.name)
        if (
            entry.name == "var" and not entry.is_symlink()
        ):  # its tmp is the box's own, the rest is not
            yield from ("--dir", str(target))
            for inner in sorted(entry.iterdir()):
                if inner.name != "tmp":
                    yield from _shown(inner, target / inner.name, mount_points)
        elif entry.name not in _BOX_FOLDERS:
            yield from _shown(entry, target, mount_points)


def _shown(source: Path, target: PurePosixPath, mount_points: list[PurePosixPath]) -> Iterator[str]:
    """Show *source* read-only; entry by entry where a mount point below it is missing."""
    if source.is_symlink():
        yield from ("--symlink", str(source.readlink()), str(target))
        return
    if not source.is_dir():
        if source.exists():
            yield from ("--ro-bind", str(source), str(target))
        return
    below = [mount_point for mount_point in mount_points if target in mount_point.parents]
    if all((source / mount_point.relative_to(target)).exists() for mount_point in below):
        yield from ("--ro-bind", str(source), str(target))
        return
    yield from ("--dir", str(target))
    for entry in sorted(source.iterdir()):
        yield from _shown(entry, target / entry.name, below)


def _etc(support: Path) -> list[str]:
    arguments = ["--ro-bind", str(support / "etc"), "/etc"]
    for name in _etc_folders():
        arguments += ["--ro-bind", f"/etc/{name}", f"/etc/{name}"]
    return arguments


def _kernel() -> list[str]:
    # read-only: some kernel files check only the user and not capabilities, and through
    # /proc/PID/mem a program could rewrite the one that grades it
    return ["--proc", "/proc", "--dev", "/dev", "--dir", "/run", "--remount-ro", "/proc"]


def _has_entries(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())
