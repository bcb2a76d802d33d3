"""Payments."""

import time


class Payments:
    """Charges accounts."""

    def __init__(self, balances):
        self.calls = 0
        self.failures = 0
        self.total_seconds = 0.0
        self._balances = dict(balances)

    def charge(self, account, cents):
        """Charge an account and return what is left on it."""
        started = time.monotonic()
        self.calls += 1
        if account not in self._balances:
            self.failures += 1
            raise KeyError(account)
        if self._balances[account] < cents:
            self.failures += 1
            raise ValueError("not enough money")
        self._balances[account] -= cents
        self.total_seconds += time.monotonic() - started
        return self._balances[account]
