import unittest
from pathlib import Path


class Hello(unittest.TestCase):
    def test_the_file_says_hello_and_nothing_else(self):
        self.assertEqual(Path("hello.txt").read_text(encoding="utf-8").strip(), "Hello, Bakeoff!")

    def test_what_was_there_is_still_there(self):
        self.assertEqual(Path("README.md").read_text(encoding="utf-8"), "An empty project.\n")
