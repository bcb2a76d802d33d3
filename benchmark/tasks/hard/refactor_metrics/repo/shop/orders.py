"""Orders."""

import time


class Orders:
    """Takes orders."""

    def __init__(self):
        self.calls = 0
        self.failures = 0
        self.total_seconds = 0.0
        self._orders = []

    def place(self, item, amount):
        """Place an order and return its number."""
        started = time.monotonic()
        self.calls += 1
        try:
            if amount < 1:
                raise ValueError("order at least one")
            self._orders.append((item, amount))
            return len(self._orders)
        except ValueError:
            self.failures += 1
            raise
        finally:
            self.total_seconds += time.monotonic() - started
