"""A change is taken as a patch and put into a clean room: what arrives is what the agent left."""

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bakeoff._lib import scratch
from bakeoff._lib.digest import tree_digest
from bakeoff.core.errors import SandboxError
from bakeoff.core.workspace import Change, Tree, Workspace
from bakeoff.workspaces import grading, pristine
from bakeoff.workspaces.folder import Folder
from bakeoff.workspaces.grading import WorkspaceFiles
from bakeoff.workspaces.protection import Protection
from bakeoff.workspaces.threads import ThreadWork


class Item(NamedTuple):
    """What lies at one path."""

    kind: str
    content: bytes


Files = Mapping[bytes, Item]


def without_clashes(tree: Files) -> Files:
    """Drop a path that another one needs as a folder."""
    return {
        path: item
        for path, item in tree.items()
        if not any(other.startswith(path + b"/") for other in tree)
    }


NAMES = st.sampled_from(
    [
        *(b"a", b"b", b"c.py", b" ", b"a b", b"trail ", b'"q"', b"new\nline", b"tab\t", b"-n"),
        *(b"\xff\xfe", b"\xc3\xa9", b"*", b"[a]", b"?", b"back\\slash", b"#x", b"!x"),
        *(b"GIT~1", b":(top)", b"{}"),
    ]
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(b"/".join)
CONTENTS = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace")),
    st.lists(st.sampled_from([b"x", b"y", b"", b"\r", b" "]), max_size=12).map(b"\n".join),
    st.just(b"x" * 9000 + b"\0" + b"y\n"),
    st.just(b"line\n" * 2000 + b"\xff\n"),
)
GOALS = st.sampled_from([b"a", b"../x", b"/etc/passwd", b"new\nline", b"no/where", b"\xc3\xa9"])
ITEMS = st.one_of(
    st.builds(Item, st.sampled_from(["file", "program"]), CONTENTS),
    st.builds(Item, st.just("link"), GOALS),
)
TREES = st.dictionaries(PATHS, ITEMS, max_size=7).map(without_clashes)


def put(folder: Path, tree: Files) -> None:
    for path, (kind, content) in tree.items():
        if kind == "link":
            Folder(folder).put_link(path, content)
        else:
            Folder(folder).put_file(path, content, executable=kind == "program")


def empty(folder: Path) -> None:
    for path in list(folder.iterdir()):
        if path.name != ".git":
            Folder(folder).remove(os.fsencode(path.name))


def found(folder: Path) -> Files:
    """Return what lies in a folder, git's own apart."""
    seen: dict[bytes, Item] = {}
    for path in folder.rglob("*"):
        name, mode = os.fsencode(path.relative_to(folder)), path.lstat().st_mode
        if name.split(b"/")[0] == b".git" or stat.S_ISDIR(mode):
            continue
        if stat.S_ISLNK(mode):
            seen[name] = Item("link", os.fsencode(path.readlink()))
        else:
            seen[name] = Item("program" if mode & stat.S_IXUSR else "file", path.read_bytes())
    return seen


class Bench:
    """Rooms of one workspace, without boxes."""

    def __init__(self, source: Path, cache: Path, **rest: Any) -> None:
        tree = Tree(path=str(source), digest=tree_digest(source))
        self.work = ThreadWork()
        self.pristine = pristine.build(self.work, Workspace(files=(tree,), **rest), cache=cache)
        self._places = [self.pristine.folder]

    def room(self) -> WorkspaceFiles:
        self._places.append(scratch.new_folder("room"))
        return grading.copy_pristine(self.work, self._places[-1], self.pristine, will_be_read=True)

    def change(self, room: WorkspaceFiles) -> Change:
        return grading.change(self.work, room)

    def graded(self, change: Change, *protected: str) -> WorkspaceFiles:
        protection = Protection(patterns=protected)
        return grading.prepare_grading(self.work, self.room(), change, protection)

    def close(self) -> None:
        for place in self._places:
            scratch.remove(place)


@contextmanager
def bench_of(tree: Files, **rest: Any) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.mkdir()
        put(source, tree)
        bench = Bench(source, Path(folder) / "cache", **rest)
        try:
            yield bench
        finally:
            bench.close()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(before=TREES, after=TREES)
