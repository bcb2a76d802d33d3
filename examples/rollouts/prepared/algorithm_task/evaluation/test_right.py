"""The same answers as before."""

import random
import unittest

from pairs import count_pairs


def slowly(numbers, total):
    return sum(
        numbers[i] + numbers[j] == total
        for i in range(len(numbers))
        for j in range(i + 1, len(numbers))
    )


class TestRight(unittest.TestCase):
    def test_small_lists(self):
        self.assertEqual(count_pairs([], 0), 0)
        self.assertEqual(count_pairs([5], 10), 0)
        self.assertEqual(count_pairs([5, 5, 5], 10), 3)
        self.assertEqual(count_pairs([1, -1, 0, 0], 0), 2)

    def test_random_lists(self):
        rolled = random.Random(4)
        for _ in range(200):
            numbers = [rolled.randint(-5, 5) for _ in range(rolled.randint(0, 30))]
            total = rolled.randint(-10, 10)
            self.assertEqual(count_pairs(numbers, total), slowly(numbers, total))

    def test_the_list_stays_as_it_was(self):
        numbers = [3, 1, 2]
        count_pairs(numbers, 4)
        self.assertEqual(numbers, [3, 1, 2])


if __name__ == "__main__":
    unittest.main()
