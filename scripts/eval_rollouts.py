"""Run, summarize and grade rollouts of prepared tasks: `python scripts/eval_rollouts.py --help`."""

import sys
from importlib.util import find_spec

if __name__ == "__main__":
    if find_spec("bakeoff") is None:
        sys.exit(
            f"eval_rollouts: error: Bakeoff is not installed for {sys.executable}; in a clone, "
            "`make setup` installs it for .venv/bin/python, elsewhere `pip install .` does"
        )
    from bakeoff._lib.process_setup import run_as_process

    def main() -> int:
        """Run the script."""
        from bakeoff.frontends.rollouts.command import main

        return main()

    run_as_process(main)
