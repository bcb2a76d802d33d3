"""As fast as going over the list a few times, on any machine; the figures are custom metrics."""

import json
import subprocess
import sys
import unittest

# Times the solution in a process of its own, beside going over the list once.
TIME = """
import json, sys, time
from pairs import count_pairs

def seconds(work):
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best

def once_over(numbers):
    seen = {}
    for number in numbers:
        seen[number] = seen.get(number, 0) + 1
    return seen

length = int(sys.argv[1])
numbers = list(range(length))
took, once = seconds(lambda: count_pairs(numbers, length)), seconds(lambda: once_over(numbers))
print(json.dumps([count_pairs(numbers, length), took, took / once]))
"""
LENGTH = 2_000


class TestFast(unittest.TestCase):
    def test_it_takes_no_longer_than_going_over_the_list_a_few_times(self):
        done = subprocess.run(
            [sys.executable, "-c", TIME, str(LENGTH)],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        count, took, passes = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(count, LENGTH // 2 - 1)  # to be wrong is no way to be fast
        print(json.dumps({"custom_metrics": {"passes": round(passes, 1), "seconds": took}}))
        self.assertLess(passes, 60)  # with the square of the list it is many hundreds


if __name__ == "__main__":
    unittest.main()
