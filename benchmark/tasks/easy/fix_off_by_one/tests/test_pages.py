import json
import subprocess
import sys
import unittest


def ask(script, given=None):
    """Run *script* with the solution in a process of its own; return the JSON that it prints.

    What is tested cannot reach the tests that way.
    """
    done = subprocess.run(
        [sys.executable, "-c", f"import json, sys\ngiven = json.load(sys.stdin)\n{script}"],
        input=json.dumps(given), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


COUNTS = "from pages import page_count\nprint(json.dumps([page_count(i, s) for i, s in given]))"
PAGES = "from pages import page\nprint(json.dumps([page(i, n, s) for i, n, s in given]))"


class Pages(unittest.TestCase):
    def test_the_last_page_counts_even_if_it_is_not_full(self):
        given = [(list(range(10)), 3), (list(range(9)), 3), ([1], 3)]
        self.assertEqual(ask(COUNTS, given), [4, 3, 1])

    def test_no_items_are_no_pages(self):
        self.assertEqual(ask(COUNTS, [([], 3)]), [0])

    def test_every_item_is_on_exactly_one_page(self):
        for count in (1, 3, 4, 5, 8, 11):
            items = list(range(count))
            (pages,) = ask(COUNTS, [(items, 4)])
            shown = ask(PAGES, [(items, number + 1, 4) for number in range(pages)])
            self.assertEqual([item for page in shown for item in page], items)
            self.assertTrue(all(shown))

    def test_a_page_that_does_not_exist_is_empty(self):
        self.assertEqual(ask(PAGES, [([1, 2, 3], 2, 3), ([1, 2, 3], 0, 2)]), [[], []])
