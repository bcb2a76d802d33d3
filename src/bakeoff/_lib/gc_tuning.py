"""Tune Python's garbage collector to run less often where it has little to find."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG = 10_000  # Python's 700 is passed several times a tick with 64 trials under way


def tune_for_one_command() -> None:
    """Set the collector for a process that does one thing and ends; a fifth of a short command.

    Imports make many objects and no garbage, and at the end of the process all of them would be
    looked at once more.
    """
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)  # the first to be registered is the last to be called


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect cycles fifteen times less often within the block, and skip what is there already."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], _YOUNG) if before[0] else 0, *before[1:])
    ours = gc.get_freeze_count() == 0  # somebody else's frozen objects are not ours to thaw
    if ours:
        gc.freeze()
    try:
        yield
    finally:
        if ours:
            gc.unfreeze()
        gc.set_threshold(*before)
