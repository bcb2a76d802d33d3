"""The change of a whole box as an archive: counting its files, filtering it for grading."""

import gzip
import io
import re
import tarfile
from collections.abc import Container, Iterable
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from bakeoff.core.errors import SandboxError
from bakeoff.core.workspace import IN_IMAGE, Change, Workspace
from bakeoff.workspaces.patch import Edit
from bakeoff.workspaces.protection import Protection
from bakeoff.workspaces.snapshot import LINK
from bakeoff.workspaces.threads import ThreadWork

_FOLDERS = re.compile(
    r"""(?:
        (?:usr/)?(?:local/)?(?:bin|sbin|lib|lib32|lib64|libx32|libexec|games)
      | usr/share/(?:perl|python|nodejs|ruby|gcc)[^/]*
      | etc/(?:ld\.so\.|profile|bash|zsh|environment|inputrc|alternatives|apt|pip\.conf|python|perl|npmrc|security)[^/]*
    )(?:/.*)?""",
    re.VERBOSE | re.DOTALL,
)
_IN_HOMES = re.compile(
    r"""(?:root|home/[^/]+)/(?:
        \.(?:profile|bash[^/]*|zsh[^/]*|zprofile|zlogin|kshrc|inputrc|curlrc|wgetrc|npmrc|pydistutils\.cfg|pythonrc[^/]*)
      | \.[^/]+/(?:bin|lib)
      | \.local/share/(?:uv|pipx)
      | \.config/(?:uv|pip|fish)
      | \.(?:cache/(?:uv|pip)|pip|pyenv|nvm|rbenv|asdf)
    )(?:/.*)?""",
    re.VERBOSE | re.DOTALL,
)
_LIBRARIES = re.compile(r"(?:.*/)?lib\d*/(?:python|perl|ruby|node|jvm|[^/]+\.so)[^/]*", re.DOTALL)
_PROGRAMS = frozenset({"bin", "sbin", "Scripts"})
_PACKAGES = frozenset({"site-packages", "dist-packages"})
_ENVIRONMENTS = frozenset({".venv", "venv", ".tox", ".nox"})
_REPLACED_WHOLE = frozenset({"opt", "root", "home", "usr", "lib", "bin", "sbin"})


def is_system_path(
    path: str,
    *,
    root: str,
    in_image: Container[str],
    environments: Container[str] = (),
    is_link: bool = False,
) -> bool:
    """Whether *path*, from the root of the machine, decides how its programs start.

    Besides the usual system folders, these are folders of programs, packages and libraries that the
    image has elsewhere; new ones are the agent's own. In the workspace, which is at *root*, they are
    virtual environments: folders with a usual name, and the *environments* that the change made.
    """
    parts = PurePosixPath(path).parts
    above = ["/".join(parts[: number + 1]) for number in range(len(parts))]
    if _is_usual(path) and not _is_usual(root):
        return True
    if is_link and path in in_image and (path == root or root.startswith(f"{path}/")):
        return True  # otherwise the whole workspace would come from another folder
    if root and f"{path}/".startswith(f"{root}/"):
        return any(
            name in _ENVIRONMENTS or folder in environments
            for name, folder in zip(parts[:-1], above, strict=False)
        )
    if is_link and path in in_image:
        # the content of this folder would now come from another one
        return len(parts) == 1 or parts[0] in _REPLACED_WHOLE
    return any(
        folder in in_image and (name in _PROGRAMS | _PACKAGES or _LIBRARIES.fullmatch(folder))
        for name, folder in zip(parts, above, strict=True)
    )


def _is_usual(path: str) -> bool:
    """Whether *path* is where programs, libraries and their settings usually are."""
    return bool(_FOLDERS.fullmatch(path) or _IN_HOMES.fullmatch(path))


_MAX_SETTINGS = 1_000_000  # bytes of a setup.cfg


def count_files(_: ThreadWork, archive: bytes) -> int:
    """Return how many files and links *archive* holds."""
    with _open(archive) as tar:
        return sum(1 for member in tar if not member.isdir())


