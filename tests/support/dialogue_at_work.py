"""A run of dialogues that kills itself after the N-th thing that was said: to be resumed.

python dialogue_at_work.py CONFIG FOLDER N [--resume]
"""

import os
import signal
import sys
from typing import Any

import bakeoff
from bakeoff.core.events import Event, TrialOutput


def main(config: str, folder: str, last: int, *, resume: bool) -> None:
    """Run; *last* is after how many lines it ends, 0 for never."""
    said = 0

    def listen(event: Event) -> None:
        nonlocal said
        if not isinstance(event, TrialOutput):
            return
        said += 1
        if said == last:
            os.kill(os.getpid(), signal.SIGKILL)

    where: dict[str, Any] = {"resume": folder} if resume else {"folder": folder}
    bakeoff.run(config, listener=listen, **where)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), resume="--resume" in sys.argv)
