"""Run a benchmark of conversations with agents: `python3 runner.py --help`."""

import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("bakeoff") is None:  # a clone that was not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent / "src"))

from bakeoff.compat.agent_runner import main

if __name__ == "__main__":
    sys.exit(main())
