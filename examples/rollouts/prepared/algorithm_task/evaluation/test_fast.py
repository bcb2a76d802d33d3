"""As fast as going over the list a few times, on any machine; the figures are custom metrics."""

import json
import time
import unittest

from pairs import count_pairs

LENGTH = 2_000


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


class TestFast(unittest.TestCase):
    def test_it_takes_no_longer_than_going_over_the_list_a_few_times(self):
        numbers = list(range(LENGTH))
        took = seconds(lambda: count_pairs(numbers, LENGTH))
        passes = took / seconds(lambda: once_over(numbers))
        print(json.dumps({"custom_metrics": {"passes": round(passes, 1), "seconds": took}}))
        self.assertLess(passes, 60)  # with the square of the list it is many hundreds


if __name__ == "__main__":
    unittest.main()
