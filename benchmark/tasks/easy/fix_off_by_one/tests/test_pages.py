import unittest

from pages import page, page_count


class Pages(unittest.TestCase):
    def test_the_last_page_counts_even_if_it_is_not_full(self):
        self.assertEqual(page_count(list(range(10)), 3), 4)
        self.assertEqual(page_count(list(range(9)), 3), 3)
        self.assertEqual(page_count([1], 3), 1)

    def test_no_items_are_no_pages(self):
        self.assertEqual(page_count([], 3), 0)

    def test_every_item_is_on_exactly_one_page(self):
        for count in range(12):
            items = list(range(count))
            pages = [page(items, n + 1, 4) for n in range(page_count(items, 4))]
            self.assertEqual([item for one in pages for item in one], items)
            self.assertTrue(all(pages))

    def test_a_page_that_does_not_exist_is_empty(self):
        self.assertEqual(page([1, 2, 3], 2, 3), [])
        self.assertEqual(page([1, 2, 3], 0, 2), [])
