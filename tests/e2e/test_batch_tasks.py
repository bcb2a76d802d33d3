"""The tasks that come with the batch runner: proven, and runnable by name."""

import json
import shutil
from pathlib import Path

import pytest

from bakeoff.app.validation import How, validate_tasks
from bakeoff.cli import batch_command, call, run_command
from bakeoff.cli.options import options_of
from bakeoff.formats.markdown_task import CRITERIA, read_markdown
from bakeoff.formats.models_file import read_models_file
from support.batch_scene import NO_OLLAMA, QUICK, Cast, write_config, write_task
from support.cheat_tasks import FEW, TELLING
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
@pytest.mark.parametrize(
    "tricks", [FEW, pytest.param(TELLING, marks=pytest.mark.soak)], ids=["few", "telling"]
)
@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.stem)
def test_the_reference_solves_it_and_neither_nobody_nor_a_cheater_does(
    path: Path, tricks: tuple[str, ...]
) -> None:
    (finding,) = validate_tasks(path, How(sandbox="bubblewrap", tricks=tricks))
    assert finding.problems == ()
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


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two models at a place where nobody listens: whoever is asked would fault."""
    monkeypatch.setenv("OLLAMA_HOST", NO_OLLAMA)
    monkeypatch.chdir(tmp_path)
    urls = {"a": f"{NO_OLLAMA}/v1", "b": f"{NO_OLLAMA}/v1"}
    return write_config(tmp_path, urls)


@pytest.mark.parametrize("door", ["run", "batch"])
def test_a_dry_run_of_a_markdown_task_prints_the_plan_and_leaves_nothing(
    tmp_path: Path, config: Path, door: str, capsys: pytest.CaptureFixture[str]
) -> None:
    task = write_task(tmp_path)
    words = [door, str(task), "--dry-run", "--config", str(config), "--rollouts", "3"]
    assert call(words) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (shown["name"], shown["trials"]) == ("add", "6")
    assert shown["candidates"] == "shell+The a, shell+The b"
    assert shown["files"].endswith("add/repo")
    assert call([*words, "--json", "--timeout", "7", "--parallel"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["checked_by"], plan["time_limit_s"], plan["parallel"]) == (["tests"], 7.0, 2)
    assert not (tmp_path / "benchmark").exists()
    assert not (tmp_path / "runs").exists()


def test_options_of_run_hold_for_a_batch_or_are_refused_in_terms_of_run(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = ["run", str(write_task(tmp_path)), "--dry-run", "--json", "--config", str(config)]
    for words, parallel in ((["--parallel", "1"], 1), (["--parallel=8"], 2), (["-a", "shell"], 1)):
        assert call([*start, *words]) == 0
        assert json.loads(capsys.readouterr().out)["parallel"] == parallel
    taken_by_both = options_of(run_command.parser()) & options_of(batch_command.parser())
    for option in sorted(options_of(run_command.parser()) - taken_by_both - {"-m", "--model"}):
        with pytest.raises(SystemExit) as ended:
            call([*start, option])
        assert ended.value.code == 2
        assert f"bakeoff run: error: {option} needs --model" in capsys.readouterr().err


@pytest.mark.parametrize("more", [["--max-cost", "2"], ["--set", "limits.time_s=5"], ["--limit", "1"],
                                  ["--category", "easy"], ["--test", "a*"], ["--parallel", "2"],
                                  ["-a", "shell", "-a", "oracle"], ["--base-url", "http://127.0.0.1:9/v1"]])  # fmt: skip
def test_with_a_model_every_option_of_run_holds_for_a_markdown_task(
    tmp_path: Path, config: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert config.is_file()
    words = [
        "run",
        str(write_task(tmp_path)),
        "--model",
        "openai/gpt-4.1-mini",
        "--dry-run",
        "--json",
        *more,
    ]
    assert call(words) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "add"


@pytest.mark.usefixtures("_needs_a_sandbox")
def test_the_newest_batch_is_resumed_as_latest_and_can_print_json(tmp_path: Path) -> None:
    with Cast({"quick": QUICK}).server() as server:
        config = write_config(tmp_path, {"quick": server.url})
        words: list[str | Path] = ["run", write_task(tmp_path), "--config", config, "--sandbox", "bubblewrap", "--json",
                 "--output", tmp_path / "out"]  # fmt: skip
        env = {"OLLAMA_HOST": NO_OLLAMA}
        first = bakeoff(*words, folder=tmp_path / "io", env=env)
        asked = len(server.requests)
        again = bakeoff(*words, "--resume", "latest", folder=tmp_path / "io", env=env)
        assert len(server.requests) == asked
    assert (first.code, again.code) == (0, 0), first.err + again.err
    assert json.loads(first.out)["batch_id"] == json.loads(again.out)["batch_id"]
