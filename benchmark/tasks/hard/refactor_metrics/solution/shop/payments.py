"""Payments."""

from shop.metrics import Metrics


class Payments:
    """Charges accounts."""

    def __init__(self, balances, metrics=None):
        self.metrics = Metrics() if metrics is None else metrics
        self._balances = dict(balances)

    def charge(self, account, cents):
        """Charge an account and return what is left on it."""
        with self.metrics.measure("payments.charge"):
            if account not in self._balances:
                raise KeyError(account)
            if self._balances[account] < cents:
                raise ValueError("not enough money")
            self._balances[account] -= cents
            return self._balances[account]