def filter_for_grading(
    work: ThreadWork,
    change: Change,
    workspace: Workspace,
    protection: Protection,
    grader_paths: Iterable[str],
) -> tuple[bytes, tuple[str, ...], tuple[str, ...]]:
    """Return the archive and deletions of *change* that reach the grade, and the reverted paths.

    Nothing under *grader_paths* is taken from the change. What decides how programs start stays as
    in the image, unless the workspace trusts system changes.
    """
    members = _members(work, change.archive or b"")
    reverted = _reverted_paths(members, change.gone, workspace, protection, grader_paths)
    buffer = io.BytesIO()
    with (
        _open(change.archive or b"") as old,
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=1, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in old:
            work.check_cancelled()
            if _plain(member.name) not in reverted:
                member.pax_headers = {
                    key: value for key, value in member.pax_headers.items() if key != IN_IMAGE
                }
                new.addfile(member, old.extractfile(member) if member.isreg() else None)
    gone = tuple(path for path in change.gone if _plain(path) not in reverted)
    folders = {member.path for member in members if member.kind == "folder"}
    return buffer.getvalue(), gone, tuple(sorted(reverted - folders))


class _Member(NamedTuple):
    """The properties of an archive member that decide whether it is reverted."""

    path: str
    kind: Literal["file", "folder", "link"]
    in_image: bool
    same_as: str | None  # the path that it is a hard link to
    content: bytes


def _members(work: ThreadWork, archive: bytes) -> list[_Member]:
    members = []
    with _open(archive) as tar:
        for member in tar:
            work.check_cancelled()
            path = _plain(member.name)
            is_read = member.isreg() and path.rpartition("/")[2] == "setup.cfg"
            file = tar.extractfile(member) if is_read else None
            members.append(
                _Member(
                    path=path,
                    kind="folder" if member.isdir() else "link" if member.issym() else "file",
                    in_image=IN_IMAGE in member.pax_headers,
                    same_as=_plain(member.linkname) if member.islnk() else None,
                    content=b"" if file is None else file.read(_MAX_SETTINGS),
                )
            )
    return members


def _reverted_paths(
    members: list[_Member],
    gone: Iterable[str],
    workspace: Workspace,
    protection: Protection,
    grader_paths: Iterable[str],
) -> set[str]:
    """Return the paths that stay as they are in the image."""
    root, tops = workspace.root.strip("/"), [f"{_plain(top)}/" for top in grader_paths]
    removed = [_plain(path) for path in gone]
    all_paths = [*(member.path for member in members), *removed]
    reverted = {path for path in all_paths if any(f"{path}/".startswith(top) for top in tops)}
    if workspace.trust_system_changes:
        inside = {path: _inside(path, root) for path in all_paths}
        reverted |= {path for path, name in inside.items() if name and protection.covers(name)}
        return reverted
    in_image = {member.path for member in members if member.in_image}
    in_image |= {above for path in removed for above in (path, *_parents(path))}
    environments = {path.rpartition("/")[0] for path in all_paths if path.endswith("/pyvenv.cfg")}
    links = {member.path for member in members if member.kind == "link"}
    reverted |= {
        path
        for path in all_paths
        if is_system_path(
            path, root=root, in_image=in_image, environments=environments, is_link=path in links
        )
    }
    reverted |= _reverted_inside(members, removed, root, protection, in_image)
    needed = {above for path in reverted for above in _parents(path)}
    for member in members:
        if member.kind != "folder" and (member.path in needed or member.same_as in reverted):
            reverted.add(member.path)
    return reverted


def _reverted_inside(
    members: list[_Member],
    removed: list[str],
    root: str,
    protection: Protection,
    in_image: Iterable[str],
) -> set[str]:
    """Return the protected paths of the workspace itself, by the rules for every workspace."""
    edits = [
        Edit(name, LINK if member.kind == "link" else b"100644", member.content)
        for member in members
        if member.kind != "folder" and (name := _inside(member.path, root))
    ]
    edits += [Edit(name, b"000000", None) for path in removed if (name := _inside(path, root))]
    base = {name: None for path in in_image if (name := _inside(path, root))}
    _, reverted = protection.split(edits, base, lambda _: b"")
    top = f"{root}/" if root else ""
    return {f"{top}{name.decode('utf-8', 'surrogateescape')}" for name in reverted}


def _inside(path: str, root: str) -> bytes:
    """Return *path* relative to the workspace at *root*; empty where it is outside."""
    if root and not path.startswith(f"{root}/"):
        return b""
    return (path.removeprefix(f"{root}/") if root else path).encode("utf-8", "surrogateescape")


def _plain(path: str) -> str:
    return path.removeprefix("./").strip("/")


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:number]) for number in range(1, len(parts))]


def _open(archive: bytes) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=io.BytesIO(archive), mode="r|gz")
    except tarfile.TarError as error:
        raise SandboxError(
            f"the change of the box is no archive that can be read: {error}"
        ) from error
