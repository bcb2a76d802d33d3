"""Empty titles, long ones, hyphens at the ends."""

import json
import subprocess
import sys
import unittest

SLUGIFY = """
import json, sys
from textkit.slug import slugify
titles, settings = json.load(sys.stdin)
print(json.dumps([slugify(title, **settings) for title in titles]))
"""


def slugs(*titles, **settings):
    """What the titles become, in a process of its own: what is tested cannot reach the tests."""
    done = subprocess.run(
        [sys.executable, "-c", SLUGIFY], input=json.dumps([titles, settings]),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


class TestEdges(unittest.TestCase):
    def test_nothing_is_untitled(self):
        self.assertEqual(slugs("", "   ", "!?", "日本"), ["untitled"] * 4)

    def test_no_hyphen_at_the_ends(self):
        self.assertEqual(slugs("-- a b --"), ["a-b"])

    def test_it_is_cut_between_words(self):
        self.assertEqual(slugs("one two three", longest=8), ["one-two"])

    def test_a_single_long_word_is_cut_anyway(self):
        self.assertEqual(slugs("a" * 80, longest=10), ["a" * 10])

    def test_a_slug_that_just_fits_is_whole(self):
        self.assertEqual(slugs("one two", longest=7), ["one-two"])


if __name__ == "__main__":
    unittest.main()
