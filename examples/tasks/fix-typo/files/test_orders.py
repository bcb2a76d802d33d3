import unittest

from orders import advance, on_the_way


class Orders(unittest.TestCase):
    def test_a_packed_order_that_advances_is_on_the_way(self):
        order = advance({"id": 7, "status": "packed"})
        self.assertEqual(on_the_way([order]), [7])
