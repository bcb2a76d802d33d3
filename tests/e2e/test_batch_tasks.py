"""The tasks that come with the batch runner: proven, and runnable by name."""

import json
import shutil
from pathlib import Path

import pytest

from bakeoff.api.validation import How, validate_tasks
from bakeoff.config.models_file import read_models_file
from bakeoff.suites.markdown_task import CRITERIA, read_markdown
from support.batch_scene import NO_OLLAMA, QUICK, Cast, write_task
from support.cli import bakeoff
from support.parts import require

HOME = Path(__file__).parents[2] / "benchmark"
TASKS = sorted((HOME / "tasks").glob("*/*.md"))


@pytest.fixture
def _needs_a_sandbox() -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")


def test_every_level_has_two_and_the_names_of_the_documents_are_among_them() -> None:
    levels = [path.parent.name for path in TASKS]
    assert {level: levels.count(level) >= 2 for level in ("smoke", "easy", "medium", "hard")} == {
        "smoke": True, "easy": True, "medium": True, "hard": True,
    }  # fmt: skip
    names = {f"{path.parent.name}/{path.stem}" for path in TASKS}
    assert names >= {
        "smoke/add_comment", "easy/fix_typo", "medium/add_validation", "hard/refactor_metrics",
    }  # fmt: skip


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.stem)
def test_every_task_has_a_check_criteria_a_solution_and_its_level(path: Path) -> None:
    (task,) = read_markdown(path).tasks
    assert [spec.name for spec in task.scorers] == ["tests"]
    assert task.metadata[CRITERIA]
    assert task.category == path.parent.name
    assert task.time_s is None, "--timeout decides"
    assert task.workspace is not None
    assert task.workspace.reference is not None


@pytest.mark.usefixtures("_needs_a_sandbox")
@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.stem)
def test_the_reference_solves_it_and_neither_nobody_nor_a_cheater_does(path: Path) -> None:
    (finding,) = validate_tasks(path, How(sandbox="bubblewrap"))
    assert finding.problems == ()
    assert finding.notes == (), "not even a solution that rewrites the test framework passes"
    assert (finding.oracle, finding.nop, finding.cheat) == (1.0, 0.0, 0.0)


def test_the_sample_config_switches_every_model_off_and_has_the_categories() -> None:
    config = read_models_file(HOME / "models_config.yaml")
    assert config.models == ()
    assert {"GPT-4", "Claude 3 Opus"} <= set(config.disabled)
    assert set(config.categories) == {"fast", "balanced", "powerful", "coding_specialized"}


@pytest.mark.usefixtures("_needs_a_sandbox")
def test_bakeoff_run_takes_a_markdown_task_too(tmp_path: Path) -> None:
    with Cast({"quick": QUICK}).server() as server:
        ended = bakeoff("run", write_task(tmp_path), "--model", "quick", "--base-url", server.url,
                        "--sandbox", "bubblewrap", "--output", tmp_path / "runs", "--json",
                        folder=tmp_path / "io")  # fmt: skip
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["candidates"][0]["total"]["score"]["mean"] == 1.0


@pytest.mark.usefixtures("_needs_a_sandbox")
@pytest.mark.parametrize("words", [("batch", "--task"), ("batch",), ("run",)])
def test_bakeoff_batch_and_bakeoff_run_without_a_model_are_the_same_command(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    with Cast({"quick": QUICK}).server() as server:
        config = tmp_path / "models.yaml"
        config.write_text(json.dumps({"models": [
            {"name": "quick", "provider": "openai-compatible", "base_url": server.url},
        ]}))  # fmt: skip
        ended = bakeoff(*words, write_task(tmp_path), "--models", "all", "--timeout", "60",
                        "--parallel", "--config", config, "--sandbox", "bubblewrap", "--output",
                        tmp_path / "out", folder=tmp_path / "io",
                        env={"OLLAMA_HOST": NO_OLLAMA})  # fmt: skip
    assert ended.code == 0, ended.err
    (report,) = (tmp_path / "out").glob("batch_*/comparison_report.html")
    assert report.is_file()


def test_a_batch_without_a_task_or_with_two_is_a_mistake_of_the_command_line(
    tmp_path: Path,
) -> None:
    for words in ((), ("a.md", "--task", "b.md")):
        ended = bakeoff("batch", *words, folder=tmp_path / "io")
        assert ended.code == 2
        assert "name one task" in ended.err
