"""A change as a patch that `git apply` takes in the repository that a task was made from."""

import re
from typing import NamedTuple

from bakeoff.core.workspace import Workspace

_FILE = re.compile(r"^(?=diff --git )", re.MULTILINE)
_END_OF_HEADER = re.compile(r"^(?:@@ |GIT binary patch|Binary files )", re.MULTILINE)
_NAMED = ("diff --git ", "--- ", "+++ ")  # the lines of a header that hold names
_NAME = re.compile(r'"?[ab]/')
_PLAIN = re.compile(r"[\w.+@/-]*")  # written the same in a name that git puts in quotes


class RepositoryPatch(NamedTuple):
    """`inside` has paths relative to the repository; `outside` is the rest, from the root."""

    inside: str
    outside: str


def repository_patch(workspace: Workspace | None, patch: str) -> RepositoryPatch:
    """Return *patch*, whose paths begin at the root of *workspace*, as its repository sees it.

    The repository is what lies undermost in the workspace; of one that was taken in part, paths
    begin at its top, not at the part.
    """
    tree = workspace.files[0] if workspace is not None and workspace.files else None
    folder, subdir = (tree.at.strip("/"), (tree.subdir or "").strip("/")) if tree else ("", "")
    plain = _PLAIN.fullmatch(folder) and _PLAIN.fullmatch(subdir)
    if not plain or not (folder or subdir):
        return RepositoryPatch(inside=patch, outside="")
    inside: list[str] = []
    outside: list[str] = []
    for part in _FILE.split(patch):
        moved = _moved(part, _slashed(folder), _slashed(subdir))
        (outside if moved is None else inside).append(part if moved is None else moved)
    return RepositoryPatch(inside="".join(inside), outside="".join(outside))


def _slashed(folder: str) -> str:
    return f"{folder}/" if folder else ""


def _moved(part: str, folder: str, subdir: str) -> str | None:
    """Return the patch of one file with the names in its header moved; None where it is elsewhere.

    Only the header has names: a line of a file may look like one.
    """
    end = _END_OF_HEADER.search(part)
    header, rest = (part[: end.start()], part[end.start() :]) if end else (part, "")
    lines = header.split("\n")
    for number, line in enumerate(lines):
        start = next((key for key in _NAMED if line.startswith(key)), None)
        if start is None:
            continue
        names = line.removeprefix(start)
        half = len(names) // 2  # of a pair, both are equally long: there are no renames
        pair = start == _NAMED[0]
        moved = [
            _name(name, folder, subdir)
            for name in ([names[:half], names[half + 1 :]] if pair else [names])
        ]
        if not all(moved):
            return None
        lines[number] = start + " ".join(moved)
    return "\n".join(lines) + rest


def _name(name: str, folder: str, subdir: str) -> str:
    """Return a name such as a/repo/x as it is in the repository; nothing where it is not in it."""
    if name == "/dev/null":
        return name
    match = _NAME.match(name)
    if match is None or not name.startswith(folder, match.end()):
        return ""
    return name[: match.end()] + subdir + name[match.end() + len(folder) :]
