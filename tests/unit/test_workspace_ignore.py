"""Ignore rules: the same as git's own, for any pattern and any path."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bakeoff.workspaces.globs import compile_tree_glob, literal_prefix
from bakeoff.workspaces.scan import IgnoreRules, is_build_artifact

NAMES = st.sampled_from(["a", "b", "ab", "a.b", "x1", "[a]", "a b", "!a", "#a", "a\\b", "é"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
PIECES = st.sampled_from(
    [
        *("a", "b", "x", "1", ".", "/", "*", "**", "?", "\\", "!", "#", " ", "é", "-"),
        *("[ab]", "[!a]", "[^b]", "[a-x]", "[[:digit:]]", "[", "]"),
    ]
)
PATTERNS = st.lists(PIECES, min_size=1, max_size=6).map("".join)
FILES = st.lists(PATTERNS, min_size=1, max_size=4).map("\n".join)


@pytest.fixture(scope="module")
def repository() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "init", "-q", folder], check=True)
        yield Path(folder)


def git_ignores(repository: Path, path: str) -> bool:
    asked = subprocess.run(
        ["git", "check-ignore", "-q", "--no-index", "-z", "--stdin"],
        cwd=repository,
        env={"PATH": "/usr/bin:/bin", "GIT_CONFIG_GLOBAL": "/dev/null"},
        input=path.encode() + b"\0",
        check=False,
        capture_output=True,
    )
    assert asked.returncode in (0, 1), asked.stderr
    return asked.returncode == 0


def ignored(rules: IgnoreRules, path: str) -> bool:
    """Ask as a walk does: each folder on the way, then the file."""
    parts = path.encode().split(b"/")
    folders = (b"/".join(parts[:n]) for n in range(1, len(parts)))
    if any(rules.ignores(folder, is_folder=True) for folder in folders):
        return True
    return rules.ignores(path.encode(), is_folder=False)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(top=FILES, path=PATHS)
@example(top="**/a", path="b/b/a")
@example(top="a/**", path="a/b/x1")
@example(top="a/", path="a")
@example(top="*\n!a", path="a")
@example(top="/a\n!a/b", path="a/b")
@example(top="a  ", path="a")
@example(top="a\\ ", path="a")
@example(top="\\#a", path="#a")
@example(top="[a", path="[a]")
@example(top="a**b", path="a/b")
@example(top="!", path="a")
@example(top="/", path="a")
def test_a_path_is_ignored_exactly_where_git_ignores_it(
    repository: Path, top: str, path: str
) -> None:
    (repository / ".gitignore").write_text(top + "\n", encoding="utf-8")
    rules = IgnoreRules.of([(b"", (top + "\n").encode())])
    assert ignored(rules, path) == git_ignores(repository, path)


@pytest.mark.parametrize(
    ("path", "is_ignored"),
    [("sub/x.log", False), ("x.log", True), ("sub/y", True), ("y", False), ("sub/in/y", True)],
)
def test_a_file_of_rules_holds_for_its_folder_and_wins_over_those_above(
    repository: Path, path: str, is_ignored: bool
) -> None:
    rules = {"": "*.log\n", "sub": "!x.log\ny\n"}
    for folder, text in rules.items():
        (repository / folder).mkdir(exist_ok=True)
        (repository / folder / ".gitignore").write_text(text)
    read = IgnoreRules.of((folder.encode(), text.encode()) for folder, text in rules.items())
    assert ignored(read, path) is is_ignored
    assert git_ignores(repository, path) is is_ignored
    (repository / "sub" / ".gitignore").unlink()


def test_windows_line_ends_and_a_byte_order_mark_are_not_part_of_a_rule() -> None:
    rules = IgnoreRules.of([(b"", b"\xef\xbb\xbfbuild/\r\n*.o\r\n")])
    assert rules.ignores(b"build", is_folder=True)
    assert rules.ignores(b"x.o", is_folder=False)


def test_what_tools_leave_everywhere_is_refuse() -> None:
    for path in (b"__pycache__", b"a/b/node_modules", b"x.pyc", b"deep/.pytest_cache"):
        assert is_build_artifact(path)
    assert not is_build_artifact(b"cache.py")


@pytest.mark.parametrize(
    ("pattern", "path", "is_inside"),
    [
        ("tests", b"tests/test_a.py", True),
        ("tests/", b"tests/deep/test_a.py", True),
        ("tests/**", b"tests/a", True),
        ("*.cfg", b"setup.cfg", True),
        ("*.cfg", b"sub/setup.cfg", False),
        ("**/conftest.py", b"conftest.py", True),
        ("**/conftest.py", b"a/b/conftest.py", True),
        ("./a//b", b"a/b", True),
        ("tests", b"tests2/a", False),
        ("a?", b"a/", False),
    ],
)
def test_a_glob_counts_from_the_root_and_covers_what_is_below(
    pattern: str, path: bytes, is_inside: bool
) -> None:
    assert bool(compile_tree_glob(pattern).fullmatch(path)) is is_inside


@pytest.mark.parametrize("pattern", ["", "/", "../x", "a/../../x", "."])
def test_a_glob_that_leads_out_or_names_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="names nothing inside the workspace"):
        compile_tree_glob(pattern)


def test_the_folders_that_every_match_lies_in_are_known() -> None:
    assert literal_prefix("a/b/test_*.py") == "a/b"
    assert literal_prefix("a/b") == "a"
    assert literal_prefix("**/x") == ""
