"""The suite every benchmark runs, and a listener that keeps the books of a run."""

import json
from pathlib import Path
from typing import Any

from perf.measure import cpu_s, rss_mb

MODEL = "fast-1"


def prompt(number: int) -> str:
    """Return a question of the length people ask."""
    return f"Question {number}: what is the capital of France? Answer in one short sentence."


def write_suite(folder: Path, tests: int) -> Path:
    """Write a JSON suite of *tests* tests, each checked by the scorer `includes`."""
    path = folder / "suite.json"
    entries = [
        {
            "id": f"capital-{number:06}",
            "name": f"Capital {number}",
            "category": f"group-{number % 10}",
            "prompt": prompt(number),
            "expected": "Paris" if number % 4 else "Lyon",
        }
        for number in range(tests)
    ]
    path.write_text(json.dumps({"suite_info": {"name": "bench"}, "tests": entries}))
    return path


class Books:
    """Writes down CPU and memory when a run starts, and every so many trials."""

    def __init__(self, every: int) -> None:
        self._every = every
        self.ended = self.passed = 0
        self.cpu: dict[int, float] = {}
        self.rss: dict[int, float] = {}

    def __call__(self, event: Any) -> None:
        # by name, not by type: this also listens to versions that keep their events elsewhere
        kind = type(event).__name__
        if kind == "TrialEnded":
            self.ended += 1
            self.passed += bool(event.attempt.passed)
            if self.ended % self._every == 0:
                self._note()
        elif kind == "RunStarted":
            self._note()

    def _note(self) -> None:
        self.cpu[self.ended] = cpu_s()
        self.rss[self.ended] = rss_mb()
