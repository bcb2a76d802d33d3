"""The page says how the functions are used."""

import pathlib
import re
import unittest

PAGE = pathlib.Path("README.md").read_text(encoding="utf-8")


class TestReadme(unittest.TestCase):
    def test_there_is_a_section_on_usage(self):
        self.assertRegex(PAGE, re.compile(r"^#+ usage", re.MULTILINE | re.IGNORECASE))

    def test_every_function_is_named(self):
        for name in ("overlaps", "merged", "covered"):
            self.assertIn(name, PAGE)

    def test_the_examples_run(self):
        blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
        self.assertTrue(blocks)
        for block in blocks:
            exec(block, {})


if __name__ == "__main__":
    unittest.main()
