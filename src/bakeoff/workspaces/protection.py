"""Decides which edits of a change do not reach the grade: those of files that decide how tests run."""

import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from bakeoff.core.errors import SandboxError
from bakeoff.workspaces.globs import compile_tree_glob, literal_prefix
from bakeoff.workspaces.patch import Edit
from bakeoff.workspaces.snapshot import LINK

_NAMES = frozenset(
    {b"conftest.py", b"pytest.ini", b".pytest.ini", b"pytest.toml", b".pytest.toml", b"tox.ini"}
)
_STARTED_WITH = frozenset(  # what Python reads at start-up; a .pth only in one of these folders
    {b"sitecustomize.py", b"usercustomize.py", b"site-packages", b"dist-packages"}
)
_ENVIRONMENT = b"pyvenv.cfg"  # in every virtual environment
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
    """Decides for each edit whether it counts.

    `patterns` are globs from the root of the workspace. `tops` are the folders that modules are
    imported from, where a new module can shadow one of Python's; `asked_for` is the text of the
    task: a module whose file it names is expected. With `trusts_system`, Python's start-up files may
    be changed and its modules shadowed.
    """

    patterns: Sequence[str] = ()
    tops: Collection[bytes] = (b"",)
    asked_for: str = ""
    trusts_system: bool = False

    def split(
        self, edits: Iterable[Edit], base: Mapping[bytes, object], read: Callable[[bytes], bytes]
    ) -> tuple[list[Edit], list[bytes]]:
        """Return the edits that count, and the paths that are reverted.

        *base* holds the original paths; *read* returns the original content of one.
        """
        edits = list(edits)
        blocked = set() if self.trusts_system else self._shadows(edits, base)
        if not self.trusts_system:
            blocked |= _environments([*base, *(edit.path for edit in edits)])
        reverted = {
            edit.path
            for edit in edits
            if self._is_protected(edit, base, read)
            or not blocked.isdisjoint(_with_parents(edit.path))
        }
        parents = self._parents_of_protected()
        kept_files = {path for path in reverted if path in base}
        kept_folders = {top for path in kept_files for top in _parents(path)}
        for edit in edits:
            path = edit.path
            if edit.content is None:
                continue
            if path in kept_folders or path in parents or not kept_files.isdisjoint(_parents(path)):
                reverted.add(path)  # it would replace something protected
        return [edit for edit in edits if edit.path not in reverted], sorted(reverted)

    def new_modules(self, edits: Iterable[Edit], base: Mapping[bytes, object]) -> tuple[str, ...]:
        """Return the names of modules that *edits* add and the task does not ask for."""
        if self.trusts_system:
            return ()
        modules = (self._new_module(edit, base) for edit in edits)
        return tuple(sorted({module[1] for module in modules if module is not None}))

    def covers(self, path: bytes) -> bool:
        """Whether one of the patterns matches *path*."""
        return any(pattern.fullmatch(path) for pattern in self._compiled)

    def _is_protected(
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
        """Whether the edit turns the workspace itself into a package, which pytest then imports."""
        folder, _, name = edit.path.rpartition(b"/")
        is_new = edit.content is not None and edit.path not in base
        if not is_new or name != _OF_A_PACKAGE or folder not in self.tops:
            return False
        if folder.rpartition(b"/")[2] == b"src":
            return False  # tests do not start there
        return _ASKED_AT_THE_TOP.search(self.asked_for) is None

    def _shadows(self, edits: list[Edit], base: Mapping[bytes, object]) -> set[bytes]:
        """Return the paths of new modules that shadow the standard library or test tools."""
        modules = (self._new_module(edit, base) for edit in edits)
        return {module[0] for module in modules if module is not None and module[1] in _SHADOWED}

    def _new_module(self, edit: Edit, base: Mapping[bytes, object]) -> tuple[bytes, str] | None:
        """Return path and name of the module that *edit* adds, unless the task asks for it."""
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
        module_name = module[1].decode()
        return None if f"{module_name}.py" in self.asked_for else (path, module_name)

    @cached_property
    def _compiled(self) -> list[re.Pattern[bytes]]:
        try:
            return [compile_tree_glob(pattern) for pattern in self.patterns]
        except ValueError as error:
            raise SandboxError(f"a protected path cannot be kept: {error}") from error

    def _parents_of_protected(self) -> set[bytes]:
        starts = (literal_prefix(pattern).encode() for pattern in self.patterns)
        return {top for start in starts if start for top in (start, *_parents(start))}


def _environments(paths: Iterable[bytes]) -> set[bytes]:
    """Return the virtual environments among *paths*, by their pyvenv.cfg."""
    splits = (path.rpartition(b"/") for path in paths)
    return {folder for folder, _, name in splits if name == _ENVIRONMENT and folder}


def _with_parents(path: bytes) -> list[bytes]:
    return [*_parents(path), path]


def _parents(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:n]) for n in range(1, len(parts))]
