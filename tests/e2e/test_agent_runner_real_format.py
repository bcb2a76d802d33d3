"""An agent benchmark in the form that people have it in, through both doors."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from support import cli
from support.agent_benches import Players
from support.cli import Ended
from support.loopback import Loopback, Reply
from support.parts import require

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "tests" / "fixtures" / "agent_bench_project"
PREDICT = (
    "import csv\n"
    "rows = list(csv.DictReader(open('/app/datasets/days.csv')))\n"
    "lines = [f\"{row['id']},{2 * int(row['temperature'])}\" for row in rows]\n"
    "open('submission.csv', 'w').write('\\n'.join(['id,value', *lines]))\n"
)
RUNNER = [sys.executable, str(ROOT / "runner.py"), "--base_config", "configs/base_config.toml"]
BAKEOFF = [sys.executable, "-m", "bakeoff", "run", "configs/base_config.toml", "--agents", "agent_configs"]  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    shutil.copytree(PROJECT, folder)
    return folder


def analyst(messages: list[dict[str, Any]]) -> Reply:
    """Run the code in the first turn, and talk from then on."""
    begins = not any(message["role"] == "assistant" for message in messages)
    text = f"```python\n{PREDICT}```" if begins else "It is done."
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    data = {"id": "x", "model": "candidate", "usage": usage,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}  # fmt: skip
    return Reply(headers={"Content-Type": "application/json"}, body=json.dumps(data).encode())


def code_snippets(history: list[dict[str, Any]]) -> list[str]:
    """Return the code in a conversation as a program for this format finds it."""
    spoken = [
        m["content"] for e in history if e["role"] == "assistant agent" for m in e["all_messages"]
    ]
    return [
        code
        for text in spoken
        for code in re.findall(r"```(?:python)?\s*(.*?)```", text, re.DOTALL)
    ]


def run(words: list[str], project: Path, server: Loopback) -> Ended:
    env = {"ROLES_URL": server.url, "AGENT_URL": server.url,
           "ROLES_KEY": "sk-roles-12345678", "AGENT_KEY": "sk-agent-12345678"}  # fmt: skip
    return cli.run(words, cwd=project, env=env, timeout_s=120)


@pytest.mark.parametrize("words", [RUNNER, BAKEOFF], ids=["runner.py", "bakeoff run"])
def test_a_missing_run_code_is_said_before_anybody_is_asked(
    project: Path, words: list[str]
) -> None:
    with Loopback(Players(2)) as server:
        done = run(words, project, server)
        assert not server.requests
    assert done.code == 1
    assert "agent_configs/analyst.toml: `run_code` is missing. The agent's score in 1 of 1 case (tea-sales) comes from a file that it writes, submission.csv" in done.err  # fmt: skip
    assert "Write `run_code = true` there, or in [llm] of configs/base_config.toml" in done.err
    assert "Traceback" not in done.err
    assert not (project / "experiment_results").exists()


def test_with_run_code_the_files_work_as_they_are(project: Path) -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")
    agent = project / "agent_configs" / "analyst.toml"
    agent.write_text(agent.read_text() + "run_code = true\n")
    players = Players(2, agent=analyst)
    with Loopback(players) as server:
        done = run([*RUNNER, "--sandbox", "bubblewrap"], project, server)
    assert done.code == 0, done.err
    (entry,) = json.loads(
        next((project / "experiment_results").glob("*/all_results.json")).read_text()
    )
    assert (entry["passed"], entry["absolute_metric_score"], entry["skill_score"]) == (
        True,
        0.0,
        1.0,
    )
    summary = json.loads(next((project / "experiment_results").glob("*/summary.json")).read_text())
    assert (summary["successful_tests"], summary["passed_tests"], summary["failed_tests"]) == (
        1,
        1,
        0,
    )
    assert "agent analyst: 1 completed; 1 of 1 passed, mean score 1.000" in done.err
    first = {party: json.loads(messages)[0] for party, messages in reversed(players.asked)}
    assert first["agent"]["role"] == "system"
    assert first["agent"]["content"].startswith("You are a careful analyst.\n\n")
    assert first["instructor"]["content"].startswith("You play a person who needs data analysed.")
    assert first["supervisor"]["content"].startswith("You watch over a person. The plan is:")
    checkpoint = Path(entry["checkpoint_path"])
    assert checkpoint.parts[0] == "agent_checkpoints", "as the agent's file says"
    history = json.loads((project / checkpoint).read_text())["conversation_history"]
    assert code_snippets(history), "what programs for this format look for is there"
    assert {entry["role"] for entry in history} == {"user agent", "gatekeeper", "assistant agent"}


def test_an_agent_that_says_it_runs_no_code_is_told_what_that_means(project: Path) -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")
    agent = project / "agent_configs" / "analyst.toml"
    agent.write_text(agent.read_text().replace('checkpoint_path = "agent_checkpoints/analyst.json"', "run_code = false"))  # fmt: skip
    with Loopback(Players(1)) as server:
        done = run([*RUNNER, "--sandbox", "bubblewrap"], project, server)
    assert done.code == 0, done.err
    assert "analyst: `run_code = false`, so no file is written, and 1 of 1 case (tea-sales) will score 0" in done.err  # fmt: skip
    (entry,) = json.loads(
        next((project / "experiment_results").glob("*/all_results.json")).read_text()
    )
    assert Path(entry["checkpoint_path"]).parts[0] == "user_checkpoints", "as [llm] says"
