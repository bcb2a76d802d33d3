"""Greet whoever is named on the command line."""

import sys

from greeter.messages import greet

print(greet(sys.argv[1] if len(sys.argv) > 1 else "world"))
