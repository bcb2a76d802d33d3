"""Run, summarize and grade rollouts of prepared tasks: `python scripts/eval_rollouts.py --help`."""

import sys
from importlib.util import find_spec

if __name__ == "__main__":
    if find_spec("bakeoff") is None:
        sys.exit(
            f"eval_rollouts: error: Bakeoff is not installed for {sys.executable}; in a clone, "
            "`make setup` installs it for .venv/bin/python, elsewhere `pip install .` does"
        )
    from bakeoff._lib.collector import for_one_command

    for_one_command()
    from bakeoff.compat.rollouts import main

    sys.exit(main())
