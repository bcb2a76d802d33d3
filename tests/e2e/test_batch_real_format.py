"""Markdown tasks in the form that people have them in: a `**Repo**` line, and no folder of their own."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.batch_scene import NO_OLLAMA, Cast, Part, write_config
from support.cli import Ended, run
from support.parts import require

PROJECT = Path(__file__).parents[1] / "fixtures" / "batch_project"
KEEP_CENTS = "sed -i 's/int(sum(prices))/round(sum(prices), 2)/' sample_project/src/prices.py"
ADD_DISCOUNT = (
    "printf 'def discounted(price, member):\\n    return price * 9 / 10 if member else price\\n' "
    "> sample_project/src/discount.py"
)


@pytest.fixture(autouse=True)
def _needs_a_sandbox() -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    shutil.copytree(PROJECT, folder)
    return folder


def batch(project: Path, task: str, commands: Sequence[str], *more: str) -> tuple[Ended, str]:
    """Run a batch of one model in *project*; return its end, and all that the model was sent."""
    with Cast({"m": Part(commands=commands)}).server() as server:
        config = write_config(project.parent, {"m": server.url})
        words: list[str | Path] = [sys.executable, "-m", "bakeoff", "batch", task, "--output", project.parent / "out",
                 "--config", config, "--sandbox", "bubblewrap", *more]  # fmt: skip
        io, env = project.parent / "io", {"OLLAMA_HOST": NO_OLLAMA}
        ended = run(words, folder=io, env=env, cwd=project)
        return ended, "".join(json.dumps(request.body) for request in server.requests)


def result(project: Path) -> dict[str, Any]:
    (report,) = (project.parent / "out").glob("*/comparison_report.json")
    (only,) = json.loads(report.read_text())["results"]
    return only


def commit_all(folder: Path) -> None:
    git = ("git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@localhost")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "all")):
        subprocess.run([*git, *words], check=True, timeout=60)


def test_a_named_folder_is_what_the_agents_work_on(project: Path) -> None:
    look = "cat sample_project/src/prices.py"
    ended, sent = batch(project, "benchmark/tasks/easy/fix_rounding.md", (look, KEEP_CENTS))
    assert ended.code == 1, "nothing checks it"
    assert "return int(sum(prices))" in sent, "the file is there to be read"
    found = result(project)
    assert (found["status"], found["files_modified"], found["lines_added"]) == ("unchecked", 1, 1)
    assert "int(sum(prices))" in (project / "sample_project/src/prices.py").read_text(), "a copy"


def test_the_current_project_is_a_copy_of_the_commit_without_secrets_and_hidden_tests(
    project: Path,
) -> None:
    commit_all(project)
    (project / ".env").write_text("KEY=not-for-agents\n")
    ended, sent = batch(
        project,
        "benchmark/tasks/medium/add_discount.md",
        ("find . -name .git -prune -o -type f -exec cat {} +", ADD_DISCOUNT),
    )
    assert ended.code == 0, ended.err
    assert "add_discount.md: 'Your current project' is " in ended.err
    assert "return int(sum(prices))" in sent
    assert "not-for-agents" not in sent
    assert "no agent may read this file" not in sent, "its tests lie in the same repository"
    found = result(project)
    assert (found["success"], found["files_modified"]) == (True, 1)
    assert not (project / "sample_project/src/discount.py").exists()


def test_what_is_not_there_is_refused_before_anybody_is_asked(project: Path) -> None:
    ended, sent = batch(project, "benchmark/tasks/hard/move_away.md", ())
    assert (ended.code, sent) == (1, "")
    assert ended.err.startswith(
        "bakeoff: error: benchmark/tasks/hard/move_away.md:4: `**Repo**`: there is no folder "
        "'another_shop' for the agents to work on"
    )
    assert len(ended.err.splitlines()) == 1
    assert not (project.parent / "out").exists()
