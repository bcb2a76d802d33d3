"""It says what it said before, to the letter."""

import unittest

from report import csv_report, text_report

ORDERS = [
    {"name": "Ada", "items": [{"price": 2.5, "count": 4}], "member": True},
    {
        "name": "Grace Brewster Hopper",
        "items": [{"price": 1.0, "count": 10}, {"price": 3, "count": 1}],
    },
    {"name": 'Smith, "Jo"', "items": []},
]
TEXT = """\
Ada                9.50
Grace Brews.      12.00
Smith, "Jo"        0.00
total             21.50"""
CSV = """\
name,amount
Ada,9.50
Grace Brewster Hopper,12.00
"Smith, ""Jo\""",0.00
total,21.50"""


class TestSame(unittest.TestCase):
    def test_text(self):
        self.assertEqual(text_report(ORDERS), TEXT)
        self.assertEqual(text_report([]), "total              0.00")

    def test_csv(self):
        self.assertEqual(csv_report(ORDERS), CSV)
        self.assertEqual(csv_report([]), "name,amount\ntotal,0.00")


if __name__ == "__main__":
    unittest.main()
