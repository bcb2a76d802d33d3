"""The guide on tools and its example: every suite of it runs as it stands."""

import shutil
import sys
from pathlib import Path

import pytest

import bakeoff
from support.doc_blocks import ROOT, Block, blocks

GUIDE = ROOT / "docs" / "guides" / "tools.md"
BLOCKS = list(blocks(GUIDE))
SUITES = [block for block in BLOCKS if (block.language, block.kind) == ("json", "suite")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the Python files of the guide, and the current one."""
    for block in BLOCKS:
        if block.language == "python":
            (tmp_path / block.kind.removeprefix("file=")).write_text(block.text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    return tmp_path


CALLER = """
suites = ["suite.json"]
trust = true
[[models]]
model = "scripted/caller"
settings.rules = [
  { match = "How warm", calls = [{ name = "temperature", arguments = { city = "Rome" } }] },
  { match = "warmer", calls = [{ name = "temperature", arguments = { city = "Rome" } }] },
  { match = "rain in Rome", calls = [{ name = "weather", arguments = { city = "Rome" } }] },
  { match = "24", reply = "Rome: 24" },
  { match = "with a friend", calls = [{ name = "find_table" }] },
  { match = "18:30", reply = "At 18:30 or 20:00." },
  { match = "book it", calls = [{ name = "book_table" }] },
  { match = "code", reply = "K7" },
]
"""


@pytest.mark.parametrize("block", SUITES, ids=str)
def test_a_suite_of_the_guide_runs_and_passes(block: Block, folder: Path) -> None:
    if "weather_server" in block.text:
        pytest.importorskip("mcp")
    (folder / "suite.json").write_text(block.text)
    (folder / "run.toml").write_text(CALLER)
    for record in bakeoff.run(folder / "run.toml", output=folder / "runs").trials():
        assert record.attempt.fault is None
        assert record.attempt.score == 1.0, record.task_id
        assert record.attempt.outcome is not None
        assert record.attempt.outcome.tool_calls


def test_the_run_file_of_the_guide_runs(folder: Path) -> None:
    (block,) = (block for block in BLOCKS if block.language == "toml")
    (folder / "run.toml").write_text(block.text)
    (record,) = bakeoff.run(folder / "run.toml", output=folder / "runs").trials()
    assert record.attempt.score == 1.0


def test_the_example_scores_as_the_guide_shows(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "tools", tmp_path / "tools")
    run = bakeoff.run(tmp_path / "tools" / "scripted.toml", output=tmp_path / "runs")
    shown = GUIDE.read_text(encoding="utf-8")
    for record in run.trials():
        assert f"{record.name}  " in shown
        (line,) = (line for line in shown.splitlines() if line.startswith(f"{record.name} "))
        assert line.split()[2] == f"{record.attempt.score:.2f}"
