"""A batch with a coding agent from somebody else: the same figures, counted at the gateway."""

import os
import shutil
from pathlib import Path

import pytest

from bakeoff.agents.programs.command import Codex, Continue, NamedProgram
from support.batch_scene import BatchScene, write_config, write_task
from support.coding_agents import installed
from support.coding_tasks import FIX
from support.parts import require
from support.scripted_llm import Script, scripted_llm

pytestmark = pytest.mark.timeout(600)  # the first run installs the agents

SOLVES = Script(steps=(FIX, "cat calc.py"), final="Done.")
IDLES = Script(steps=("true",), final="Done.")


@pytest.mark.parametrize(("name", "kind"), [("continue", Continue), ("codex", Codex)])
def test_a_named_agent_works_with_every_model_of_the_batch(
    tmp_path: Path, name: str, kind: type[NamedProgram]
) -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")
    program = Path(str(installed(kind).executable))
    with scripted_llm(SOLVES) as good, scripted_llm(IDLES) as bad:
        config = write_config(tmp_path, {"good": good.url, "bad": bad.url})
        batch = BatchScene(folder=tmp_path, task=write_task(tmp_path), config=config)
        path = f"{program.parent}:{os.environ['PATH']}"
        ended = batch.run("--agent", name, "--timeout", "120", env={"PATH": path}, timeout_s=300)
        prompts = {"good": good.prompts, "bad": bad.prompts}
    assert ended.code == 0, ended.err
    assert {model: r["success"] for model, r in batch.results.items()} == {"good": True, "bad": False}  # fmt: skip
    assert {model: r["prompts_sent"] for model, r in batch.results.items()} == prompts
    assert batch.report["setting"]["agent"] == name


def test_an_agent_that_is_not_installed_is_told_in_one_line_and_leaves_no_batch(
    tmp_path: Path,
) -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")
    with scripted_llm(SOLVES) as good:
        config = write_config(tmp_path, {"good": good.url})
        batch = BatchScene(folder=tmp_path, task=write_task(tmp_path), config=config)
        nothing = tmp_path / "bin"
        nothing.mkdir()
        for tool in ("bwrap", "git", "sh", "python3"):
            (nothing / tool).symlink_to(shutil.which(tool) or tool)
        ended = batch.run("--agent", "codex", env={"PATH": str(nothing)})
        assert good.prompts == 0
    assert ended.code == 1
    assert "npm install" in ended.err
    assert "Traceback" not in ended.err
    assert batch.batches == []
