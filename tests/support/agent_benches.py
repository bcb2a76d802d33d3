"""An agent benchmark on disk: a base file, agents, cases, and a server that plays all three seats."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.loopback import Asked, Reply, chat

METRICS = """\
import csv


def evaluate(y_true_path, y_pred_path):
    def column(path):
        with open(path, newline="") as file:
            return [float(row["value"]) for row in csv.DictReader(file)]

    true, predicted = column(y_true_path), column(y_pred_path)
    assert len(true) == len(predicted), "another number of rows"
    return sum(abs(a - b) for a, b in zip(true, predicted)) / len(true)
"""
BASELINE = {"score": 2.0, "success": True, "is_higher_better": False, "theoretical_best": 0.0}


def write_case(bench: Path, case: str, *, data: bool = False, **texts: str) -> Path:
    """Write one case; with *data*, it has datasets, a truth and an evaluation."""
    folder = bench / "storage" / case
    told = folder / "instructions"
    told.mkdir(parents=True)
    (told / "instructions.md").write_text(
        f"**Objective**\nwant {case}\n\n**Your Knowledge**\nknown of {case}\n"
    )
    (told / "reference_insights.md").write_text(f"insight of {case}\n")
    for name, text in texts.items():
        (told / f"{name}.md").write_text(text)
    if data:
        for name in ("datasets", "ground_truth", "evaluation"):
            (folder / name).mkdir()
        (folder / "datasets" / "numbers.csv").write_text("id,x\n1,10\n2,20\n")
        (folder / "ground_truth" / "truth.csv").write_text("id,value\n1,11\n2,21\n")
        (folder / "evaluation" / "evaluation_metrics.py").write_text(METRICS)
        (folder / "evaluation" / "numeric_baseline.json").write_text(json.dumps(BASELINE))
    return folder


def write_bench(folder: Path, cases: Sequence[str], *, data: bool = False) -> Path:
    """Write a benchmark with *cases*."""
    bench = folder / "bench"
    for case in cases:
        write_case(bench, case, data=data)
    (bench / "meta_info").mkdir(parents=True)
    (bench / "meta_info" / "benchmark_list.json").write_text(json.dumps(list(cases)))
    return bench


def write_base(
    folder: Path, url: str, *, benchmark: Mapping[str, Any] | None = None, more: str = ""
) -> Path:
    """Write a base file whose roles are at *url*; everything goes into *folder*."""
    table = {
        "benchmark_dir": str(folder / "bench"),
        "results": str(folder / "results"),
        "log_path": str(folder / "logs"),
        "checkpoint_path": str(folder / "checkpoints"),
        **(benchmark or {}),
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    path = folder / "base_config.toml"
    path.write_text(
        f'[llm]\nmodel = "roles"\napi_base = "{url}"\napi_key = "sk-role-key-1234"\n'
        f"retry_delay = 0.05\n{more}\n[benchmark]\n" + "\n".join(lines) + "\n"
    )
    return path


def write_agent(folder: Path, name: str, url: str, **keys: Any) -> Path:
    """Write one agent."""
    agents = folder / "agent_configs"
    agents.mkdir(exist_ok=True)
    table = {"model": "candidate", "api_base": url, "api_key": "sk-agent-key-1234", **keys}
    path = agents / f"{name}.toml"
    path.write_text("\n".join(f"{k} = {json.dumps(v)}" for k, v in table.items()) + "\n")
    return path


class Players:
    """Answers as the instructor, the supervisor and the agents; ends each talk after *turns*.

    What a party says depends only on how far the talk has come, so a repeated question gets the
    same answer. `asked` holds the party and the messages of everything that was answered.
    """

    def __init__(
        self, turns: int = 3, *, agent: Callable[[list[dict[str, Any]]], Reply] | None = None
    ) -> None:
        self._turns = turns
        self._agent = agent
        self._lock = threading.Lock()
        self.asked: list[tuple[str, str]] = []

    def __call__(self, asked: Asked) -> Reply:
        party, reply = self.play(asked)
        with self._lock:
            self.asked.append((party, json.dumps(asked.body["messages"])))
        return reply

    def play(self, asked: Asked) -> tuple[str, Reply]:
        messages = asked.body["messages"]
        system = messages[0]["content"] if messages[0]["role"] == "system" else ""
        said = sum(message["role"] == "assistant" for message in messages)
        if "You watch over a person" in system:
            objects = "message 2" in messages[-1]["content"].split("new message:")[1]
            follow_up = "please do it the other way" if objects else None
            told = {"thought": "", "contradictory": objects, "follow_up_instruction": follow_up}
            return "supervisor", chat(json.dumps(told))
        if "You play a person" in system:
            number, end = said + 1, said + 1 >= self._turns
            told = {"thought": "", "user_response": f"this is message {number}", "end": end}
            return "instructor", chat(json.dumps(told))
        if self._agent is not None:
            return "agent", self._agent(messages)
        return "agent", chat(f"reply {said + 1}")
