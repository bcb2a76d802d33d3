"""Folders that are removed in the background: out of the way at once, gone in the end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bakeoff._lib import scratch

_LIMIT_S = 60
_FILL = """
import os, signal
from bakeoff._lib import scratch

folder = scratch.new_folder("full")
for number in range(20):
    (folder / str(number)).mkdir()
    for inner in range(200):
        (folder / str(number) / str(inner)).touch()
"""


@pytest.fixture
def private_temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a started process makes its folders, and nobody else."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"bakeoff-{os.getuid()}"


def _run(script: str) -> int:
    command = [sys.executable, "-c", _FILL + script]
    return subprocess.run(command, check=False, timeout=_LIMIT_S).returncode


def test_a_folder_is_out_of_the_way_at_once_and_gone_after_the_wait(private_temp: Path) -> None:
    folder = scratch.new_folder("full")
    (folder / "locked").mkdir()
    (folder / "locked" / "file").touch()
    (folder / "locked").chmod(0)
    scratch.remove_later(folder)
    assert not folder.exists()
    scratch.wait_removed(_LIMIT_S)
    assert list(private_temp.iterdir()) == []


def test_of_very_many_folders_none_is_forgotten(private_temp: Path) -> None:
    folders = [scratch.new_folder("many") for _ in range(300)]
    for folder in folders:
        (folder / "file").touch()
        scratch.remove_later(folder)
    scratch.wait_removed(_LIMIT_S)
    assert list(private_temp.iterdir()) == []


def test_a_folder_that_is_gone_already_needs_no_removal(private_temp: Path) -> None:
    scratch.remove_later(scratch.base() / "never-made")
    scratch.wait_removed(_LIMIT_S)
    assert list(private_temp.iterdir()) == []


def test_the_exit_of_a_process_waits_for_its_removals(private_temp: Path) -> None:
    assert _run("scratch.remove_later(folder)") == 0
    assert list(private_temp.iterdir()) == []


def test_what_a_killed_process_was_removing_is_reaped(private_temp: Path) -> None:
    assert _run("scratch.remove_later(folder); os.kill(os.getpid(), signal.SIGKILL)") < 0
    left = list(private_temp.iterdir())
    assert ["-removed-" in path.name for path in left] == [True]
    assert scratch.orphans() == left
    assert scratch.reap() == left
    scratch.wait_removed(_LIMIT_S)
    assert list(private_temp.iterdir()) == []


def test_what_a_dead_process_left_holds_nobody_up(private_temp: Path) -> None:
    assert _run("[(folder / str(n)).mkdir() for n in range(5000)]; os._exit(1)") == 1
    (left,) = private_temp.iterdir()
    assert scratch.reap() == [left]
    assert [path.name for path in private_temp.iterdir() if "-reaped-" in path.name]
    scratch.wait_removed(_LIMIT_S)
    assert list(private_temp.iterdir()) == []


def test_a_removal_that_fails_is_told_to_whoever_waits(private_temp: Path) -> None:
    folder = scratch.new_folder("full")
    mount = folder / "mounted"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "none", mount], check=False, capture_output=True)
    if made.returncode:
        pytest.skip("needs root, to make a folder that cannot be removed")
    scratch.remove_later(folder)
    try:
        with pytest.raises(OSError, match="busy"):
            scratch.wait_removed(_LIMIT_S)
        scratch.wait_removed(_LIMIT_S)  # said once
    finally:
        (left,) = private_temp.iterdir()
        for inner in [left, *left.iterdir()]:
            subprocess.run(["umount", "-l", inner], check=False, capture_output=True)
        scratch.remove(left)