@example(before={b"a": Item("file", b"x")}, after={b"a/b": Item("file", b"x")})
@example(before={b"a/b": Item("file", b"\xff")}, after={b"a": Item("link", b"b")})
@example(before={b"a": Item("link", b"b")}, after={b"a/b": Item("program", b"")})
@example(before={b"a": Item("file", b"\0")}, after={b"a": Item("program", b"\0")})
@example(before={b"*": Item("file", b"\xff\n")}, after={b"b": Item("file", b"\xff\n")})
@example(before={}, after={b"new\nline/\xff\xfe": Item("file", b"\xff")})
def test_what_arrives_in_the_clean_room_is_what_the_agent_left_byte_for_byte(
    before: Files, after: Files
) -> None:
    with bench_of(before) as bench:
        room = bench.room()
        empty(room.folder)
        put(room.folder, after)
        change = bench.change(room)
        change.patch.encode("utf-8")
        assert "\0" not in change.patch
        assert found(bench.graded(change).folder) == after
        assert (change.files == 0) == (not change.patch)


def test_a_room_that_nobody_touched_has_no_change() -> None:
    with bench_of({b"a": Item("file", b"x\n"), b"b/c": Item("program", b"")}) as bench:
        assert bench.change(bench.room()) == Change(patch="")


def test_a_file_written_again_with_the_same_content_is_no_change() -> None:
    with bench_of({b"a": Item("file", b"x\n")}) as bench:
        room = bench.room()
        (room.folder / "a").unlink()
        (room.folder / "a").write_text("x\n")
        assert bench.change(room).patch == ""


def test_an_edit_that_keeps_size_and_date_is_seen() -> None:
    with bench_of({b"a": Item("file", b"old\n")}) as bench:
        room = bench.room()
        path = room.folder / "a"
        times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
        path.write_text("new\n")
        os.utime(path, ns=times)
        change = bench.change(room)
        assert "+new" in change.patch
        assert (change.files, change.added, change.removed) == (1, 1, 1)


def test_two_files_that_changed_places_are_seen() -> None:
    with bench_of({b"a": Item("file", b"one\n"), b"b": Item("file", b"two\n")}) as bench:
        room = bench.room()
        (room.folder / "a").rename(room.folder / "c")
        (room.folder / "b").rename(room.folder / "a")
        (room.folder / "c").rename(room.folder / "b")
        assert bench.change(room).files == 2


def test_lines_and_files_are_counted_and_binary_files_have_no_lines() -> None:
    with bench_of({b"a": Item("file", b"1\n2\n3\n"), b"gone": Item("file", b"x\ny\n")}) as bench:
        room = bench.room()
        (room.folder / "a").write_text("1\nTWO\n3\n4\n")
        (room.folder / "gone").unlink()
        (room.folder / "blob").write_bytes(bytes(range(256)))
        change = bench.change(room)
        assert (change.files, change.added, change.removed) == (3, 2, 3)


def test_a_patch_that_does_not_fit_is_a_fault_that_says_so() -> None:
    patch = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-never there\n+new\n"
    with (
        bench_of({b"a": Item("file", b"x\n")}) as bench,
        pytest.raises(SandboxError, match="does not fit the files of the task"),
    ):
        bench.graded(Change(patch=patch))


def test_a_patch_that_names_paths_outside_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    for name in (str(outside), "../outside", "x/../../outside", ".git/config", "sub/.git/x"):
        patch = (
            f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n"
            f"+++ b/{name}\n@@ -0,0 +1 @@\n+x\n"
        )
        with bench_of({b"a": Item("file", b"x\n")}) as bench:
            try:
                room = bench.graded(Change(patch=patch))
            except SandboxError:
                continue
            assert not outside.exists()
            assert all(b".." not in path and b".git" not in path for path in found(room.folder))


def test_a_link_in_a_patch_never_leads_a_write_out_of_the_folder(tmp_path: Path) -> None:
    """Git itself refuses a patch that writes through a link; the writer does not rely on it."""
    victim = tmp_path / "victim"
    victim.mkdir()
    patch = (
        f"diff --git a/out b/out\nnew file mode 120000\n--- /dev/null\n+++ b/out\n@@ -0,0 +1 @@\n"
        f"+{victim}\n\\ No newline at end of file\n"
        "diff --git a/out/x b/out/x\nnew file mode 100644\n--- /dev/null\n+++ b/out/x\n"
        "@@ -0,0 +1 @@\n+x\n"
    )
    with bench_of({b"a": Item("file", b"x\n")}) as bench:
        with pytest.raises(SandboxError, match="does not fit"):
            bench.graded(Change(patch=patch))
        room = bench.room()
        Folder(room.folder).put_link(b"out", os.fsencode(victim))
        Folder(room.folder).put_file(b"out/x", b"x")
        assert not any(victim.iterdir())
        assert found(room.folder)[b"out/x"] == Item("file", b"x")
