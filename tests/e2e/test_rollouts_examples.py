"""The examples of rollouts: sound tasks, configs that run, and the automation around them."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bakeoff.app.checks import check
from bakeoff.app.validation import How, validate_tasks
from support.cheat_tasks import FEW, TELLING
from support.cli import Ended, run, started, until
from support.parts import require
from support.prepared_tasks import write_prepared
from support.scripted_llm import Script, scripted_llm

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "rollouts"
CONFIGS = sorted((EXAMPLES / "configs").glob("*.toml"))

# a model that repairs the file of the tests' own prepared task
GOOD = """
agent = "shell"
sandbox = "bubblewrap"
[models.good]
model = "scripted/good"
settings.delay_s = 0.3
settings.rules = [
  { match = "^exit code", reply = "Done." },
  { match = ".", reply = "```sh\\nsed -i 's/a - b/a + b/' calc.py\\n```\\n" },
]
"""


@pytest.fixture(autouse=True)
def _needs_a_sandbox() -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "tricks", [FEW, pytest.param(TELLING, marks=pytest.mark.soak)], ids=["few", "telling"]
)
def test_the_reference_solves_every_example_and_nothing_else_does(tricks: tuple[str, ...]) -> None:
    findings = validate_tasks(
        EXAMPLES / "prepared", How(sandbox="bubblewrap", parallel=4, tricks=tricks)
    )
    assert [f.task for f in findings] == [
        "algorithm_task",
        "coding_task",
        "refactor_code",
        "write_docs",
    ]
    for finding in findings:
        assert finding.lines() == [f"{finding.task}: oracle 1.00, nop 0.00, cheat 0.00  SOUND"]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda p: p.stem)
def test_every_config_is_valid(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert check(config)[0] == f"{config}: valid"


@pytest.mark.parametrize(
    ("name", "runs", "candidates"),
    [("model_comparison", 15, 3), ("parameter_sweep", 6, 2), ("mixed_workloads", 8, 3)],
)
def test_the_configs_of_the_documents_run_with_their_models_elsewhere(
    name: str, runs: int, candidates: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (EXAMPLES / "configs" / f"{name}.toml").read_text()
    text = text.replace("examples/rollouts/prepared", str(EXAMPLES / "prepared"))
    with scripted_llm(Script(steps=("ls",), final="I leave it as it is.")) as llm:
        models = "".join(
            f'[models."{model}"]\nmodel = "{model}"\nbase_url = "{llm.url}/v1"\n\n'
            for model in dict.fromkeys(re.findall(r'model = "(.*)"', text))
        )
        head, tasks, rest = text.partition("[[tasks]]")
        Path("c.toml").write_text(f'{head}agent = "shell"\n{models}{tasks}{rest}')
        words: list[str | Path] = [
            sys.executable,
            ROOT / "scripts/eval_rollouts.py",
            "run",
            "c.toml",
        ]
        env = {"SANDBOX_BACKEND": "bubblewrap"}
        ended = run(words, folder=tmp_path / "out", env=env, timeout_s=170)
    assert ended.code == 0, ended.err + ended.out
    (manifest,) = Path("data/rollouts").glob(f"{name}/*/manifest.json")
    results = json.loads(manifest.read_text())["results"]
    assert len(results) == runs
    assert len({r["candidate"] for r in results}) == candidates
    assert {r["status"] for r in results} == {"failed"}  # nobody did anything


def _nightly(place: Path) -> Path:
    """A repository of somebody's own with a config and a task, as cron finds it."""
    (place / "configs").mkdir()
    write_prepared(place / "data/tasks/prepared/task_1")
    (place / "configs/night.toml").write_text(
        f'name = "every_night"\nparallel = 2\n{GOOD}\n'
        '[[tasks]]\nprepared_dir = "data/tasks/prepared/task_1"\nmodel = "good"\nrollouts = 8\n'
    )
    return place


def _night(place: Path) -> Ended:
    words: list[str | Path] = ["sh", EXAMPLES / "nightly.sh", "configs/night.toml"]
    env = {"BAKEOFF_ROOT": str(place), "PYTHON": sys.executable}
    with started(words, folder=place / "out", env=env) as running:
        return running.wait(150)


def test_a_night_is_run_summarized_and_its_exit_code_can_be_relied_on(tmp_path: Path) -> None:
    place = _nightly(tmp_path)
    ended = _night(place)
    assert ended.code == 0, ended.err + ended.out
    assert "8 of 8 tasks completed: " in ended.out
    assert "8 runs planned: 8 scored" in ended.out
    (place / "data/tasks/prepared/task_1/tb_meta.json").unlink()
    ended = _night(place)
    assert ended.code == 3
    assert "tb_meta.json is not there" in ended.out
    (place / "configs/night.toml").write_text("wrong = ")
    assert _night(place).code == 1
    assert len(list((place / "data/rollouts/every_night").iterdir())) == 2


def test_a_night_that_was_cut_off_is_gone_on_with_the_next(tmp_path: Path) -> None:
    place = _nightly(tmp_path)
    words: list[str | Path] = ["sh", EXAMPLES / "nightly.sh", "configs/night.toml"]
    env = {"BAKEOFF_ROOT": str(place), "PYTHON": sys.executable}
    with started(words, folder=place / "out", env=env) as running:
        until(lambda: " passed: " in running.out, timeout_s=60)
        os.killpg(running.pid, 9)  # a reboot: the script and all it started
        running.wait()
    ended = _night(place)
    assert ended.code == 0, ended.err + ended.out
    assert "are done)" in ended.out
    (manifest,) = place.glob("data/rollouts/every_night/*/manifest.json")
    assert len(json.loads(manifest.read_text())["results"]) == 8


def test_the_line_for_cron_is_one_and_names_the_script() -> None:
    (line,) = [text for text in (EXAMPLES / "crontab").read_text().splitlines() if text[:1] != "#"]
    assert re.fullmatch(r"0 2 \* \* \* /path/to/repo/(\S+) configs/\S+ >>\S+ 2>&1", line)
    script = line.split()[5].removeprefix("/path/to/repo/")
    assert os.access(ROOT / script, os.X_OK)


def test_the_workflow_runs_and_summarizes_what_is_there(tmp_path: Path) -> None:
    place = _nightly(tmp_path)
    workflow = yaml.safe_load((EXAMPLES / "github" / "benchmark.yml").read_text())
    steps = {step.get("name"): step for step in workflow["jobs"]["benchmark"]["steps"]}
    summary = tmp_path / "step-summary.md"
    environ = {
        **os.environ,
        "CONFIG": "configs/night.toml",
        "GITHUB_STEP_SUMMARY": str(summary),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    for name in ("Run", "Summarize"):
        done = subprocess.run(
            ["bash", "-e", "-c", steps[name]["run"]],
            cwd=place,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
    assert "8 runs planned: 8 scored" in summary.read_text()
