"""A small batch for tests: a task with a hidden check, models on loopback, and the script as a process."""

import csv
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.cli import Ended, Running, run, started
from support.coding_tasks import FIX, RIGHT, WRONG
from support.loopback import Asked, Loopback, Reply

RUNNER = Path(__file__).parents[2] / "benchmark" / "batch_runner.py"
NO_OLLAMA = "http://127.0.0.1:9"  # where nobody listens

_TASK = """\
# Task: Repair the addition

**Difficulty**: Easy

## Requirements
- `add` in calc.py adds

## Success Criteria
- [ ] `add(2, 3)` is 5
"""
_TEST = """\
import unittest

from calc import add


class Adding(unittest.TestCase):
    def test_two_and_three_are_five(self):
        self.assertEqual(add(2, 3), 5)
"""


def write_task(folder: Path, *, checked: bool = True, front: str = "") -> Path:
    """Write `add.md` and the folder beside it, and return the file."""
    task = folder / "add.md"
    (folder / "add" / "repo").mkdir(parents=True)
    (folder / "add" / "repo" / "calc.py").write_text(WRONG)
    task.write_text(front + _TASK)
    if checked:
        (folder / "add" / "tests").mkdir()
        (folder / "add" / "tests" / "test_calc.py").write_text(_TEST)
        (folder / "add" / "solution").mkdir()
        (folder / "add" / "solution" / "calc.py").write_text(RIGHT)
    return task


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a model does: commands one after another, then a word; each answer takes a while."""

    commands: Sequence[str] = (FIX,)
    final: str = "Done."
    pause_s: float = 0.0


SOLVES = Part(commands=("cat calc.py", FIX))
QUICK = Part(commands=(FIX,))
LAZY = Part(commands=(), final="I am done.")
_NAP = str(100_000 + os.getpid())  # seconds that nobody else sleeps for
HANGS = Part(commands=(f"trap '' TERM; sleep {_NAP} & setsid sleep {_NAP} & sleep {_NAP}",))


@dataclass
class Cast:
    """Models on one server, each playing its part; a model whose gate is shut answers nobody.

    `peak` is how many requests for a model were under way at once.
    """

    parts: Mapping[str, Part]
    gates: dict[str, threading.Event] = field(default_factory=dict)
    under_way: Counter[str] = field(default_factory=Counter)
    peak: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def server(self) -> Iterator[Loopback]:
        with Loopback(self._answer) as server:
            try:
                yield server
            finally:
                for gate in self.gates.values():
                    gate.set()

    def shut(self, model: str) -> threading.Event:
        self.gates[model] = threading.Event()
        return self.gates[model]

    def _answer(self, asked: Asked) -> Reply:
        model = asked.body["model"]
        part = self.parts[model]
        self.under_way[model] += 1
        self.peak[model] = max(self.peak[model], self.under_way[model])
        if gate := self.gates.get(model):
            gate.wait(60)
        time.sleep(part.pause_s)
        self.under_way[model] -= 1
        turn = sum(message["role"] == "assistant" for message in asked.body["messages"])
        if turn < len(part.commands):
            return _calls(part.commands[turn])
        return _reply({"role": "assistant", "content": part.final}, "stop")


def _calls(command: str) -> Reply:
    arguments = json.dumps({"command": command})
    call = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": arguments}}
    return _reply({"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls")


def _reply(message: dict[str, Any], finish: str) -> Reply:
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    data = {"id": "x", "model": "played", "usage": usage,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}]}  # fmt: skip
    return Reply(headers={"Content-Type": "application/json"}, body=json.dumps(data).encode())


def write_config(folder: Path, urls: Mapping[str, str], **rest: Any) -> Path:
    """Write a models_config.yaml (JSON is YAML) with these models and where they are."""
    models = [
        {"name": name, "provider": "openai-compatible", "base_url": url, "display_name": f"The {name}",
         "settings": {"max_retries": 0, **rest.get("settings", {})}}
        for name, url in urls.items()
    ]  # fmt: skip
    path = folder / "models_config.yaml"
    data = {"models": models, "batch_settings": rest.get("batch_settings", {}),
            "categories": rest.get("categories", {}), "endpoints": rest.get("endpoints", {})}  # fmt: skip
    path.write_text(json.dumps(data))
    return path


@dataclass
class BatchScene:
    """A folder with a task and a config in it, and the results of the batches that were run there."""

    folder: Path
    task: Path
    config: Path | None

    @property
    def output(self) -> Path:
        return self.folder / "my results"  # with a space: the resume command must quote it

    def words(self, *more: str | Path) -> list[str | Path]:
        config: list[str | Path] = ["--config", self.config] if self.config else []
        return [sys.executable, RUNNER, "--task", self.task, "--output", self.output, *config,
                "--sandbox", "bubblewrap", *more]  # fmt: skip

    @contextmanager
    def start(self, *more: str | Path, env: dict[str, str] | None = None) -> Iterator[Running]:
        given = {"OLLAMA_HOST": NO_OLLAMA, **(env or {})}
        with started(self.words(*more), folder=self.folder / "io", env=given) as running:
            yield running

    def run(self, *more: str | Path, env: dict[str, str] | None = None, timeout_s: float = 120) -> Ended:  # fmt: skip
        given = {"OLLAMA_HOST": NO_OLLAMA, **(env or {})}
        return run(self.words(*more), folder=self.folder / "io", env=given, timeout_s=timeout_s)

    @property
    def batches(self) -> list[Path]:
        return sorted(self.output.glob("batch_*")) if self.output.is_dir() else []

    @property
    def batch(self) -> Path:
        (only,) = self.batches
        return only

    @property
    def report(self) -> dict[str, Any]:
        return json.loads((self.batch / "comparison_report.json").read_text())

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        return {result["model"]: result for result in self.report["results"]}

    @property
    def rows(self) -> list[dict[str, str]]:
        with (self.batch / "comparison_report.csv").open(newline="") as file:
            return list(csv.DictReader(file))


def sleepers() -> list[int]:
    """Return the processes of the hanging part that are still there."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(f"sleep\0{_NAP}\0".encode()):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]
