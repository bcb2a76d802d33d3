"""What of a change does not reach the grade: the files that decide how tests are run."""

import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from bakeoff.core.errors import SandboxError
from bakeoff.workspaces.globs import inside, literal_start
from bakeoff.workspaces.patch import Edit
from bakeoff.workspaces.snapshot import LINK

_NAMES = frozenset(
    {b"conftest.py", b"pytest.ini", b".pytest.ini", b"pytest.toml", b".pytest.toml", b"tox.ini"}
    | {b"sitecustomize.py", b"usercustomize.py"}
)
_INSTALLED = frozenset({b"site-packages", b"dist-packages"})  # of a virtual environment
_SECTIONED = {b"setup.cfg": b"[tool:pytest]"}
_PLUGIN_LIST = re.compile(rb"(?:.*/)?[^/]+\.(?:egg-info|dist-info)/entry_points\.txt", re.DOTALL)
_TEST_TOOLS = frozenset({"pytest", "_pytest", "pluggy", "iniconfig", "py", "xdist", "coverage"})
_SHADOWED = sys.stdlib_module_names | _TEST_TOOLS
_MODULE = re.compile(rb"([A-Za-z_]\w*)(?:\.py|\.pyc|(?:\.[\w-]+)?\.so)", re.ASCII)
_PACKAGE = re.compile(rb"([A-Za-z_]\w*)(?:\.py|\.so)?", re.ASCII)  # a folder, or a link to one


@dataclass(frozen=True, kw_only=True)
class Protection:
    """Decides of each edit whether it counts.

    `patterns` are globs from the root of the workspace. `tops` are the folders from which modules
    are imported, so that a new one there can stand in the way of Python's own; `asked_for` is the
    text of the task: a module whose file it names is what was to be written.
    """

    patterns: Sequence[str] = ()
    tops: Collection[bytes] = (b"",)
    asked_for: str = ""

    def split(
        self, edits: Iterable[Edit], base: Mapping[bytes, object], read: Callable[[bytes], bytes]
    ) -> tuple[list[Edit], list[bytes]]:
        """Return the edits that count, and the paths at which everything stays as it was.

        *base* holds what was there before; *read* returns the content of such a file.
        """
        edits = list(edits)
        shadows = self._shadows(edits, base)
        held = {
            edit.path
            for edit in edits
            if self._holds(edit, base, read) or not shadows.isdisjoint(_upto(edit.path))
        }
        parents = self._parents_of_protected()
        kept_files = {path for path in held if path in base}
        kept_folders = {top for path in kept_files for top in _parents(path)}
        for edit in edits:
            path = edit.path
            if edit.content is None:
                continue
            if path in kept_folders or path in parents or not kept_files.isdisjoint(_parents(path)):
                held.add(path)  # it can only be there where something protected is not
        return [edit for edit in edits if edit.path not in held], sorted(held)

    def covers(self, path: bytes) -> bool:
        """Whether one of the patterns matches *path*."""
        return any(pattern.fullmatch(path) for pattern in self._compiled)

    def _holds(
        self, edit: Edit, base: Mapping[bytes, object], read: Callable[[bytes], bytes]
    ) -> bool:
        if self.covers(edit.path):
            return True
        parts = edit.path.split(b"/")
        if not _NAMES.isdisjoint(parts) or not _INSTALLED.isdisjoint(parts):
            return True
        if parts[-1].endswith(b".pth"):
            return True
        if _PLUGIN_LIST.fullmatch(edit.path):
            return True
        if section := _SECTIONED.get(parts[-1]):
            before = read(edit.path) if edit.path in base else b""
            return section in before or section in (edit.content or b"")
        return False

    def _shadows(self, edits: list[Edit], base: Mapping[bytes, object]) -> set[bytes]:
        """Return the new modules, files or folders, that hide one of Python's or of its tests."""
        shadows = set()
        for edit in edits:
            if edit.content is None or edit.path in base:
                continue
            path, is_folder = edit.path, edit.mode == LINK
            folder, _, name = path.rpartition(b"/")
            if name.startswith(b"__init__."):
                path, is_folder = folder, True
                folder, _, name = folder.rpartition(b"/")
            module = (_PACKAGE if is_folder else _MODULE).fullmatch(name)
            called = module[1].decode() if module else ""
            if folder in self.tops and called in _SHADOWED and f"{called}.py" not in self.asked_for:
                shadows.add(path)
        return shadows

    @cached_property
    def _compiled(self) -> list[re.Pattern[bytes]]:
        try:
            return [inside(pattern) for pattern in self.patterns]
        except ValueError as error:
            raise SandboxError(f"a protected path cannot be kept: {error}") from error

    def _parents_of_protected(self) -> set[bytes]:
        starts = (literal_start(pattern).encode() for pattern in self.patterns)
        return {top for start in starts if start for top in (start, *_parents(start))}


def _upto(path: bytes) -> list[bytes]:
    return [*_parents(path), path]


def _parents(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:n]) for n in range(1, len(parts))]
