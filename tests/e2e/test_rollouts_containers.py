"""Rollouts in containers, and with a real coding agent."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bakeoff._lib.digest import tree_digest
from bakeoff.agents.programs.command import Codex
from support.cli import Ended, run
from support.coding_agents import installed
from support.container_engines import Engine, engine
from support.origin_folder import PROBE, SECRET, SECRET_FILES, write_origin_folder
from support.prepared_tasks import FIX, write_prepared
from support.scripted_llm import Script, scripted_llm

ROLLOUTS = (sys.executable, Path(__file__).parents[2] / "scripts" / "eval_rollouts.py")
FENCE = "```"
MODEL = f"""
agent = "shell"
[models.good]
model = "scripted/good"
settings.rules = [
  {{ match = "^exit code", reply = "Done." }},
  {{ match = ".", reply = "{FENCE}sh\\n{FIX}; find / -path /proc -prune -o -name 'test_add*' -print; cat /made\\n{FENCE}\\n" }},
]
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    return tmp_path


@pytest.fixture(params=["docker", "podman"])
def where(request: pytest.FixtureRequest) -> Engine:
    return engine(request.param)


def _script(*words: str, env: Mapping[str, str]) -> Ended:
    return run([*ROLLOUTS, *words], folder=Path("out").absolute(), env=dict(env), timeout_s=170)


def _results(name: str) -> list[dict[str, Any]]:
    (folder,) = Path(f"data/rollouts/{name}").iterdir()
    return json.loads((folder / "manifest.json").read_text())["results"]


def test_a_dockerfile_makes_the_box_and_a_broken_one_is_a_fault_of_its_own(where: Engine) -> None:
    python = where.with_python()
    prepared = Path("data/tasks/prepared")
    for name, recipe in {
        "fine": f"FROM {python}\nCOPY . /seen/\nRUN echo by the Dockerfile > /made\n",
        "broken": f"FROM {python}\nRUN echo the reason is here && exit 7\n",
    }.items():
        write_prepared(prepared / name)
        (prepared / name / "Dockerfile").write_text(recipe)
    before = tree_digest(prepared)
    Path("configs/c.toml").write_text(
        f'{MODEL}\n[[tasks]]\nprepared_dir = "data/tasks/prepared/*"\nmodel = "good"\nrollouts = 2\n'
    )
    ended = _script(
        "run", "configs/c.toml", env={**where.environment, "SANDBOX_BACKEND": where.name}
    )
    assert ended.code == 3, ended.err + ended.out
    results = _results("c")
    assert [(r["task_id"], r["status"]) for r in results] == [
        ("broken", "faulted"),
        ("fine", "passed"),
    ] * 2
    told = [line for line in ended.out.splitlines() if "with shell+good, rollout" in line]
    (first,) = (line for line in told if "prepared/broken/Dockerfile" in line)
    (second,) = (line for line in told if ": the same as " in line)
    assert second.rpartition(" ")[2] in first, "an equal failure is told once"
    fault = results[0]["fault"]["message"]
    assert "the reason is here" in fault
    assert "prepared/broken/Dockerfile" in fault
    seen = Path(results[1]["run_dir"], "artifacts/transcript.jsonl").read_text()
    assert "by the Dockerfile" in seen
    assert "test_add" not in seen.replace("-name 'test_add*'", "")
    assert tree_digest(prepared) == before
    assert where.containers() == []


def test_no_image_and_no_box_shows_the_copies_of_tests_and_solution_that_overlays_hold(
    where: Engine,
) -> None:
    write_origin_folder(Path("data/prepared/fix_add").absolute(), image=where.with_python())
    probing = MODEL.replace(FIX, f"{FIX}; {PROBE}; ls /seen/overlay_files /opt/overlay")
    Path("configs/c.toml").write_text(
        f'{probing}\n[[tasks]]\nprepared_dir = "data/prepared/*"\nmodel = "good"\n'
    )
    _script("run", "configs/c.toml", env={**where.environment, "SANDBOX_BACKEND": where.name})
    (result,) = _results("c")
    assert (result["status"], result["score"]) == ("passed", 1.0), "the image has no pytest"
    seen = Path(result["run_dir"], "artifacts/transcript.jsonl").read_text()
    assert "/opt/overlay:\\nLM_INSTRUCTIONS.md" in seen, "the build had the overlay"
    assert "../LM_INSTRUCTIONS.md" in seen
    assert SECRET not in seen
    for name in SECRET_FILES:
        assert f"\\n{name}" not in seen
        assert f"\\n../{name}" not in seen


def test_a_dockerfile_is_left_out_where_a_sandbox_without_images_is_asked_for_by_name() -> None:
    folder = write_prepared(Path("data/tasks/prepared/task_1"))
    (folder / "Dockerfile").write_text("FROM nowhere\n")
    Path("configs/c.toml").write_text(
        f'{MODEL}\n[[tasks]]\nprepared_dir = "data/tasks/prepared/*"\nmodel = "good"\n'
    )
    ended = _script("run", "configs/c.toml", env={"SANDBOX_BACKEND": "bubblewrap"})
    assert ended.code == 0, ended.err + ended.out
    assert "'bubblewrap' builds no images: no Dockerfile is used for task_1" in ended.out


def test_codex_solves_a_prepared_task_where_it_is_installed_and_nobody_else_is_named() -> None:
    codex = installed(Codex)
    write_prepared(Path("data/tasks/prepared/task_1"))
    path = f"{Path(str(codex.executable)).parent}{os.pathsep}{os.environ['PATH']}"
    with scripted_llm(Script(steps=(FIX,), final="Done."), key="the-key-of-nobody") as llm:
        Path("configs/c.toml").write_text(
            f'[models.gpt-4]\nmodel = "gpt-4"\nbase_url = "{llm.url}/v1"\napi_key = "${{KEY}}"\n'
            '[[tasks]]\nprepared_dir = "data/tasks/prepared/task_1"\nmodel = "gpt-4"\nrollouts = 2\n'
        )
        env = {"SANDBOX_BACKEND": "bubblewrap", "PATH": path, "KEY": "the-key-of-nobody"}
        ended = _script("run", "configs/c.toml", "-vv", env=env)
    assert ended.code == 0, ended.err + ended.out
    assert "agent: codex, since it is installed" in ended.out
    results = _results("c")
    assert [(r["agent"], r["status"], r["score"]) for r in results] == [
        ("codex", "passed", 1.0)
    ] * 2
    evaluation = json.loads(Path(results[0]["run_dir"], "evaluation_results.json").read_text())
    assert evaluation["agent_metrics"]["tokens_total"] > 0
    assert evaluation["agent_metrics"]["tool_calls_total"] == 1
    assert f"[{results[0]['run_id']}] " in ended.out
    for file in Path("data").rglob("*"):
        if file.is_file():
            assert b"the-key-of-nobody" not in file.read_bytes()
