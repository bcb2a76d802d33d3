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
)
_STARTED_WITH = frozenset(  # what Python reads as it starts; a .pth only in one of these folders
    {b"sitecustomize.py", b"usercustomize.py", b"site-packages", b"dist-packages"}
)
_ENVIRONMENT = b"pyvenv.cfg"  # lies in every virtual environment
_OF_A_PACKAGE = b"__init__.py"
_ASKED_AT_THE_TOP = re.compile(r"(?<![\w/.])__init__\.py")
_SECTIONED = {b"setup.cfg": b"[tool:pytest]"}
_PLUGIN_LIST = re.compile(rb"(?:.*/)?[^/]+\.(?:egg-info|dist-info)/entry_points\.txt", re.DOTALL)
_TEST_TOOLS = frozenset(
    {"pytest", "_pytest", "pluggy", "iniconfig", "py", "xdist", "coverage", "packaging", "pygments"}
    | {"exceptiongroup", "tomli", "hypothesis", "execnet", "pytest_asyncio", "pytest_mock"}
    | {"pytest_cov", "pytest_timeout", "pytest_json_ctrf", "setuptools", "pkg_resources"}
)
_SHADOWED = sys.stdlib_module_names | _TEST_TOOLS
_MODULE = re.compile(rb"([A-Za-z_]\w*)(?:\.py|\.pyc|(?:\.[\w-]+)?\.so)", re.ASCII)
_PACKAGE = re.compile(  # a folder, or a link to one or to a module
    rb"([A-Za-z_]\w*)(?:\.pyc?|(?:\.[\w-]+)?\.so)?", re.ASCII
)


@dataclass(frozen=True, kw_only=True)
class Protection:
    """Decides of each edit whether it counts.

    `patterns` are globs from the root of the workspace. `tops` are the folders from which modules
    are imported, so that a new one there can stand in the way of Python's own; `asked_for` is the
    text of the task: a module whose file it names is what was to be written. With `trusts_system`
    what Python starts with may be changed, and its modules hidden.
    """

    patterns: Sequence[str] = ()
    tops: Collection[bytes] = (b"",)
    asked_for: str = ""
    trusts_system: bool = False

    def split(
        self, edits: Iterable[Edit], base: Mapping[bytes, object], read: Callable[[bytes], bytes]
    ) -> tuple[list[Edit], list[bytes]]:
        """Return the edits that count, and the paths at which everything stays as it was.

        *base* holds what was there before; *read* returns the content of such a file.
        """
        edits = list(edits)
        whole = set() if self.trusts_system else self._shadows(edits, base)
        if not self.trusts_system:
            whole |= _environments([*base, *(edit.path for edit in edits)])
        held = {
            edit.path
            for edit in edits
            if self._holds(edit, base, read) or not whole.isdisjoint(_upto(edit.path))
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

    def new_modules(self, edits: Iterable[Edit], base: Mapping[bytes, object]) -> tuple[str, ...]:
        """Return the modules that *edits* bring and that nobody asked for, by name."""
        if self.trusts_system:
            return ()
        modules = (self._new_module(edit, base) for edit in edits)
        return tuple(sorted({module[1] for module in modules if module is not None}))

    def covers(self, path: bytes) -> bool:
        """Whether one of the patterns matches *path*."""
        return any(pattern.fullmatch(path) for pattern in self._compiled)

    def _holds(
        self, edit: Edit, base: Mapping[bytes, object], read: Callable[[bytes], bytes]
    ) -> bool:
        if self.covers(edit.path):
            return True
        parts = edit.path.split(b"/")
        if not _NAMES.isdisjoint(parts):
            return True
        if not self.trusts_system and not _STARTED_WITH.isdisjoint(parts):
            return True
        if self._makes_a_package_of_all(edit, base):
            return True
        if _PLUGIN_LIST.fullmatch(edit.path):
            return True
        if section := _SECTIONED.get(parts[-1]):
            before = read(edit.path) if edit.path in base else b""
            return section in before or section in (edit.content or b"")
        return False

    def _makes_a_package_of_all(self, edit: Edit, base: Mapping[bytes, object]) -> bool:
        """Whether pytest would take the workspace itself for a package, and import it from above."""
        folder, _, name = edit.path.rpartition(b"/")
        is_new = edit.content is not None and edit.path not in base
        if not is_new or name != _OF_A_PACKAGE or folder not in self.tops:
            return False
        if folder.rpartition(b"/")[2] == b"src":
            return False  # not where the tests start
        return _ASKED_AT_THE_TOP.search(self.asked_for) is None

    def _shadows(self, edits: list[Edit], base: Mapping[bytes, object]) -> set[bytes]:
        """Return the new modules, files or folders, that hide one of Python's or of its tests."""
        modules = (self._new_module(edit, base) for edit in edits)
        return {module[0] for module in modules if module is not None and module[1] in _SHADOWED}

    def _new_module(self, edit: Edit, base: Mapping[bytes, object]) -> tuple[bytes, str] | None:
        """Return path and name of the module that *edit* brings, unless it was to be written."""
        if edit.content is None or edit.path in base:
            return None
        path, is_folder = edit.path, edit.mode == LINK
        folder, _, name = path.rpartition(b"/")
        if name.startswith(b"__init__."):
            path, is_folder = folder, True
            folder, _, name = folder.rpartition(b"/")
        module = (_PACKAGE if is_folder else _MODULE).fullmatch(name)
        if module is None or folder not in self.tops:
            return None
        called = module[1].decode()
        return None if f"{called}.py" in self.asked_for else (path, called)

    @cached_property
    def _compiled(self) -> list[re.Pattern[bytes]]:
        try:
            return [inside(pattern) for pattern in self.patterns]
        except ValueError as error:
            raise SandboxError(f"a protected path cannot be kept: {error}") from error

    def _parents_of_protected(self) -> set[bytes]:
        starts = (literal_start(pattern).encode() for pattern in self.patterns)
        return {top for start in starts if start for top in (start, *_parents(start))}


def _environments(paths: Iterable[bytes]) -> set[bytes]:
    """Return the virtual environments among *paths*, by the file that each of them has."""
    marks = (path.rpartition(b"/") for path in paths)
    return {folder for folder, _, name in marks if name == _ENVIRONMENT and folder}


def _upto(path: bytes) -> list[bytes]:
    return [*_parents(path), path]


def _parents(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:n]) for n in range(1, len(parts))]
