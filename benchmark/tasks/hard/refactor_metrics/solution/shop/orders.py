"""Orders."""

from shop.metrics import Metrics


class Orders:
    """Takes orders."""

    def __init__(self, metrics=None):
        self.metrics = Metrics() if metrics is None else metrics
        self._orders = []

    def place(self, item, amount):
        """Place an order and return its number."""
        with self.metrics.measure("orders.place"):
            if amount < 1:
                raise ValueError("order at least one")
            self._orders.append((item, amount))
            return len(self._orders)
