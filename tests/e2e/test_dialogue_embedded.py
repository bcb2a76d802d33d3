"""Real small models in all three seats: conversations run to their end."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.parts import require_embedded_model
from support.real_ollama import real_ollama

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "dialogues"
ENDS = {"completed", "limited"}


def run(folder: Path, base: Path, **environment: str) -> list[dict[str, Any]]:
    """Run a base file from *folder*; return what `all_results.json` says."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "runner.py"), "--base_config", str(base)],
        cwd=folder, capture_output=True, text=True, check=False, timeout=800,
        env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (results,) = (folder / "results").glob("*/all_results.json")
    entries: list[dict[str, Any]] = json.loads(results.read_text())
    for entry in entries:
        assert entry["status"] in ENDS, entry
        assert entry["tokens"]["agent"]["output"]
        assert "turn 1 agent: " in (folder / entry["log_path"]).read_text()
    return entries


ALL_OF_THEM = sorted(path.stem for path in (EXAMPLES / "cases").iterdir())


@pytest.mark.embedded
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "cases",
    [["paint-for-a-room"], pytest.param(ALL_OF_THEM, marks=pytest.mark.soak)],
    ids=["one with all three seats", "all"],
)
def test_the_demo_holds_our_conversations_with_the_embedded_model(
    tmp_path: Path, cases: list[str]
) -> None:
    require_embedded_model()
    # the demo itself, but for how long they may talk
    shorter = {
        "embedded.toml": {"max_turns = 3": "max_turns = 2", "max_tokens = 80": "max_tokens = 30"},
        "embedded_agent.toml": {"max_tokens = 60": "max_tokens = 20"},
    }
    for name, changes in shorter.items():
        text = (EXAMPLES / name).read_text()
        for long, short in changes.items():
            assert long in text
            text = text.replace(long, short)
        where = f'"{EXAMPLES}/cases"\ntest_cases = {json.dumps(cases)}'
        (tmp_path / name).write_text(text.replace('"cases"', where))
    entries = run(tmp_path, tmp_path / "embedded.toml")
    assert sorted(entry["test_case"] for entry in entries) == cases
    for entry in entries:
        assert 1 <= entry["conversation_turns"] <= 2
        assert entry["tokens"]["instructor"]["output"]
        if entry["test_case"] != "packing-list":  # shards: nobody watches
            assert entry["tokens"]["supervisor"]["output"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "cases",
    [["paint-for-a-room"], pytest.param(["packing-list"], marks=pytest.mark.soak)],
    ids=["all three seats", "shards"],
)
def test_a_conversation_with_a_real_ollama_in_every_seat_runs_to_its_end(
    tmp_path: Path, cases: list[str]
) -> None:
    (tmp_path / "base.toml").write_text(
        '[llm]\nmodel = "ollama/smollm2:135m"\nmax_tokens = 60\ntemperature = 0\n'
        f'[benchmark]\nbenchmark_dir = "{EXAMPLES}/cases"\nmax_turns = 2\n'
        f"test_cases = {json.dumps(cases)}\n"
    )
    (tmp_path / "agent_configs").mkdir()
    (tmp_path / "agent_configs" / "small.toml").write_text(
        'model = "ollama/smollm2:135m-q8_0"\nmax_tokens = 20\ntemperature = 0\n'
    )
    with real_ollama() as server:
        (entry,) = run(tmp_path, tmp_path / "base.toml", OLLAMA_HOST=server.url)
    assert entry["model"] == "ollama/smollm2:135m-q8_0"
    assert entry["tokens"]["instructor"]["output"]
    if cases == ["packing-list"]:  # shards have no supervisor
        assert "supervisor" not in entry["tokens"]
    else:
        assert entry["tokens"]["supervisor"]["output"]
