"""How often things are done, how often they fail, and how long they take."""

import time
from contextlib import contextmanager


class Metrics:
    """Counts and times by name."""

    def __init__(self, clock=time.monotonic):
        self._clock = clock
        self._seen = {}

    @contextmanager
    def measure(self, name):
        """Count and time one call of *name*."""
        seen = self._seen.setdefault(name, {"calls": 0, "failures": 0, "seconds": 0.0})
        seen["calls"] += 1
        started = self._clock()
        try:
            yield
        except BaseException:
            seen["failures"] += 1
            raise
        finally:
            seen["seconds"] += self._clock() - started

    def snapshot(self):
        """Return what was seen so far."""
        return {name: dict(seen) for name, seen in self._seen.items()}
