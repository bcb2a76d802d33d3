import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import report


class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name, "rows.txt")
        self.path.write_text("b;2\n\na;1\nb;3\n")

    def test_rows_are_read(self):
        rows = [(name, int(amount)) for name, amount in report.read_rows(str(self.path))]
        self.assertEqual(rows, [("b", 2), ("a", 1), ("b", 3)])

    def test_totals_are_summed(self):
        self.assertEqual(report.totals([("b", 2), ("a", 1), ("b", 3)]), {"a": 1, "b": 5})

    def test_main_prints_what_it_printed_before(self):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            report.main(str(self.path))
        self.assertEqual(printed.getvalue(), "a: 1\nb: 5\n")
