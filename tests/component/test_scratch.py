"""Private folders, and that they can be taken away whatever is in them."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bakeoff._lib import process_identity, scratch
from support.cli import not_outliving


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A folder of the host that nothing may touch."""
    kept = tmp_path / "canary"
    (kept / "inner").mkdir(parents=True)
    (kept / "inner" / "file").write_text("kept")
    yield kept
    assert (kept / "inner" / "file").read_text() == "kept"


def test_a_folder_is_private_and_says_whose_it_is() -> None:
    folder = scratch.new_folder("x")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert process_identity.find(folder.name) == process_identity.current()
    assert folder not in scratch.orphans()
    scratch.remove(folder)
    assert not folder.exists()


def test_of_several_who_take_away_what_the_dead_left_each_folder_goes_to_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    make = (
        "from bakeoff._lib import scratch\n"
        "for n in range(60):\n"
        "    (scratch.new_folder('x') / 'a').mkdir()\n"
    )
    subprocess.run([sys.executable, "-c", make], check=True)
    reap = "from bakeoff._lib import scratch; print(*scratch.reap(), sep='\\n')"
    words = [sys.executable, "-c", reap]
    with ExitStack() as stack:
        reapers = [
            stack.enter_context(
                not_outliving(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
            )
            for _ in range(4)
        ]
        taken = [line for reaper in reapers for line in reaper.communicate(timeout=60)[0].split()]
    assert [reaper.returncode for reaper in reapers] == [0] * 4
    assert len(taken) == len(set(taken)) == 60
    assert list((tmp_path / f"bakeoff-{os.getuid()}").iterdir()) == []


def test_the_folder_of_a_dead_process_is_found() -> None:
    code = "from bakeoff._lib import scratch; print(scratch.new_folder('x'))"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    folder = Path(made.stdout.strip())
    assert folder in scratch.orphans()
    scratch.remove(folder)
    assert folder not in scratch.orphans()


def test_a_base_that_somebody_else_put_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"bakeoff-{os.getuid()}").symlink_to(elsewhere)
    with pytest.raises(PermissionError, match="TMPDIR"):
        scratch.new_folder("x")
    assert not list(elsewhere.iterdir())


def test_links_are_taken_away_and_never_followed(canary: Path) -> None:
    folder = scratch.new_folder("x")
    (folder / "to-folder").symlink_to(canary)
    (folder / "to-file").symlink_to(canary / "inner" / "file")
    (folder / "nowhere").symlink_to("/nonexistent")
    linked = scratch.new_folder("y") / "file"  # a hard link does not leave its file system
    linked.write_text("kept")
    os.link(linked, folder / "hard")
    os.mkfifo(folder / "fifo")
    scratch.remove(folder)
    assert not folder.exists()
    assert linked.read_text() == "kept"
    scratch.remove(linked.parent)


def test_locked_folders_are_taken_away() -> None:
    folder = scratch.new_folder("x")
    inner = folder / "a" / "b" / "c"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    (folder / "empty").mkdir(mode=0)
    for path in (inner, inner.parent, inner.parent.parent, folder):
        path.chmod(0)
    _as_an_ordinary_user(folder)
    assert not folder.exists()


def _as_an_ordinary_user(folder: Path) -> None:
    """Remove *folder* without root's right to pass every lock."""
    if os.getuid() != 0:
        scratch.remove(folder)
        return
    drop = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]
    code = "import sys; from pathlib import Path; from bakeoff._lib import scratch\n"
    code += "scratch.remove(Path(sys.argv[1]))"
    subprocess.run([*drop, sys.executable, "-c", code, str(folder)], check=True)


def test_folders_nested_without_end_are_taken_away() -> None:
    folder = scratch.new_folder("x")
    at = os.open(folder, os.O_RDONLY)
    for _ in range(6000):
        os.mkdir("d" * 20, dir_fd=at)
        inner = os.open("d" * 20, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    scratch.remove(folder)
    assert not folder.exists()


@pytest.mark.usefixtures("files_in_memory")
def test_a_hundred_thousand_files_are_taken_away() -> None:
    folder = scratch.new_folder("x")
    for outer in range(100):
        inner = folder / str(outer)
        inner.mkdir()
        at = os.open(inner, os.O_RDONLY)
        for name in range(1000):
            os.close(os.open(str(name), os.O_CREAT | os.O_WRONLY, dir_fd=at))
        os.close(at)
    scratch.remove(folder)
    assert not folder.exists()


def test_removing_what_is_gone_is_no_error(tmp_path: Path) -> None:
    scratch.remove(tmp_path / "gone")
    (tmp_path / "file").touch()
    scratch.remove(tmp_path / "file")
    assert not (tmp_path / "file").exists()
