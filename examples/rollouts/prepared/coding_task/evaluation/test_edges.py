"""Empty titles, long ones, hyphens at the ends."""

import unittest

from textkit.slug import slugify


class TestEdges(unittest.TestCase):
    def test_nothing_is_untitled(self):
        for title in ("", "   ", "!?", "日本"):
            self.assertEqual(slugify(title), "untitled")

    def test_no_hyphen_at_the_ends(self):
        self.assertEqual(slugify("-- a b --"), "a-b")

    def test_it_is_cut_between_words(self):
        self.assertEqual(slugify("one two three", longest=8), "one-two")

    def test_a_single_long_word_is_cut_anyway(self):
        self.assertEqual(slugify("a" * 80, longest=10), "a" * 10)

    def test_a_slug_that_just_fits_is_whole(self):
        self.assertEqual(slugify("one two", longest=7), "one-two")


if __name__ == "__main__":
    unittest.main()
