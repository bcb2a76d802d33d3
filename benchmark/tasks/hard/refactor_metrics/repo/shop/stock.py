"""Stock."""

import time


class Stock:
    """Knows what is there."""

    def __init__(self, items):
        self.calls = 0
        self.failures = 0
        self.total_seconds = 0.0
        self._items = dict(items)

    def take(self, item, amount=1):
        """Take something out and return how much of it is left."""
        self.calls += 1
        started = time.monotonic()
        try:
            left = self._items.get(item, 0) - amount
            if left < 0:
                self.calls += 1
                self.failures += 1
                raise LookupError(f"not enough {item}")
            self._items[item] = left
            return left
        finally:
            self.total_seconds += time.monotonic() - started
