"""The guide on pictures and its example: every suite of it runs, on the pictures of the example."""

import json
import shutil
from pathlib import Path

import pytest

import bakeoff
from support.cli import bakeoff as command
from support.doc_blocks import ROOT, Block, blocks

EXAMPLE = ROOT / "examples" / "pictures"
BLOCKS = list(blocks(ROOT / "docs" / "guides" / "pictures.md"))
SUITES = [block for block in BLOCKS if (block.language, block.kind) == ("json", "suite")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the example, and the current folder."""
    shutil.copytree(EXAMPLE, tmp_path / "pictures")
    monkeypatch.chdir(tmp_path / "pictures")
    return tmp_path / "pictures"


def _shown(run: bakeoff.Run) -> list[str | None]:
    return [each.name for task in run.plan.tasks for each in task.attachments]


@pytest.mark.parametrize("block", SUITES, ids=str)
def test_a_suite_of_the_guide_runs(block: Block, folder: Path) -> None:
    (folder / "own.json").write_text(block.text)
    run = bakeoff.run("own.json", models=["scripted/echo"])
    assert run.summary().buckets.faults == 0
    assert set(_shown(run)) <= {"one.png", "two.png", "three.png"}
    assert _shown(run)


def test_the_run_file_of_the_guide_runs(folder: Path) -> None:
    (block,) = (block for block in BLOCKS if block.language == "toml")
    (folder / "run.toml").write_text(block.text)
    run = bakeoff.run("run.toml", models=["scripted/echo"])
    assert _shown(run) == ["one.png", "two.png", "three.png"]


def test_the_example_makes_the_one_mistake_that_it_announces(folder: Path) -> None:
    run = bakeoff.run("scripted.toml")
    scores = {record.task_id: record.attempt.score for record in run.trials()}
    assert scores == {"one": 1.0, "first-or-second": 0.0, "in-turns": 1.0}
    shown = command("show", "latest", "first-or-second")
    assert "First: [picture two.png] Second: [picture three.png] Which" in shown.out
    assert "picture two.png: image/png" in shown.out


def test_the_pictures_of_a_csv_are_guessed_and_said(folder: Path) -> None:
    done = command("run", "flags.csv", "--model", "scripted/echo")
    assert "file = image" in done.err
    assert _shown(bakeoff.load_run()) == ["one.png", "two.png", "three.png"]


def test_a_missing_picture_is_found_by_validate(folder: Path) -> None:
    (folder / "two.png").unlink()
    done = command("validate", "suite.json")
    assert done.code == 1
    assert "two.png does not exist" in done.out + done.err


def test_a_picture_column_may_hold_text_data_uris_or_lists(folder: Path) -> None:
    (folder / "words.csv").write_text("question,image\nWhat is a cat?,a cat\n")
    assert _shown(bakeoff.run("words.csv", models=["scripted/echo"])) == []
    rows = [{"question": "Same?", "image": ["one.png", "two.png"]}]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run = bakeoff.run("rows.jsonl", models=["scripted/echo"], columns={"file": "image"})
    assert _shown(run) == ["one.png", "two.png"]


def test_a_picture_that_is_named_and_missing_is_an_error_with_its_line(folder: Path) -> None:
    (folder / "rows.csv").write_text("question,image\nA?,one.png\nB?,on.png\n")
    with pytest.raises(
        bakeoff.UsageError,
        match=r"rows\.csv:3: column 'image': on\.png does not exist; did you mean 'one\.png'\?",
    ):
        bakeoff.run("rows.csv", models=["scripted/echo"])


def test_pictures_inside_a_parquet_file_are_shown(folder: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    data = (folder / "one.png").read_bytes()
    with duckdb.connect() as db:
        db.execute("CREATE TABLE t (question VARCHAR, image STRUCT(bytes BLOB, path VARCHAR))")
        db.execute("INSERT INTO t VALUES ('Which?', {'bytes': ?, 'path': 'x.png'})", [data])
        db.execute("COPY t TO 'rows.parquet' (FORMAT parquet)")
    run = bakeoff.run("rows.parquet", models=["scripted/echo"])
    (task,) = run.plan.tasks
    (attached,) = task.attachments
    assert (run.folder / "blobs" / attached.blob).read_bytes() == data
    assert "image" not in task.metadata
