"""What was there twice is there once, and functions are short; the figures are custom metrics."""

import ast
import json
import pathlib
import unittest

SOURCE = pathlib.Path("report.py").read_text(encoding="utf-8")
FUNCTIONS = [n for n in ast.walk(ast.parse(SOURCE)) if isinstance(n, ast.FunctionDef)]


def lines(function):
    return function.end_lineno - function.lineno + 1


class TestShape(unittest.TestCase):
    def test_functions_are_short(self):
        longest = max(map(lines, FUNCTIONS))
        figures = {"functions": len(FUNCTIONS), "longest_function": longest}
        print(json.dumps({"custom_metrics": figures}))
        self.assertLessEqual(longest, 14)

    def test_the_discounts_are_written_once(self):
        for number in ("0.9", "0.95"):
            found = [n for n in ast.walk(ast.parse(SOURCE)) if isinstance(n, ast.Constant)]
            self.assertEqual(sum(n.value == float(number) for n in found), 1, number)

    def test_both_reports_are_still_there(self):
        names = {function.name for function in FUNCTIONS}
        self.assertLessEqual({"text_report", "csv_report"}, names)


if __name__ == "__main__":
    unittest.main()
