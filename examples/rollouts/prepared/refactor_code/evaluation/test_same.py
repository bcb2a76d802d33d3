"""It says what it said before, to the letter; where a rule changes, both reports follow it."""

import json
import re
import subprocess
import sys
import unittest
from pathlib import Path

# Writes both reports in a process of its own, from the source that it is given.
REPORT = """
import json, sys
source, orders = json.load(sys.stdin)
module = {"__name__": "report"}
exec(compile(source, "report.py", "exec"), module)
print(json.dumps([module["text_report"](orders), module["csv_report"](orders)]))
"""

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


SOURCE = Path("report.py").read_text(encoding="utf-8")


def reports(orders, source=SOURCE):
    done = subprocess.run(
        [sys.executable, "-c", REPORT], input=json.dumps([source, orders]),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


class TestSame(unittest.TestCase):
    def test_both_reports(self):
        self.assertEqual(reports(ORDERS), [TEXT, CSV])

    def test_no_orders(self):
        self.assertEqual(reports([]), ["total              0.00", "name,amount\ntotal,0.00"])

    def test_a_discount_that_is_changed_once_changes_both(self):
        many = {"name": "Ada", "items": [{"price": 1, "count": 16}]}
        member = {"name": "Ada", "items": [{"price": 2, "count": 5}], "member": True}
        for share, order, amount in (("0.9", many, "8.00"), ("0.95", member, "5.00")):
            changed = re.sub(rf"\b{re.escape(share)}\b", "0.5", SOURCE, count=1)
            text, csv = reports([order], changed)
            self.assertEqual(text, f"Ada          {amount:>10}\ntotal        {amount:>10}")
            self.assertEqual(csv, f"name,amount\nAda,{amount}\ntotal,{amount}")


if __name__ == "__main__":
    unittest.main()
