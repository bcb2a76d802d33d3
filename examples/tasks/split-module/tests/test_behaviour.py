import json
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def answer(code):
    """What is printed last, in a process of its own: what is graded cannot touch the grader."""
    done = subprocess.run(
        [sys.executable, "-c", f"import json\n{code}"],
        cwd=ROOT, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    return json.loads(done.stdout)


class Behaviour(unittest.TestCase):
    def test_every_name_can_still_be_imported_from_the_package(self):
        said = answer("""
from shop import VAT_PERCENT, Order, OutOfStockError, Stock, discounted, rounded, with_vat
print(json.dumps([VAT_PERCENT, OutOfStockError.__mro__[1].__name__]))
""")
        self.assertEqual(said, [{"book": 7, "tool": 19}, "Exception"])

    def test_prices_are_as_they_were(self):
        said = answer("""
from shop import discounted, rounded, with_vat
print(json.dumps([str(rounded("0.005")), str(with_vat("9.99", "book")), str(with_vat(10, "tool")),
    str(discounted(100, 9)), str(discounted(100, 10)), str(discounted(100, 100))]))
""")
        self.assertEqual(said, ["0.01", "10.69", "11.90", "100.00", "95.00", "90.00"])

    def test_orders_and_stock_are_as_they_were(self):
        said = answer("""
from shop import Order, OutOfStockError, Stock
stock = Stock({"book": 12})
order = Order(stock)
order.want("book", net="10", kind="book", count=10)
order.want("book", net="10", kind="book")
seen = [str(order.total()), stock.count("book")]
try:
    order.want("book", net="10", kind="book", count=5)
except OutOfStockError as error:
    seen.append(str(error))
order.cancel()
print(json.dumps([*seen, stock.count("book"), str(order.total())]))
""")
        self.assertEqual(said, ["112.35", 1, "5 book wanted, 1 there", 12, "0"])


if __name__ == "__main__":
    unittest.main()
