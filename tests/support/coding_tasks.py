"""Small coding tasks for tests, written as a person would write them."""

from pathlib import Path

WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b\n"
FIX = "sed -i 's/a - b/a + b/' calc.py"

_TEST = """\
import unittest

from calc import add


class Adding(unittest.TestCase):
    def test_two_and_three_are_five(self):
        self.assertEqual(add(2, 3), 5)

    def test_nothing_changes_nothing(self):
        self.assertEqual(add(7, 0), 7)
"""


def write_fix_add(folder: Path, *, settings: str = "", name: str = "fix-add") -> Path:
    """Write the task of repairing an addition, and return its folder."""
    task = folder / name
    for inner in ("files", "tests", "solution"):
        (task / inner).mkdir(parents=True)
    (task / "instruction.md").write_text("`add` in calc.py subtracts. Repair it.\n")
    (task / "files" / "calc.py").write_text(WRONG)
    (task / "solution" / "calc.py").write_text(RIGHT)
    (task / "tests" / "test_calc.py").write_text(_TEST)
    if settings:
        (task / "task.toml").write_text(settings)
    return task
