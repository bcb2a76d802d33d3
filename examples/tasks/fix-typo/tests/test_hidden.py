import json
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def answer(expression):
    """What an expression gives, in a process of its own: what is graded cannot touch the grader."""
    code = f"import json, orders; print(json.dumps({expression}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    return json.loads(done.stdout)


class Orders(unittest.TestCase):
    def test_only_what_has_left_and_not_arrived_is_on_the_way(self):
        orders = [
            {"id": n, "status": status}
            for n, status in enumerate(["received", "packed", "shipped", "delivered", "shipped"])
        ]
        self.assertEqual(answer(f"orders.on_the_way({orders!r})"), [2, 4])

    def test_nothing_is_on_the_way_where_nothing_was_ordered(self):
        self.assertEqual(answer("orders.on_the_way([])"), [])

    def test_an_order_goes_through_every_status(self):
        seen = answer(
            "[o := {'id': 1, 'status': 'received'}] and "
            "[(o := orders.advance(o))['status'] for _ in range(4)]"
        )
        self.assertEqual(seen, ["packed", "shipped", "delivered", "delivered"])

    def test_the_report_still_counts(self):
        said = answer("orders.report([{'id': 1, 'status': 'shipped'}])")
        self.assertEqual(said, "received: 0\npacked: 0\nshipped: 1\ndelivered: 0")


if __name__ == "__main__":
    unittest.main()
