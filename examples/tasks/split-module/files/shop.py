"""A small shop: prices, stock and orders."""

from decimal import ROUND_HALF_UP, Decimal

VAT_PERCENT = {"book": 7, "tool": 19}


class OutOfStockError(Exception):
    """More was wanted than there is."""


def rounded(amount):
    """Return *amount* in whole cents, halves away from zero."""
    return Decimal(amount).quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)


def with_vat(net, kind):
    """Return what a customer pays for something of this *kind*."""
    return rounded(Decimal(net) * (100 + VAT_PERCENT[kind]) / 100)


def discounted(amount, count):
    """Return *amount* less 5 % from ten pieces on, less 10 % from a hundred on."""
    percent = 10 if count >= 100 else 5 if count >= 10 else 0
    return rounded(Decimal(amount) * (100 - percent) / 100)


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


class Order:
    """What one customer wants."""

    def __init__(self, stock):
        self._stock = stock
        self._lines = []

    def want(self, name, *, net, kind, count=1):
        """Add a line, and take it from the shelf."""
        self._stock.take(name, count)
        self._lines.append((name, net, kind, count))

    def total(self):
        """Return what is to be paid."""
        return sum(
            (discounted(with_vat(net, kind) * count, count) for _, net, kind, count in self._lines),
            Decimal(0),
        )

    def cancel(self):
        """Put everything back."""
        for name, _, _, count in self._lines:
            self._stock.add(name, count)
        self._lines.clear()
