"""The same answers as before, also for lists that would have taken the old code very long."""

import json
import random
import subprocess
import sys
import unittest

# Answers each case in a process of its own, and counts what is done with the numbers of the list.
ANSWER = """
import json, sys
from pairs import count_pairs

class Number(int):
    steps = 0

def counted(name):
    plain = getattr(int, name)
    def method(self, *others):
        Number.steps += 1
        return plain(self, *others)
    return method

for name in ("__add__", "__radd__", "__sub__", "__rsub__", "__eq__", "__lt__", "__gt__", "__hash__"):
    setattr(Number, name, counted(name))

answers = []
for numbers, total in json.load(sys.stdin):
    given = [Number(number) for number in numbers]
    Number.steps = 0
    count = count_pairs(given, total)
    answers.append([int(count), Number.steps, [int(number) for number in given] == numbers])
print(json.dumps(answers))
"""


def answers(cases):
    done = subprocess.run(
        [sys.executable, "-c", ANSWER], input=json.dumps(cases),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def slowly(numbers, total):
    return sum(
        numbers[i] + numbers[j] == total
        for i in range(len(numbers))
        for j in range(i + 1, len(numbers))
    )


class TestRight(unittest.TestCase):
    def test_small_lists(self):
        cases = [([], 0), ([5], 10), ([5, 5, 5], 10), ([1, -1, 0, 0], 0)]
        self.assertEqual([count for count, _, _ in answers(cases)], [0, 0, 3, 2])

    def test_random_lists(self):
        rolled = random.Random(4)
        cases = [
            ([rolled.randint(-5, 5) for _ in range(rolled.randint(0, 30))], rolled.randint(-10, 10))
            for _ in range(200)
        ]
        expected = [slowly(numbers, total) for numbers, total in cases]
        self.assertEqual([count for count, _, _ in answers(cases)], expected)

    def test_long_lists(self):
        length = 1_000
        ((count, steps, _),) = answers([(list(range(length)), length)])
        self.assertEqual(count, length // 2 - 1)
        self.assertLess(steps, 60 * length)  # with the square of the list it is a million

    def test_the_list_stays_as_it_was(self):
        ((_, _, same),) = answers([([3, 1, 2], 4)])
        self.assertTrue(same)


if __name__ == "__main__":
    unittest.main()
