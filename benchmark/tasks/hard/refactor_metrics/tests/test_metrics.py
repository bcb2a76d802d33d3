import unittest
from pathlib import Path

from shop.metrics import Metrics
from shop.orders import Orders
from shop.payments import Payments
from shop.stock import Stock


class Clock:
    """A clock that goes on by a second whenever it is asked."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


class Counting(unittest.TestCase):
    def test_calls_failures_and_time_are_counted(self):
        metrics = Metrics(Clock())
        with metrics.measure("a"):
            pass
        with self.assertRaises(ZeroDivisionError), metrics.measure("a"):
            raise ZeroDivisionError
        with metrics.measure("b"):
            pass
        self.assertEqual(
            metrics.snapshot(),
            {
                "a": {"calls": 2, "failures": 1, "seconds": 2.0},
                "b": {"calls": 1, "failures": 0, "seconds": 1.0},
            },
        )

    def test_a_snapshot_is_a_copy(self):
        metrics = Metrics(Clock())
        with metrics.measure("a"):
            pass
        metrics.snapshot()["a"]["calls"] = 99
        metrics.snapshot().clear()
        self.assertEqual(metrics.snapshot()["a"]["calls"], 1)

    def test_without_a_clock_it_takes_real_time(self):
        metrics = Metrics()
        with metrics.measure("a"):
            pass
        self.assertGreaterEqual(metrics.snapshot()["a"]["seconds"], 0.0)


class Services(unittest.TestCase):
    def test_they_count_into_the_metrics_that_they_are_given(self):
        metrics = Metrics(Clock())
        orders = Orders(metrics=metrics)
        payments = Payments({"ada": 100}, metrics=metrics)
        stock = Stock({"tea": 1}, metrics=metrics)
        self.assertEqual(orders.place("tea", 2), 1)
        self.assertEqual(payments.charge("ada", 30), 70)
        self.assertEqual(stock.take("tea"), 0)
        seen = metrics.snapshot()
        self.assertEqual(set(seen), {"orders.place", "payments.charge", "stock.take"})
        for one in seen.values():
            self.assertEqual(one, {"calls": 1, "failures": 0, "seconds": 1.0})

    def test_a_failure_is_one_call_one_failure_and_its_time(self):
        for make, fails, error, name in (
            (lambda m: Orders(metrics=m), lambda s: s.place("tea", 0), ValueError, "orders.place"),
            (lambda m: Payments({"a": 1}, metrics=m), lambda s: s.charge("a", 2), ValueError, "payments.charge"),
            (lambda m: Payments({}, metrics=m), lambda s: s.charge("b", 2), KeyError, "payments.charge"),
            (lambda m: Stock({}, metrics=m), lambda s: s.take("tea"), LookupError, "stock.take"),
        ):
            metrics = Metrics(Clock())
            with self.assertRaises(error):
                fails(make(metrics))
            self.assertEqual(metrics.snapshot(), {name: {"calls": 1, "failures": 1, "seconds": 1.0}})

    def test_without_metrics_each_makes_its_own(self):
        first, second = Orders(), Orders()
        first.place("tea", 1)
        self.assertEqual(first.metrics.snapshot()["orders.place"]["calls"], 1)
        self.assertEqual(second.metrics.snapshot().get("orders.place", {}).get("calls", 0), 0)

    def test_the_old_counters_are_gone(self):
        for service in (Orders(), Payments({}), Stock({})):
            for name in ("calls", "failures", "total_seconds"):
                self.assertFalse(hasattr(service, name), f"{type(service).__name__}.{name}")

    def test_only_the_metrics_look_at_the_clock(self):
        for name in ("orders", "payments", "stock"):
            text = Path("shop", f"{name}.py").read_text(encoding="utf-8")
            self.assertNotIn("import time", text, name)
            self.assertNotIn("monotonic", text, name)

    def test_they_behave_as_before(self):
        payments = Payments({"ada": 10})
        with self.assertRaises(ValueError):
            payments.charge("ada", 11)
        self.assertEqual(payments.charge("ada", 10), 0)
        stock = Stock({"tea": 3})
        self.assertEqual(stock.take("tea", 2), 1)
        with self.assertRaises(LookupError):
            stock.take("tea", 2)
        self.assertEqual(stock.take("tea"), 0)
