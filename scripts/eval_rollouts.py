"""Run, summarize and grade rollouts of prepared tasks: `python scripts/eval_rollouts.py --help`."""

import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("bakeoff") is None:  # a clone that was not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from bakeoff.compat.rollouts import main

if __name__ == "__main__":
    sys.exit(main())
