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


SAY = "from greeter.messages import farewell, greet\nprint(json.dumps([greet(given), farewell(given)]))"


class Greeting(unittest.TestCase):
    def test_the_greeting_is_spelled_right(self):
        self.assertEqual(ask(SAY, "Ada")[0], "Hello, Ada!")

    def test_the_farewell_is_what_it_was(self):
        self.assertEqual(ask(SAY, "Ada")[1], "Goodbye, Ada.")

    def test_the_command_line_greets_too(self):
        done = subprocess.run(
            [sys.executable, "-m", "greeter", "Grace"],
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        self.assertEqual((done.returncode, done.stdout), (0, "Hello, Grace!\n"))
