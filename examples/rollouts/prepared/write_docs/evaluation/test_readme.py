"""The page says how the functions are used."""

import pathlib
import re
import secrets
import subprocess
import sys
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
            word = secrets.token_hex(8)  # an example may end its process; then the word is missing
            done = subprocess.run(
                [sys.executable, "-c", f"exec({block!r}, {{}})\nprint({word!r})"],
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            self.assertEqual(done.stdout.splitlines()[-1:], [word], done.stderr[-2000:])


if __name__ == "__main__":
    unittest.main()
