"""What is on the shelf."""


class OutOfStockError(Exception):
    """More was wanted than there is."""


class Stock:
    """How many there are of what."""

    def __init__(self, counts=None):
        self._counts = dict(counts or {})

    def count(self, name):
        """Return how many there are."""
        return self._counts.get(name, 0)

    def add(self, name, count=1):
        """Put more on the shelf."""
        self._counts[name] = self.count(name) + count

    def take(self, name, count=1):
        """Take from the shelf; OutOfStockError where there are too few."""
        if self.count(name) < count:
            raise OutOfStockError(f"{count} {name} wanted, {self.count(name)} there")
        self._counts[name] -= count
