"""Stock."""

from shop.metrics import Metrics


class Stock:
    """Knows what is there."""

    def __init__(self, items, metrics=None):
        self.metrics = Metrics() if metrics is None else metrics
        self._items = dict(items)

    def take(self, item, amount=1):
        """Take something out and return how much of it is left."""
        with self.metrics.measure("stock.take"):
            left = self._items.get(item, 0) - amount
            if left < 0:
                raise LookupError(f"not enough {item}")
            self._items[item] = left
            return left
