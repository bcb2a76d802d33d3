"""What customers want."""

from decimal import Decimal

from shop.prices import discounted, with_vat


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
