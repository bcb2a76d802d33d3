"""The identity of a folder: the same files are the same, any other file is another."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff._lib.digest import tree_digest


def some_tree(folder: Path) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "a.py").write_text("a = 1\n")
    (folder / "sub" / "b.sh").write_text("exit 0\n")
    (folder / "link").symlink_to("a.py")
    return folder


def test_the_digest_of_known_files_never_changes(tmp_path: Path) -> None:
    assert tree_digest(some_tree(tmp_path / "t")) == "eb7074f32b3511d80a8c0dda0d3c0f0b"


def test_place_age_owner_bits_and_caches_do_not_matter(tmp_path: Path) -> None:
    one, two = some_tree(tmp_path / "one"), some_tree(tmp_path / "two")
    os.utime(two / "a.py", (0, 0))
    (two / "a.py").chmod(0o640)
    (two / "sub" / "__pycache__").mkdir()
    (two / "sub" / "__pycache__" / "b.pyc").write_bytes(b"x")
    assert tree_digest(one) == tree_digest(two)


def _other_link(folder: Path) -> None:
    (folder / "link").unlink()
    (folder / "link").symlink_to("sub")


def _file_for_link(folder: Path) -> None:
    (folder / "link").unlink()
    (folder / "link").write_text("a.py")


def _moved(folder: Path) -> None:
    (folder / "a.py").rename(folder / "sub" / "a.py")


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "a.py").write_text("a = 2\n"),
        lambda folder: (folder / "a.py").chmod(0o755),
        lambda folder: (folder / "empty").mkdir(),
        lambda folder: (folder / "new").touch(),
        lambda folder: os.mkfifo(folder / "fifo"),
        _other_link,
        _file_for_link,
        _moved,
    ],
)
def test_every_change_of_the_files_is_seen(
    change: Callable[[Path], object], tmp_path: Path
) -> None:
    folder = some_tree(tmp_path / "t")
    before = tree_digest(folder)
    change(folder)
    assert tree_digest(folder) != before


def test_a_link_is_never_followed(tmp_path: Path) -> None:
    folder = some_tree(tmp_path / "t")
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "out").symlink_to(outside)
    (folder / "loop").symlink_to(".")
    before = tree_digest(folder)
    (outside / "secret").write_text("x")
    assert tree_digest(folder) == before


@given(
    st.dictionaries(
        st.binary(min_size=1, max_size=8).filter(
            lambda n: b"/" not in n and b"\0" not in n and n not in {b".", b".."}
        ),
        st.binary(max_size=20),
        max_size=6,
    )
)
def test_two_trees_are_equal_where_their_files_are(
    tmp_path_factory: pytest.TempPathFactory, files: dict[bytes, bytes]
) -> None:
    digests = set()
    for order in (sorted(files), sorted(files, reverse=True)):
        folder = os.fsencode(tmp_path_factory.mktemp("t"))
        for name in order:
            Path(os.fsdecode(folder + b"/" + name)).write_bytes(files[name])
        digests.add(tree_digest(Path(os.fsdecode(folder))))
    assert len(digests) == 1
