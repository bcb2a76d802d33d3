"""Python's cycle collector in the process of one command."""

import subprocess
import sys

_COMMAND = """
import atexit, gc, weakref
from bakeoff._lib.process_setup import tune_for_one_command

class Cycle:
    def __init__(self):
        self.me = self

atexit.register(lambda: print("frozen at the end:", gc.get_freeze_count() > 1000))
tune_for_one_command()
atexit.register(lambda: print("frozen for those who clean up:", gc.get_freeze_count() > 0))
gone = []
weakref.finalize(Cycle(), gone.append, "one").atexit = False
garbage = [Cycle() for _ in range(200_000)]
del garbage
print("collected:", gone)
"""


def test_a_command_collects_seldom_and_is_frozen_when_all_has_been_cleaned_up() -> None:
    words = [sys.executable, "-c", _COMMAND]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == [
        "collected: ['one']",
        "frozen for those who clean up: False",
        "frozen at the end: True",
    ]
