"""Every function is described, with an example that is true; the code is as it was."""

import ast
import pathlib
import secrets
import subprocess
import sys
import unittest

NAMES = ("overlaps", "merged", "covered")
CODE = pathlib.Path(__file__).with_name("spans_before.txt")
SOURCE = pathlib.Path("spans.py").read_text(encoding="utf-8")
# Tries the examples in a process of its own; only a whole run says the word.
EXAMPLES = """
import doctest, sys, spans
print(sys.argv[1], doctest.testmod(spans).failed)
"""


def docstrings():
    tree = ast.parse(SOURCE)
    found = {
        n.name: ast.get_docstring(n) or "" for n in tree.body if isinstance(n, ast.FunctionDef)
    }
    return {"": ast.get_docstring(tree) or "", **found}


def without_docs(source):
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


class TestDocstrings(unittest.TestCase):
    def test_the_module_and_every_function_are_described(self):
        texts = docstrings()
        self.assertTrue(texts[""].strip())
        for name in NAMES:
            self.assertGreater(len(texts[name].split()), 5, name)

    def test_every_function_has_an_example_and_all_are_true(self):
        texts = docstrings()
        for name in NAMES:
            self.assertIn(f">>> {name}(", texts[name], name)
        word = secrets.token_hex(8)
        done = subprocess.run(
            [sys.executable, "-c", EXAMPLES, word],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        self.assertEqual(done.stdout.splitlines()[-1:], [f"{word} 0"], done.stdout[-2000:])

    def test_the_code_is_as_it_was(self):
        self.assertEqual(without_docs(SOURCE), without_docs(CODE.read_text(encoding="utf-8")))


if __name__ == "__main__":
    unittest.main()
