"""Python's cycle collector, held back while many short-lived objects come and go."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG = 10_000  # Python's 700 is passed several times a tick with 64 trials under way


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
