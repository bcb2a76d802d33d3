"""Run one task with many models and compare them; see docs/guides/batch.md."""

import sys
from importlib.util import find_spec
from pathlib import Path

if __name__ == "__main__":
    if find_spec("bakeoff") is None:
        sys.exit(
            f"batch_runner: error: Bakeoff is not installed for {sys.executable}; in a clone, "
            "`make setup` installs it for .venv/bin/python, elsewhere `pip install .` does"
        )
    from bakeoff._lib.process_setup import run_as_process

    def main() -> int:
        """Run the script."""
        from bakeoff.cli.batch_command import call

        return call(sys.argv[1:], home=Path(__file__).parent)

    run_as_process(main)
