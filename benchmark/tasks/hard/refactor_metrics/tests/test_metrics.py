import json
import subprocess
import sys
import unittest
from pathlib import Path


def ask(script, given=None):
    """Run *script* with the solution in a process of its own; return the JSON that it prints.

    What is tested cannot reach the tests that way.
    """
    done = subprocess.run(
        [sys.executable, "-c", f"import json, sys\ngiven = json.load(sys.stdin)\n{script}"],
        input=json.dumps(given), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


SHOP = """
from shop.metrics import Metrics
from shop.orders import Orders
from shop.payments import Payments
from shop.stock import Stock

class Clock:
    now = 0.0
    def __call__(self):
        self.now += 1.0
        return self.now

def error_of(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__

metrics = Metrics(Clock())
told = {}
"""


def shop(script):
    """Run *script* in the shop, with a clock that goes on by a second whenever it is asked."""
    return ask(f"{SHOP}{script}\nprint(json.dumps(told))")


def seen(calls, failures, seconds):
    return {"calls": calls, "failures": failures, "seconds": seconds}


class Counting(unittest.TestCase):
    def test_calls_failures_and_time_are_counted(self):
        told = shop("""
with metrics.measure("a"):
    pass
def fails():
    with metrics.measure("a"):
        raise ZeroDivisionError
told["error"] = error_of(fails)
with metrics.measure("b"):
    pass
told["seen"] = metrics.snapshot()
""")
        self.assertEqual(told["error"], "ZeroDivisionError")
        self.assertEqual(told["seen"], {"a": seen(2, 1, 2.0), "b": seen(1, 0, 1.0)})

    def test_a_snapshot_is_a_copy(self):
        told = shop("""
with metrics.measure("a"):
    pass
metrics.snapshot()["a"]["calls"] = 99
metrics.snapshot().clear()
told["calls"] = metrics.snapshot()["a"]["calls"]
""")
        self.assertEqual(told, {"calls": 1})

    def test_without_a_clock_it_takes_real_time(self):
        told = shop("""
import time
real = Metrics()
with real.measure("a"):
    time.sleep(0.05)
told["seconds"] = real.snapshot()["a"]["seconds"]
""")
        self.assertGreaterEqual(told["seconds"], 0.04)


class Services(unittest.TestCase):
    def test_they_count_into_the_metrics_that_they_are_given(self):
        told = shop("""
orders = Orders(metrics=metrics)
payments = Payments({"ada": 100}, metrics=metrics)
stock = Stock({"tea": 1}, metrics=metrics)
told["did"] = [orders.place("tea", 2), payments.charge("ada", 30), stock.take("tea")]
told["seen"] = metrics.snapshot()
""")
        self.assertEqual(told["did"], [1, 70, 0])
        names = ("orders.place", "payments.charge", "stock.take")
        self.assertEqual(told["seen"], dict.fromkeys(names, seen(1, 0, 1.0)))

    def test_a_failure_is_one_call_one_failure_and_its_time(self):
        failures = {
            "Orders(metrics=metrics).place('tea', 0)": ("ValueError", "orders.place"),
            "Payments({'a': 1}, metrics=metrics).charge('a', 2)": ("ValueError", "payments.charge"),
            "Payments({}, metrics=metrics).charge('b', 2)": ("KeyError", "payments.charge"),
            "Stock({}, metrics=metrics).take('tea')": ("LookupError", "stock.take"),
        }
        for call, (error, name) in failures.items():
            told = shop(
                f"told['error'] = error_of(lambda: {call})\ntold['seen'] = metrics.snapshot()"
            )
            self.assertEqual(told, {"error": error, "seen": {name: seen(1, 1, 1.0)}}, call)

    def test_without_metrics_each_makes_its_own(self):
        told = shop("""
first, second = Orders(), Orders()
first.place("tea", 1)
told["first"] = first.metrics.snapshot()["orders.place"]["calls"]
told["second"] = second.metrics.snapshot().get("orders.place", {}).get("calls", 0)
""")
        self.assertEqual(told, {"first": 1, "second": 0})

    def test_the_old_counters_are_gone(self):
        told = shop("""
for service in (Orders(), Payments({}), Stock({})):
    left = [n for n in ("calls", "failures", "total_seconds") if hasattr(service, n)]
    told[type(service).__name__] = left
""")
        self.assertEqual(told, {"Orders": [], "Payments": [], "Stock": []})

    def test_only_the_metrics_look_at_the_clock(self):
        for name in ("orders", "payments", "stock"):
            text = Path("shop", f"{name}.py").read_text(encoding="utf-8")
            self.assertNotIn("import time", text, name)
            self.assertNotIn("monotonic", text, name)

    def test_they_behave_as_before(self):
        told = shop("""
payments, stock = Payments({"ada": 10}), Stock({"tea": 3})
told["payments"] = [error_of(lambda: payments.charge("ada", 11)), payments.charge("ada", 10)]
told["stock"] = [stock.take("tea", 2), error_of(lambda: stock.take("tea", 2)), stock.take("tea")]
""")
        self.assertEqual(told, {"payments": ["ValueError", 0], "stock": [1, "LookupError", 0]})
