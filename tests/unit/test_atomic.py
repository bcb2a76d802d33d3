"""Files that are there whole or not at all, whoever is killed meanwhile."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import bakeoff
from bakeoff._lib.files import remove_partial_files, replacing, write_atomic
from support.cli import not_outliving
from support.plans import write_suite

_WRITING = """
import sys, time
from pathlib import Path
from bakeoff._lib.files import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(b"half of it")
    file.flush()
    print("writing", flush=True)
    time.sleep(60)
"""


def killed_while_writing(path: Path) -> None:
    words = [sys.executable, "-c", _WRITING, str(path)]
    with not_outliving(subprocess.Popen(words, stdout=subprocess.PIPE)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        process.stdout.close()


def test_a_kill_leaves_the_old_file_and_a_half_that_is_cleared(tmp_path: Path) -> None:
    path, other = tmp_path / "manifest.json", tmp_path / ".manifest.jsonl.kept"
    write_atomic(path, b"old")
    other.touch()
    killed_while_writing(path)
    assert path.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 3
    remove_partial_files(path)
    assert sorted(tmp_path.iterdir()) == [other, path]


def test_a_fault_while_writing_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a[b].json"
    write_atomic(path, b"old")

    def break_off() -> None:
        with replacing(path) as file:
            file.write(b"new")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        break_off()
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"


def test_a_run_that_goes_on_takes_away_the_half_of_its_manifest(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite.json", 1)
    run = bakeoff.run(suite, models=["scripted"], output=tmp_path / "runs")
    killed_while_writing(run.folder / "manifest.json")
    assert list(run.folder.glob(".*"))
    bakeoff.run(suite, models=["scripted"], output=tmp_path / "runs", resume=run.id)
    assert not list(run.folder.glob(".*"))
