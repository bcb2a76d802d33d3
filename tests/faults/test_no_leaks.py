"""Coding trials at once leave nothing behind, whether the runner ends or is killed."""

import os
import shutil
import signal
from pathlib import Path

import pytest

import bakeoff
from bakeoff._lib import scratch
from bakeoff.core.record import Status
from bakeoff.sandboxes.host.process_tags import VARIABLE
from support.cli import BAKEOFF, started, until
from support.coding_tasks import FIX, write_fix_add
from support.parts import require

# half of those that are to be killed are open by then
_TRIALS = [pytest.param(30), pytest.param(100, marks=pytest.mark.soak)]
_TO_KILL = [pytest.param(20), pytest.param(100, marks=pytest.mark.soak)]


def _run_file(trials: int) -> str:
    return f"""\
suites = ["fix-add"]
agents = ["shell"]
rollouts = {trials}
parallel = {trials}
sandbox = "bubblewrap"

[[models]]
model = "scripted/coder"
[models.settings]
rules = [
  {{ match = "subtracts", reply = '''
```sh
setsid sh -c 'sleep 1000' & sleep 0.2; {FIX}
```
''' }},
  {{ match = "exit code", reply = "Done." }},
]
"""


@pytest.fixture(autouse=True)
def _needs_bubblewrap() -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")


@pytest.fixture
def private_temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of this test's own, so that what is left can be counted."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    return place


def _left(private: Path, runner: int) -> list[str]:
    """Return whatever still shows that the boxes of *runner* were open."""
    base = private / f"bakeoff-{os.getuid()}"
    folders = [str(path) for path in base.iterdir()] if base.is_dir() else []
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if str(base) in line]
    return [*folders, *_processes(runner), *mounts, *_cgroups(runner)]


def _boxes(base: Path) -> int:
    return sum("-box-" in path.name for path in base.iterdir())


def _processes(runner: int) -> list[str]:
    """Return the processes that carry the mark of a box of *runner*."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                told = (folder / "environ").read_bytes().decode(errors="replace")
            except OSError:
                continue  # it has just ended
            if VARIABLE in told and f"-{runner}-" in told:
                found.append(f"process {folder.name}: {told[:120]}")
    return found


def _cgroups(runner: int) -> list[str]:
    return [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/*-{runner}-*")]


def _words(folder: Path, *more: str) -> list[str]:
    return [*BAKEOFF, "run", str(folder / "run.toml"), "--output", str(folder / "runs"), *more]


@pytest.mark.parametrize("trials", _TRIALS)
def test_many_trials_at_once_leave_nothing(trials: int, tmp_path: Path, private_temp: Path) -> None:
    write_fix_add(tmp_path)
    (tmp_path / "run.toml").write_text(_run_file(trials))
    with started(_words(tmp_path), folder=tmp_path / "said") as runner:
        ended = runner.wait(300)
    assert ended.code == 0, ended.err
    records = list(bakeoff.load_run(output=tmp_path / "runs").trials())
    assert [r.attempt.score for r in records] == [1.0] * trials
    assert _left(private_temp, runner.pid) == []


@pytest.mark.parametrize("trials", _TO_KILL)
def test_after_a_kill_the_next_start_takes_away_what_was_left(
    trials: int, tmp_path: Path, private_temp: Path
) -> None:
    write_fix_add(tmp_path)
    (tmp_path / "run.toml").write_text(_run_file(trials))
    base = private_temp / f"bakeoff-{os.getuid()}"
    with started(_words(tmp_path), folder=tmp_path / "said") as runner:
        until(lambda: base.is_dir() and _boxes(base) >= trials // 2, timeout_s=120)
        runner.send(signal.SIGKILL)
        assert runner.wait().code == -signal.SIGKILL, "it ended before it could be killed"
    assert list(base.iterdir())  # there was something to take away
    with started(_words(tmp_path, "--resume", "latest"), folder=tmp_path / "said") as again:
        ended = again.wait(300)
    assert ended.code == 0, ended.err
    records = list(bakeoff.load_run(output=tmp_path / "runs").trials())
    assert len(records) == trials
    assert {r.attempt.status for r in records} == {Status.COMPLETED}
    assert _left(private_temp, runner.pid) == []
    assert _left(private_temp, again.pid) == []
    assert scratch.orphans() == []
