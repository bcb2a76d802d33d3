"""Words, accents, separators."""

import json
import subprocess
import sys
import unittest

SLUGIFY = """
import json, sys
from textkit.slug import slugify
print(json.dumps([slugify(title) for title in json.load(sys.stdin)]))
"""


def slugs(*titles):
    """What the titles become, in a process of its own: what is tested cannot reach the tests."""
    done = subprocess.run(
        [sys.executable, "-c", SLUGIFY], input=json.dumps(titles),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


class TestWords(unittest.TestCase):
    def test_words_are_joined_by_single_hyphens(self):
        self.assertEqual(slugs("Hello,   World -- again"), ["hello-world-again"])

    def test_accents_are_dropped(self):
        self.assertEqual(slugs("Café Zürich"), ["cafe-zurich"])

    def test_digits_stay(self):
        self.assertEqual(slugs("Top 10 of 2024"), ["top-10-of-2024"])


if __name__ == "__main__":
    unittest.main()
