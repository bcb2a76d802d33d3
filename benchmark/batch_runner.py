"""Run one task with many models and compare them; see docs/guides/batch.md."""

import sys
from pathlib import Path

from bakeoff.cli.batch_command import call

if __name__ == "__main__":
    sys.exit(call(sys.argv[1:], home=Path(__file__).parent))
