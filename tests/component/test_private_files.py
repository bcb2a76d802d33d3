"""What a run writes can be read by its owner alone, whatever the umask says."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import bakeoff

SUITE = '{"tests": [{"id": "a", "prompt": "say a", "expected": "a"}]}'


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def readable_by_others(folder: Path) -> list[str]:
    return sorted(
        f"{path} {stat.S_IMODE(path.lstat().st_mode):o}"
        for path in (folder, *folder.rglob("*"))
        if path.lstat().st_mode & 0o077
    )


def test_runs_recordings_caches_and_reports_are_private(tmp_path: Path) -> None:
    suite = tmp_path / "suite.json"
    suite.write_text(SUITE)
    suite.chmod(0o600)
    tmp_path.chmod(0o700)
    run = bakeoff.run(
        suite,
        models=["scripted"],
        output=tmp_path / "made" / "runs",
        record=tmp_path / "recording",
        cache=tmp_path / "cache",
    )
    bakeoff.report(run.folder, to=tmp_path / "reports")
    assert len(list((tmp_path / "made").rglob("*"))) > 3
    assert (tmp_path / "recording").is_dir()
    assert (tmp_path / "cache").is_dir()
    assert list((tmp_path / "reports").iterdir())
    assert readable_by_others(tmp_path) == []
