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


READ = """
from durations import parse
told = []
for text in given:
    try:
        found = parse(text)
        told.append([found, type(found).__name__])
    except ValueError:
        told.append("ValueError")
print(json.dumps(told))
"""


class Durations(unittest.TestCase):
    def test_right_ones_are_read(self):
        right = {
            "45": 45, "0": 0, "90m": 5400, "1h30m": 5400, "1h 30m": 5400, "1d2h": 93600,
            "2 h 5 s": 7205, " 1D ": 86400, "1d 1h 1m 1s": 90061, "-1h30m": -5400, "-45": -45,
            "- 2s": -2, "0s": 0, "007s": 7, "100h": 360000,
        }  # fmt: skip
        for text, found in zip(right, ask(READ, list(right)), strict=True):
            self.assertEqual(found, [right[text], "int"], text)

    def test_wrong_ones_raise_a_value_error(self):
        wrong = [
            "", "   ", "-", "h", "1x", "1h30", "30 1h", "1m1h", "1h1h", "1.5h", "1,5h", "1h-30m",
            "--5s", "one hour", "1h and 2m", "5 5s", "1h30m!", "+5s",
        ]  # fmt: skip
        for text, found in zip(wrong, ask(READ, wrong), strict=True):
            self.assertEqual(found, "ValueError", text)
