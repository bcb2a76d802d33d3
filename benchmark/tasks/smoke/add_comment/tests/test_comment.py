import ast
import math
import unittest
from pathlib import Path

SOURCE = Path("area.py").read_text(encoding="utf-8")


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
        from area import circle_area, square_area

        self.assertAlmostEqual(circle_area(2), 4 * math.pi)
        self.assertEqual(square_area(3), 9)

    def test_its_code_is_what_it_was(self):
        body = [node for node in function().body if not isinstance(node, ast.Expr)]
        self.assertEqual([ast.unparse(node) for node in body], ["return math.pi * radius ** 2"])
