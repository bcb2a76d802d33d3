"""The change of a container against its image, as an archive, and how to apply it again.

The archive is filtered from tars of the engine as a stream, of the changed paths or of everything:
nothing is unpacked on the host, where names and links chosen by an agent could do harm.
"""

import gzip
import io
import os
import posixpath
import re
import stat
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import ChangeTooLargeError, SandboxError
from bakeoff.core.workspace import IN_IMAGE

# Not part of the work: kernel files, temporary files, and caches of apt.
_LEFT_OUT = tuple(
    f"/{path}"
    for path in (
        *("proc", "sys", "dev", "tmp", "var/tmp", "run", "logs"),
        *("var/cache/apt", "var/lib/apt/lists", ".dockerenv"),
    )
)
_ENTRY = re.compile(r"([ACD]) (/.+)")
_IN_A_NAME = re.compile(r"\n[ACD] /")
_CHUNK = 1 << 20
_MAX_FETCHED = 16  # then an export of everything is as fast
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_IS_ELSEWHERE = "trusted.overlay.metacopy"  # set by the kernel, for root to see
_PAX_NAMES = frozenset({"path", "linkpath"})

# Prepares for an archive: removes deleted paths, and whatever is of another kind than the new entry.
_CLEAR = """\
for word; do
  path=${word#?}
  case $word in
    G*) rm -rf -- "$path" ;;
    D*) if [ -L "$path" ] || { [ -e "$path" ] && [ ! -d "$path" ]; }; then rm -f -- "$path"; fi ;;
    F*) if [ -d "$path" ] && [ ! -L "$path" ]; then rm -rf -- "$path"; fi ;;
  esac
done
"""
CLEAR = ("xargs", "-0", "-n", "500", "sh", "-c", _CLEAR, "sh")


@value_object
class Differences:
    """The paths that a container added or changed, and those that it deleted.

    Engines print names unescaped, so a line break in one makes it ambiguous. `included` may contain
    names that no file has; `in_image` are those that also exist in the image. Paths of `perhaps_gone`
    that still exist were not deleted. `printed` is the engine's output, for names that look like
    several entries.
    """

    included: frozenset[str]
    in_image: frozenset[str]
    gone: tuple[str, ...]
    perhaps_gone: frozenset[str]
    left_out: tuple[str, ...]
    printed: str

    def __contains__(self, path: object) -> bool:
        """Whether a file at *path* is part of the change."""
        if path in self.included:
            return True
        if not isinstance(path, str) or not _IN_A_NAME.search(path):
            return False
        listed = any(f"\n{kind} {path}\n" in self.printed for kind in "AC")
        return listed and not _is_under(path, self.left_out)


def read_differences(printed: str, own: Iterable[str]) -> Differences:
    """Parse the output of `diff`, without what is not part of the work; *own* are our mounts."""
    left_out = (*_LEFT_OUT, *own)
    included: set[str] = set()
    in_image: set[str] = set()
    gone: set[str] = set()
    perhaps_gone: set[str] = set()
    for kind, names in _entries(printed):
        paths = {name for name in names if not _is_under(name, left_out)}
        if kind != "D":
            included |= paths
            in_image |= paths if kind == "C" else set()
        elif len(names) == 1:
            gone |= paths
        else:
            perhaps_gone |= paths
    return Differences(
        included=frozenset(included),
        in_image=frozenset(in_image),
        gone=tuple(sorted(gone)),
        perhaps_gone=frozenset(perhaps_gone),
        left_out=left_out,
        printed=f"\n{printed}",
    )


def differences(changes: Iterable[tuple[str, str]], own: Iterable[str]) -> Differences:
    """Return the differences by kind and exact path, without what is not part of the work."""
    left_out = (*_LEFT_OUT, *own)
    kept = [(kind, path) for kind, path in changes if not _is_under(path, left_out)]
    return Differences(
        included=frozenset(path for kind, path in kept if kind != "D"),
        in_image=frozenset(path for kind, path in kept if kind == "C"),
        gone=tuple(sorted(path for kind, path in kept if kind == "D")),
        perhaps_gone=frozenset(),
        left_out=left_out,
        printed="",
    )


