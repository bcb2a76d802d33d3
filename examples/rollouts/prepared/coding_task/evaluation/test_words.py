"""Words, accents, separators."""

import unittest

from textkit.slug import slugify


class TestWords(unittest.TestCase):
    def test_words_are_joined_by_single_hyphens(self):
        self.assertEqual(slugify("Hello,   World -- again"), "hello-world-again")

    def test_accents_are_dropped(self):
        self.assertEqual(slugify("Café Zürich"), "cafe-zurich")

    def test_digits_stay(self):
        self.assertEqual(slugify("Top 10 of 2024"), "top-10-of-2024")


if __name__ == "__main__":
    unittest.main()
