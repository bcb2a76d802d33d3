import ast
import json
import math
import subprocess
import sys
import unittest
from pathlib import Path

SOURCE = Path("area.py").read_text(encoding="utf-8")


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


def function():
    found = [node for node in ast.parse(SOURCE).body if getattr(node, "name", "") == "circle_area"]
    return found[0]


def comments_above(line):
    """Return the comment lines that stand directly above *line*, which counts from 1."""
    lines, found = SOURCE.splitlines(), []
    for text in reversed(lines[: line - 1]):
        if not text.strip().startswith("#"):
            break
        found.append(text)
    return " ".join(found)


class Comment(unittest.TestCase):
    def test_the_function_says_what_the_radius_is_for(self):
        node = function()
        told = comments_above(node.lineno) + " " + (ast.get_docstring(node) or "")
        self.assertIn("radius", told.lower())
        self.assertGreaterEqual(len(told.split()), 3)

    def test_it_computes_the_same_as_before(self):
        script = "from area import circle_area, square_area\nprint(json.dumps([circle_area(2), square_area(3)]))"
        circle, square = ask(script)
        self.assertAlmostEqual(circle, 4 * math.pi)
        self.assertEqual(square, 9)

    def test_its_code_is_what_it_was(self):
        body = [node for node in function().body if not isinstance(node, ast.Expr)]
        self.assertEqual([ast.unparse(node) for node in body], ["return math.pi * radius ** 2"])