def _entries(printed: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the kind of each entry and its possible names.

    A line that is no entry may continue the name before it or be a warning; both names are yielded.
    """
    entries: list[tuple[str, list[str]]] = []
    for line in printed.removesuffix("\n").split("\n"):
        if entry := _ENTRY.fullmatch(line):
            entries.append((entry[1], [entry[2]]))
        elif entries:
            entries[-1][1].append(line)
    for kind, lines in entries:
        yield kind, tuple(dict.fromkeys((lines[0], "\n".join(lines))))


def _is_under(path: str, tops: Iterable[str]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in tops)


def archive(
    export: tuple[str, ...],
    *,
    environment: Mapping[str, str],
    included: Container[str],
    in_image: Container[str] = (),
    check_for: Container[str] = (),
    max_mb: int,
    time_s: float,
) -> tuple[bytes, frozenset[str]]:
    """Run *export*, which prints a tar, and return its *included* paths as a gzipped tar.

    Members that also exist in the image are marked. Also returns the paths of *check_for* that
    exist. It blocks, so run it in a thread.
    """
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            export, env=dict(environment), stdout=subprocess.PIPE, stderr=stderr
        )
        timer = threading.Timer(time_s, process.kill)
        timer.start()
        stream = cast("BinaryIO", process.stdout)
        try:
            filtered = _filtered(stream, included, in_image, check_for, max_mb << 20)
            while stream.read(_CHUNK):
                pass  # the padding after the last block
            if code := process.wait():  # a tar that is cut between two files looks complete
                raise tarfile.ReadError(f"exit code {code}")
        except tarfile.TarError as error:
            process.kill()
            process.wait()
            raise SandboxError(
                f"{export[0]} export failed: {error}{_stderr_text(stderr)}"
            ) from error
        finally:
            timer.cancel()
            process.kill()
            process.wait()
            stream.close()
    return filtered


def paths_to_fetch(differences: Differences) -> tuple[str, ...] | None:
    """Return the paths whose tars together hold the change; None where there are too many.

    What was added is fetched with all that is in it, what was changed by itself. A name that is no
    UTF-8 cannot be asked for.
    """
    added = differences.included - differences.in_image
    tops = sorted(
        path
        for path in differences.included
        if path not in added or posixpath.dirname(path) not in added
    )
    if len(tops) > _MAX_FETCHED or not has_exact_names(differences):
        return None
    return tuple(tops)


def has_exact_names(differences: Differences) -> bool:
    """Whether every included path is what the file is called: engines replace what is no UTF-8."""
    return not any("\ufffd" in path or path == "/" for path in differences.included)


class IncompleteLayerError(Exception):
    """A file of a layer has its content in another layer."""


class EmptyExportError(SandboxError):
    """The engine exported not one file: the container was not mounted when it was read."""


def read_files(root: Path, differences: Differences, *, max_mb: int) -> bytes:
    """Return what *differences* include as a gzipped tar, from the files of a container at *root*.

    That is where a container is mounted, or its own layer; IncompleteLayerError or FileNotFoundError
    where the layer does not hold it all. No link is followed: those of the container lead to files of
    the host here. It blocks, so run it in a thread.
    """
    buffer = _BoundedBuffer(max_mb << 20)
    first_names: dict[tuple[int, int], str] = {}
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as filtered,
    ):
        for path in sorted(differences.included):
            name = path.strip("/")
            with _opened_parent(root, name) as (parent, last):
                member = _member(parent, last, name, first_names)
                if member is None:
                    continue
                if path in differences.in_image:
                    member.pax_headers = {IN_IMAGE: "1"}
                if not member.isreg():
                    filtered.addfile(member)
                    continue
                with os.fdopen(os.open(last, _READ, dir_fd=parent), "rb") as file:
                    if _IS_ELSEWHERE in os.listxattr(file.fileno()):
                        raise IncompleteLayerError(name)
                    filtered.addfile(member, file)
    return buffer.getvalue()


@contextmanager
def _opened_parent(root: Path, name: str) -> Iterator[tuple[int, str]]:
    """Open the folder that *name* is in, without following a link, and provide it and the last part."""
    *parents, last = name.split("/")
    folder = os.open(root, _FOLDER)
    try:
        for part in parents:
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder, last
    finally:
        os.close(folder)


def _member(
    parent: int, last: str, name: str, first_names: dict[tuple[int, int], str]
) -> tarfile.TarInfo | None:
    """Return the head of a file, folder or link; None for anything else."""
    status = os.stat(last, dir_fd=parent, follow_symlinks=False)
    member = tarfile.TarInfo(name)
    member.mode, member.mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
    member.uid, member.gid = status.st_uid, status.st_gid
    if stat.S_ISDIR(status.st_mode):
        member.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(status.st_mode):
        member.type = tarfile.SYMTYPE
        member.linkname = os.readlink(last, dir_fd=parent)
    elif not stat.S_ISREG(status.st_mode):
        return None
    elif (first := first_names.setdefault((status.st_dev, status.st_ino), name)) != name:
        member.type, member.linkname = tarfile.LNKTYPE, first
    else:
        member.size = status.st_size
    return member


def fetched(
    fetch: Callable[[str], AbstractContextManager[BinaryIO]],
    paths: Iterable[str],
    differences: Differences,
    *,
    max_mb: int,
) -> bytes:
    """Return what *differences* include as a gzipped tar, from the tar that *fetch* has of each path.

    It blocks, so run it in a thread.
    """
    buffer = _BoundedBuffer(max_mb << 20)
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as filtered,
    ):
        for path in paths:
            with fetch(path) as stream:
                _add_members(stream, path, differences, filtered)
    return buffer.getvalue()


def _add_members(
    stream: BinaryIO, path: str, differences: Differences, filtered: tarfile.TarFile
) -> None:
    parent = posixpath.dirname(path).strip("/")
    with tarfile.open(fileobj=stream, mode="r|", bufsize=_CHUNK) as tar:
        for member in tar:
            _move(member, parent)
            name = _diff_name(member.name)
            if name in differences and _is_file_like(member):
                if name in differences.in_image:
                    member.pax_headers = {**member.pax_headers, IN_IMAGE: "1"}
                filtered.addfile(member, tar.extractfile(member) if member.isreg() else None)
            if member.isdir() and path in differences.in_image:
                return  # the folder itself; what was changed in it is fetched by itself
            tar.members.clear()  # type: ignore[attr-defined] # else it keeps every member in memory
    while stream.read(_CHUNK):
        pass  # the padding after the last block


def _move(member: tarfile.TarInfo, parent: str) -> None:
    """Put a member under *parent*, and what it is a hard link to."""
    if parent:
        member.name = f"{parent}/{member.name}"
        if member.islnk():
            member.linkname = f"{parent}/{member.linkname}"
    # these would be written instead of the new names
    kept = {key: value for key, value in member.pax_headers.items() if key not in _PAX_NAMES}
    member.pax_headers = kept


def _stderr_text(stderr: BinaryIO) -> str:
    stderr.seek(0)
    text = stderr.read(2000).decode(errors="replace").strip()
    return f"; its output: {text}" if text else ""


def _filtered(
    stream: BinaryIO,
    included: Container[str],
    in_image: Container[str],
    check_for: Container[str],
    max_bytes: int,
) -> tuple[bytes, frozenset[str]]:
    buffer, present, is_empty = _BoundedBuffer(max_bytes), set(), True
    with (
        tarfile.open(fileobj=stream, mode="r|", bufsize=_CHUNK) as whole,
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as filtered,
    ):
        for member in whole:
            path = _diff_name(member.name)
            is_empty = is_empty and path == "/"
            if path in check_for:
                present.add(path)
            if path in included and _is_file_like(member):
                if path in in_image:
                    member.pax_headers = {**member.pax_headers, IN_IMAGE: "1"}
                filtered.addfile(member, whole.extractfile(member) if member.isreg() else None)
            whole.members.clear()  # type: ignore[attr-defined] # else it keeps every member in memory
    if is_empty:
        raise EmptyExportError("the engine exported no file of the container", transient=True)
    return buffer.getvalue(), frozenset(present)


def _diff_name(name: str) -> str:
    """Return the path of a member as `diff` prints it, with replacement characters."""
    path = f"/{name.strip('/')}"
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _is_file_like(member: tarfile.TarInfo) -> bool:
    return member.isreg() or member.isdir() or member.issym() or member.islnk()


class _BoundedBuffer(io.BytesIO):
    """A buffer with a maximum size."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self._max_bytes = max_bytes

    def write(self, data: "bytes | bytearray | memoryview", /) -> int:  # type: ignore[override]
        if self.tell() + len(data) > self._max_bytes:
            raise ChangeTooLargeError(
                f"the change of the box is over {self._max_bytes >> 20} MB when packed, and cannot be "
                "taken out; raise the sandbox's setting `most_change_mb`"
            )
        return super().write(data)


def clear_input(packed: bytes | None, gone: tuple[str, ...]) -> bytes:
    """Return the input of `CLEAR` that prepares for *packed*."""
    entries = [f"G{path}" for path in gone]
    if packed is not None:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as members:
            entries += [f"{'D' if m.isdir() else 'F'}/{m.name.strip('/')}" for m in members]
    return b"".join(entry.encode("utf-8", "surrogateescape") + b"\0" for entry in entries)
