import unittest
from decimal import Decimal

from shop import Order, OutOfStockError, Stock


class Shop(unittest.TestCase):
    def test_an_order_takes_from_the_shelf_and_has_a_total(self):
        stock = Stock({"hammer": 12})
        order = Order(stock)
        order.want("hammer", net="10.00", kind="tool", count=10)
        self.assertEqual(order.total(), Decimal("113.05"))
        self.assertEqual(stock.count("hammer"), 2)

    def test_what_is_not_there_cannot_be_ordered(self):
        with self.assertRaises(OutOfStockError):
            Order(Stock()).want("hammer", net="10.00", kind="tool")
