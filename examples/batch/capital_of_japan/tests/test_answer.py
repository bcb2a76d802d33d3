import unittest
from pathlib import Path


class Answer(unittest.TestCase):
    def test_it_is_tokyo(self) -> None:
        self.assertIn("tokyo", Path("answer.txt").read_text(encoding="utf-8").lower())
