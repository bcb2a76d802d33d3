import subprocess
import sys
import unittest

from greeter.messages import farewell, greet


class Greeting(unittest.TestCase):
    def test_the_greeting_is_spelled_right(self):
        self.assertEqual(greet("Ada"), "Hello, Ada!")

    def test_the_farewell_is_what_it_was(self):
        self.assertEqual(farewell("Ada"), "Goodbye, Ada.")

    def test_the_command_line_greets_too(self):
        done = subprocess.run(
            [sys.executable, "-m", "greeter", "Grace"], capture_output=True, text=True, timeout=30
        )
        self.assertEqual((done.returncode, done.stdout), (0, "Hello, Grace!\n"))
