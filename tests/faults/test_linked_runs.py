"""A run folder may be put there by somebody else: links in it do not lead out of where runs are kept."""

from pathlib import Path

import pytest

import bakeoff
from bakeoff.core.errors import UsageError
from bakeoff.core.task import Message, Task
from bakeoff.frontends.batch.files import find_batch
from bakeoff.frontends.rollouts.folders import rollouts_in
from bakeoff.stores.folders import find_run, list_runs

TASK = Task(id="a", messages=(Message(role="user", content="p"),))


def run_in(output: Path) -> Path:
    return bakeoff.run([TASK], models=["scripted/echo"], output=output).folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    return run_in(tmp_path / "elsewhere")


def test_a_linked_run_is_neither_shown_nor_resumed(tmp_path: Path, elsewhere: Path) -> None:
    output = tmp_path / "runs"
    own = run_in(output)
    (output / "zzz").symlink_to(elsewhere)
    before = (elsewhere / "manifest.json").read_bytes()
    for reference in ("zzz", str(output / "zzz")):
        with pytest.raises(UsageError, match=r"is a link out of .*name it by that path"):
            bakeoff.load_run(reference, output=output)
        with pytest.raises(UsageError, match="is a link out of"):
            bakeoff.run(resume=reference, output=output)
    assert [entry.folder for entry in list_runs(output)] == [own]
    assert find_run("latest", output) == own
    assert (elsewhere / "manifest.json").read_bytes() == before
    assert find_run(str(elsewhere), output) == elsewhere, "by its own path it is what was named"


@pytest.mark.parametrize("name", ["ledger.sqlite", "manifest.json"])
def test_files_of_a_run_are_not_links_out_of_it(tmp_path: Path, elsewhere: Path, name: str) -> None:
    output = tmp_path / "runs"
    folder = run_in(output)
    assert (elsewhere / name).is_file()
    (folder / name).unlink()
    (folder / name).symlink_to(elsewhere / name)
    with pytest.raises(UsageError, match="out of the folder of its run: it is not followed"):
        bakeoff.run(resume=folder.name, output=output)


def test_links_that_stay_inside_are_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    output = tmp_path / "runs"
    output.symlink_to(tmp_path / "disk")
    folder = run_in(output)
    (output / "best").symlink_to(folder.name)
    assert bakeoff.load_run("best", output=output).summary().candidates
    assert bakeoff.load_run(folder.name, output=output).summary().candidates


def test_linked_batches_and_rollouts_are_not_found(tmp_path: Path, elsewhere: Path) -> None:
    batch = tmp_path / "elsewhere" / "batch_20990101_000000"
    batch.mkdir()
    (batch / "batch.json").write_text('{"task": "t", "parallel": 1}')
    output = tmp_path / "results"
    output.mkdir()
    (output / batch.name).symlink_to(batch)
    for reference in ("latest", batch.name):
        with pytest.raises(UsageError, match=r"there is no batch|is a link out of"):
            find_batch(reference, output)
    stamp = tmp_path / "bench" / "20990101__00-00-00"
    stamp.parent.mkdir()
    (tmp_path / "elsewhere" / "rollout").mkdir()
    (tmp_path / "elsewhere" / "rollout" / "run").symlink_to(elsewhere)
    stamp.symlink_to(tmp_path / "elsewhere" / "rollout")
    assert rollouts_in(stamp.parent) == []
