"""Which files a repository does not want to keep: its .gitignore files, read as git reads them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bakeoff.workspaces.globs import compiled

NAME = b".gitignore"
_ALWAYS = frozenset({b"__pycache__", b".pytest_cache", b"node_modules"})
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rule:
    matches: re.Pattern[bytes]
    by_name: bool
    folders_only: bool
    kept: bool


@dataclass(frozen=True, kw_only=True)
class IgnoreRules:
    """The rules of one tree, by the folder in which they stand; the root is `b""`."""

    rules: Mapping[bytes, tuple[_Rule, ...]]

    @classmethod
    def of(cls, files: Iterable[tuple[bytes, bytes]]) -> "IgnoreRules":
        """Return the rules of .gitignore files, each with the folder it lies in and its content."""
        read = {folder: _rules(content) for folder, content in files}
        return cls(rules={folder: rules for folder, rules in read.items() if rules})

    def ignores(self, path: bytes, *, is_folder: bool) -> bool:
        """Whether *path* is ignored by its own name; whoever asks has asked for its parents."""
        folder, _, name = path.rpartition(b"/")
        if not self.rules:
            return False
        while True:
            inside = path[len(folder) + 1 :] if folder else path
            for rule in reversed(self.rules.get(folder, ())):
                if rule.folders_only and not is_folder:
                    continue
                if rule.matches.fullmatch(name if rule.by_name else inside):
                    return not rule.kept
            if not folder:
                return False
            folder = folder.rpartition(b"/")[0]


def is_refuse(path: bytes) -> bool:
    """Whether *path* is what tools leave behind wherever they run, whatever the rules say."""
    name = path.rpartition(b"/")[2]
    return name in _ALWAYS or name.endswith(b".pyc")


def _rules(content: bytes) -> tuple[_Rule, ...]:
    lines = content.removeprefix(_BOM).split(b"\n")
    return tuple(rule for line in lines if (rule := _rule(line.removesuffix(b"\r"))))


def _rule(line: bytes) -> _Rule | None:
    if line.startswith(b"#"):
        return None
    pattern = _without_trailing_spaces(line)
    kept = pattern.startswith(b"!")
    pattern = pattern[kept:]
    folders_only = pattern.endswith(b"/")
    pattern = pattern.removesuffix(b"/")
    if not pattern:
        return None
    by_name = b"/" not in pattern
    return _Rule(
        matches=compiled(pattern.removeprefix(b"/")),
        by_name=by_name,
        folders_only=folders_only,
        kept=kept,
    )


def _without_trailing_spaces(line: bytes) -> bytes:
    bare = line.rstrip(b" ")
    escapes = len(bare) - len(bare.rstrip(b"\\"))
    escaped_space = escapes % 2 and len(bare) < len(line)
    return line[: len(bare) + 1] if escaped_space else bare
