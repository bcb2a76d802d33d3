"""Every function is described, with an example that is true; the code is as it was."""

import ast
import doctest
import pathlib
import unittest

import spans

NAMES = ("overlaps", "merged", "covered")
CODE = pathlib.Path(__file__).with_name("spans_before.txt")


def without_docs(source):
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


class TestDocstrings(unittest.TestCase):
    def test_the_module_and_every_function_are_described(self):
        self.assertTrue((spans.__doc__ or "").strip())
        for name in NAMES:
            self.assertGreater(len((getattr(spans, name).__doc__ or "").split()), 5, name)

    def test_every_function_has_an_example_and_all_are_true(self):
        for name in NAMES:
            self.assertIn(f">>> {name}(", getattr(spans, name).__doc__ or "", name)
        self.assertEqual(doctest.testmod(spans).failed, 0)

    def test_the_code_is_as_it_was(self):
        now = pathlib.Path(spans.__file__).read_text(encoding="utf-8")
        self.assertEqual(without_docs(now), without_docs(CODE.read_text(encoding="utf-8")))


if __name__ == "__main__":
    unittest.main()
