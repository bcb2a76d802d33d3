import json
import random
import subprocess
import sys
import time
import unittest
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def answer(code):
    """What is printed last, in a process of its own: what is graded cannot touch the grader."""
    done = subprocess.run(
        [sys.executable, "-c", f"import json\nfrom intervals import gaps, merge\n{code}"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return json.loads(done.stdout)


def merged(intervals):
    return [tuple(pair) for pair in answer(f"print(json.dumps(merge({intervals!r})))")]


def gaps(intervals, start, end):
    said = answer(f"print(json.dumps(gaps({intervals!r}, {start!r}, {end!r})))")
    return [tuple(pair) for pair in said]


def raised(call):
    return answer(f"""
try:
    {call}
    print(json.dumps("nothing"))
except Exception as error:
    print(json.dumps(type(error).__name__))
""")


class Merge(unittest.TestCase):
    def test_those_that_overlap_become_one(self):
        self.assertEqual(merged([(1, 4), (2, 6), (8, 10), (9, 9.5)]), [(1, 6), (8, 10)])

    def test_those_that_touch_become_one(self):
        self.assertEqual(merged([(3, 5), (1, 3), (5, 5), (5, 7)]), [(1, 7)])

    def test_those_apart_stay_apart_and_are_sorted(self):
        self.assertEqual(merged([(5, 6), (-2, -1), (1, 2)]), [(-2, -1), (1, 2), (5, 6)])

    def test_empty_ones_vanish(self):
        self.assertEqual(merged([(2, 2), (4, 4)]), [])
        self.assertEqual(merged([]), [])

    def test_a_mistake_is_a_value_error(self):
        self.assertEqual(raised("merge([(1, 2), (4, 3)])"), "ValueError")

    def test_the_argument_is_not_changed_and_may_be_any_iterable(self):
        said = answer("""
given = [(3, 4), (1, 2)]
one = merge(given)
two = merge(pair for pair in given)
print(json.dumps([given, one, two]))
""")
        pairs = [[1, 2], [3, 4]]
        self.assertEqual(said, [[[3, 4], [1, 2]], pairs, pairs])

    def test_the_points_are_the_same_for_many_intervals(self):
        chance = random.Random(4)
        for _ in range(5):
            starts = [chance.randrange(60) for _ in range(12)]
            given = [(start, start + chance.randrange(6)) for start in starts]
            points = {x for start, end in given for x in range(start, end)}
            said = merged(given)
            self.assertEqual({x for start, end in said for x in range(start, end)}, points)
            self.assertEqual(said, sorted(said))
            self.assertTrue(all(a[1] < b[0] for a, b in pairwise(said)))

    def test_many_take_little_time(self):
        began = time.monotonic()
        said = answer("""
many = [((7919 * n) % 1_000_003, (7919 * n) % 1_000_003 + 3) for n in range(100_000)]
print(json.dumps(sum(end - start for start, end in merge(many))))
""")
        self.assertEqual(
            said, len({(7919 * n) % 1_000_003 + k for n in range(100_000) for k in range(3)})
        )
        self.assertLess(time.monotonic() - began, 20)


class Gaps(unittest.TestCase):
    def test_what_is_not_covered_is_free(self):
        self.assertEqual(gaps([(3, 5), (8, 20)], 0, 10), [(0, 3), (5, 8)])

    def test_all_is_free_where_nothing_is_taken(self):
        self.assertEqual(gaps([], 1, 4), [(1, 4)])
        self.assertEqual(gaps([(-5, 0), (9, 12)], 1, 4), [(1, 4)])

    def test_nothing_is_free_where_all_is_taken(self):
        self.assertEqual(gaps([(0, 3), (2, 9)], 1, 4), [])
        self.assertEqual(gaps([], 2, 2), [])

    def test_a_mistake_is_a_value_error(self):
        self.assertEqual(raised("gaps([], 4, 1)"), "ValueError")
        self.assertEqual(raised("gaps([(3, 2)], 0, 9)"), "ValueError")


if __name__ == "__main__":
    unittest.main()
