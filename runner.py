"""Run a benchmark of conversations with agents: `python3 runner.py --help`."""

import sys
from importlib.util import find_spec

if __name__ == "__main__":
    if find_spec("bakeoff") is None:
        sys.exit(
            f"runner: error: Bakeoff is not installed for {sys.executable}; in a clone, `make setup` "
            "installs it for .venv/bin/python, elsewhere `pip install .` does"
        )
    from bakeoff._lib.process_setup import run_as_process

    def main() -> int:
        """Run the script."""
        from bakeoff.frontends.agent_bench.command import main

        return main()

    run_as_process(main)
