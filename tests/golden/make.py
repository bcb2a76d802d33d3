"""Make the run folder that later versions must still read: `python tests/golden/make.py`.

Run it once for each ledger format, never again for an old one: the point of the folder is its age.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import bakeoff
from bakeoff.stores.schema import VERSION

HERE = Path(__file__).parent
FOLDER = HERE / f"ledger_{VERSION}"

RUN_FILE = """
name = "golden"
suites = ["suite.json"]
rollouts = 2
[[models]]
model = "scripted/steady"
settings = { rules = [{ match = "capital", reply = "Paris, of course." }] }
[[models]]
model = "scripted/shaky"
name = "shaky"
parameters = { temperature = 0.5 }
settings = { fault_every = 2 }
[limits]
time_s = 60
requests = 5
"""
TESTS = [
    {
        "id": "capital",
        "name": "The capital",
        "category": "facts",
        "prompt": "What is the capital of France?",
        "expected": "Paris",
    },
    {"id": "sum/2+2", "category": "sums", "prompt": "2 + 2 = 4, is it not?", "expected": 4},
    {
        "id": "talk",
        "category": "style",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Grüß Gott 😀"},
        ],
        "parameters": {"max_tokens": 9},
        "scorers": [
            {"scorer": "includes", "weight": 2, "settings": {"all": True}},
            {"scorer": "pattern", "settings": {"pattern": "^Gr"}},
        ],
        "expected": ["Grüß", "Servus"],
        "pass_threshold": 0.5,
        "metadata": {"timeout_seconds": 5, "domain": "greetings"},
    },
    {"id": "unchecked", "prompt": "Say something."},
]


def main() -> None:
    """Run, and keep the folder."""
    if FOLDER.exists():
        sys.exit(f"{FOLDER} is there already; a golden folder is made once")
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "suite.json").write_text(json.dumps({"tests": TESTS}), encoding="utf-8")
        (home / "run.toml").write_text(RUN_FILE, encoding="utf-8")
        run = bakeoff.run(home / "run.toml", output=home / "runs")
        shutil.copytree(
            run.folder, FOLDER, ignore=shutil.ignore_patterns("*.lock", "*-wal", "*-shm")
        )
        manifest = FOLDER / "manifest.json"
        text = manifest.read_text(encoding="utf-8")
        manifest.write_text(text.replace(str(home.resolve()), "/somewhere"), encoding="utf-8")
    print(*sorted(f"{p.stat().st_size:>7} {p.name}" for p in FOLDER.iterdir()), sep="\n")


if __name__ == "__main__":
    main()
