"""An agent that looks everywhere it can finds nothing of what it must not see."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.agent_benches import Players, write_agent, write_base, write_bench
from support.loopback import Asked, Loopback, Reply, chat
from support.parts import require

ROOT = Path(__file__).parents[2]
PROBE = ROOT / "tests" / "support" / "dialogue_probe.py"
CANARY = "CANARY"
PLANTED = "/app/datasets/notes.txt"


@pytest.fixture(autouse=True)
def _needs_a_sandbox() -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")


def plant(folder: Path, url: str) -> Path:
    """Write a benchmark with a word of its own in everything that the agent must not see."""
    write_bench(folder, ["case"], data=True)
    case = folder / "bench" / "storage" / "case"
    told = case / "instructions"
    (told / "instructions.md").write_text(
        f"**Objective**\n{CANARY}-objective\n\n**Your Knowledge**\n{CANARY}-knowledge\n"
    )
    (told / "reference_insights.md").write_text(f"{CANARY}-reference")
    (told / "gatekeeper_reference.md").write_text(f"{CANARY}-supervision")
    truth = case / "ground_truth" / "truth.csv"
    truth.write_text(truth.read_text() + f"3,31,{CANARY}-truth\n")
    metrics = case / "evaluation" / "evaluation_metrics.py"
    metrics.write_text(f"# {CANARY}-metrics\n" + metrics.read_text())
    (case / "datasets" / "notes.txt").write_text(f"{CANARY}-planted: a probe that works finds it")
    base = write_base(folder, url)
    text = base.read_text().replace("sk-role-key-1234", f"{CANARY}-role-key")
    prompts = (
        f'[instructor]\nsystem_prompt = "You play a person. {CANARY}-instructor-prompt"\n'
        f'[supervisor]\nsystem_prompt = "You watch over a person. {CANARY}-supervisor-prompt"\n'
        '[sandbox]\nname = "bubblewrap"\n'
    )
    base.write_text(text.replace("[benchmark]", f"{prompts}[benchmark]"))
    (folder / ".env").write_text(f"OPENAI_API_KEY={CANARY}-env-file\n")
    return base


def hints(folder: Path, url: str) -> str:
    """What an attacker could have guessed of the host."""
    places = ("", ".env", "base_config.toml", "bench", "results", "logs", "checkpoints")
    paths = [str(folder / place) for place in places]
    return json.dumps({"paths": [*paths, str(Path.home())], "ports": [urlsplit(url).port]})


def run(folder: Path, base: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "runner.py"), "--base_config", str(base)],
        cwd=folder, capture_output=True, text=True, check=False, timeout=300,
        env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "SECRET": f"{CANARY}-environment",
             "ANTHROPIC_API_KEY": f"{CANARY}-environment-key"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads(next((folder / "results").glob("*/all_results.json")).read_text())
    return entry


def findings(texts: list[str]) -> list[list[str]]:
    lines = [line for text in texts for line in text.splitlines() if line.startswith("looked ")]
    return [json.loads(line.removeprefix("looked ")) for line in lines]


def seen_by_the_agent(server: Loopback) -> list[Asked]:
    return [asked for asked in server.requests if asked.body["model"] != "roles"]


def calls(code: str) -> Callable[[list[dict[str, Any]]], Reply]:
    """A model that runs *code* in every turn, and then says what it saw."""

    def played(messages: list[dict[str, Any]]) -> Reply:
        if messages[-1]["role"] == "tool":
            return chat("seen")
        call: dict[str, Any] = {"id": f"c{len(messages)}", "type": "function"}
        call["function"] = {"name": "run_code", "arguments": json.dumps({"code": code})}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        data = {"id": "x", "model": "m", "choices": [choice], "usage": usage}
        return Reply(headers={"Content-Type": "application/json"}, body=json.dumps(data).encode())

    return played


def test_code_of_a_model_finds_only_what_was_planted_for_it(tmp_path: Path) -> None:
    with Loopback(Players(2)) as server:
        code = f"HINTS = {hints(tmp_path, server.url)!r}\n{PROBE.read_text()}"
        server.answer = Players(2, agent=calls(code))
        base = plant(tmp_path, server.url)
        write_agent(tmp_path, "one", server.url, run_code=True, api_key=f"{CANARY}-agent-key")
        entry = run(tmp_path, base)
    assert entry["conversation_turns"] >= 2  # the second time, logs and checkpoints are there
    asked = seen_by_the_agent(server)
    last = [m["content"] or "" for m in asked[-1].body["messages"]]
    looked = findings(last)
    assert len(looked) >= 2
    assert looked == [[PLANTED]] * len(looked)
    for request in asked:
        assert f"{CANARY}-" not in json.dumps(request.body)


def test_a_program_finds_no_more_and_reaches_no_role_through_its_gateway(tmp_path: Path) -> None:
    (tmp_path / "tool").mkdir()
    shutil.copy(PROBE, tmp_path / "tool" / "probe.py")
    with Loopback(Players(2)) as server:
        base = plant(tmp_path, server.url)
        agent = write_agent(tmp_path, "one", server.url, framework="command",
                            api_key=f"{CANARY}-agent-key")  # fmt: skip
        command = ["env", f"HINTS={hints(tmp_path, server.url)}", "python3",
                   str(tmp_path / "tool" / "probe.py")]  # fmt: skip
        settings = {"command": command, "mounted": [str(tmp_path / "tool")]}
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
        agent.write_text(f"{agent.read_text()}[settings]\n{lines}\n")
        entry = run(tmp_path, base)
    looked = findings([Path(entry["log_path"]).read_text()])
    assert len(looked) >= 2
    assert looked == [[PLANTED]] * len(looked)
    probes = [asked for asked in server.requests if asked.prompt.startswith("PROBE as ")]
    assert {asked.body["model"] for asked in probes} == {"candidate"}
    assert len(probes) == 4 * len(looked)
    assert all(f"{CANARY}-" not in json.dumps(asked.body) for asked in seen_by_the_agent(server))
