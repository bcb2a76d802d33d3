"""A folder as the origin's prepare tool makes it, through run, summarize and eval."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from support.cli import Ended, run
from support.origin_folder import (
    PROBE,
    SECRET,
    SECRET_FILES,
    apply_in_repository,
    write_origin_folder,
)
from support.prepared_tasks import FIX, write_overrides
from support.sandboxes import bubblewrap, local

ROLLOUTS = (sys.executable, Path(__file__).parents[2] / "scripts" / "eval_rollouts.py")
FENCE = "```"
MODEL = f"""
agent = "shell"
[models.good]
model = "scripted/good"
settings.rules = [
  {{ match = "^exit code", reply = "Done." }},
  {{ match = ".", reply = "{FENCE}sh\\n{FIX}; {PROBE}\\n{FENCE}\\n" }},
]

[[tasks]]
prepared_dir = "data/prepared/*"
model = "good"
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run in, with one prepared task in it, and a config for it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("bench.toml").write_text(MODEL)
    write_origin_folder(tmp_path / "data/prepared/fix_add")
    return tmp_path


def _script(*words: str | Path, **env: str) -> Ended:
    return run([*ROLLOUTS, *words], folder=Path("out").absolute(), env=env, timeout_s=150)


def _rollout() -> Path:
    (folder,) = Path("data/rollouts/bench").iterdir()
    return folder


def _result() -> dict[str, Any]:
    (result,) = json.loads((_rollout() / "manifest.json").read_text())["results"]
    return result


def _seen_by_the_agent() -> str:
    return Path(_result()["run_dir"], "artifacts/transcript.jsonl").read_text()


def _assert_nothing_secret(seen: str) -> None:
    assert "../LM_INSTRUCTIONS.md" in seen, "the overlay itself is there"
    assert "../repo/calc.py" in seen
    assert SECRET not in seen
    for name in (*SECRET_FILES, "overrides.json"):
        # cat names what it did not find, find would name what is there
        assert f"\\n../{name}" not in seen
        assert f"\\n../repo/{name}" not in seen


@pytest.mark.parametrize("backend", [local(), bubblewrap()], ids=str)
def test_an_agent_that_looks_for_the_tests_and_the_solution_finds_none(backend: Any) -> None:
    backend.require()
    _script("run", "bench.toml", SANDBOX_BACKEND=backend.name)
    _assert_nothing_secret(_seen_by_the_agent())


def test_no_override_and_no_overlay_of_the_repository_brings_them_in_either() -> None:
    bubblewrap().require()
    folder = Path("data/prepared/fix_add")
    for name in SECRET_FILES:
        (folder / "overlay_repo_files" / name).write_text(SECRET)
    (folder / "overlay_repo_files" / "added.txt").write_text("as it was given\n")
    write_overrides(
        folder,
        overlay_files={"tb_meta.json": SECRET, "deep/notes.md": SECRET, "hint.txt": "a hint"},
        overlay_repo_files={"diff.patch": SECRET},
        inject_files=[
            {"path": "/app/repo_info.json", "content": SECRET},
            {"path": "tb_meta.json", "content": SECRET},
        ],
    )
    ended = _script("run", "bench.toml", SANDBOX_BACKEND="bubblewrap")
    seen = _seen_by_the_agent()
    _assert_nothing_secret(seen)
    assert "../hint.txt" in seen
    assert "../repo/added.txt" in seen
    (line,) = [line for line in ended.out.splitlines() if "not copied into the box" in line]
    for name in ("overlay_repo_files/notes.md", "overrides.json: deep/notes.md"):
        assert name in line


def test_its_pytest_scripts_run_where_bubblewrap_is_all_there_is() -> None:
    bubblewrap().require()
    Path("bench.toml").write_text(
        Path("bench.toml").read_text().replace(PROBE, "ls -a / /opt; env")
    )
    ended = _script("run", "bench.toml", SANDBOX_BACKEND="bubblewrap")
    assert ended.code == 0, ended.out + ended.err
    found = json.loads(Path(_result()["run_dir"], "evaluation_results.json").read_text())
    assert {path: test["success"] for path, test in found["test_results"].items()} == {
        "tests/test_task_completion.py": True,
        "tests/test_code_runs.py": True,
    }
    assert found["custom_metrics"] == {"files": 1}
    assert "pytest" not in _seen_by_the_agent().lower()
    patch = Path(_result()["run_dir"], "artifacts/diff.patch")
    assert "a/repo" not in patch.read_text()
    assert "a + b" in apply_in_repository(Path("data/prepared/fix_add"), patch)
    for command in ("summarize", "eval"):
        again = _script(command, "bench", "--latest")
        assert again.code == 0, again.out + again.err
        assert "| task | model | run | unit | lm | tokens | tools |" in again.out
    assert _result()["score"] == 1.0
