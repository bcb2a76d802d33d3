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


# Adds the entries one after another; tells of each what is kept, or which field was refused.
ADD = """
from registry.users import Registry, ValidationError
assert issubclass(ValidationError, ValueError)
registry, told = Registry(), []
for entry in given:
    before = len(registry)
    try:
        told.append({"kept": registry.add(*entry), "found": registry.find(entry[1].lower())})
    except ValidationError as error:
        told.append({"field": error.field, "grew": len(registry) - before})
print(json.dumps([told, len(registry)]))
"""


class Validation(unittest.TestCase):
    def refused(self, field, entries):
        told, count = ask(ADD, entries)
        for entry, one in zip(entries, told, strict=True):
            self.assertEqual(one, {"field": field, "grew": 0}, repr(entry))
        self.assertEqual(count, 0)

    def test_right_entries_are_kept_trimmed_and_in_lower_case(self):
        told, count = ask(
            ADD,
            [
                ["  Ada Lovelace ", "Ada@Example.ORG", 36],
                ["x" * 80, "a.b+c@mail.example.org", 0],
                ["Old", "old@example.org", 150],
            ],
        )
        ada = {"name": "Ada Lovelace", "email": "ada@example.org", "age": 36}
        self.assertEqual(told[0], {"kept": ada, "found": ada})
        self.assertEqual(count, 3)

    def test_wrong_names_are_refused(self):
        names = ("", "   ", None, 7, "x" * 81)
        self.refused("name", [[name, "a@example.org", 1] for name in names])

    def test_wrong_emails_are_refused(self):
        emails = (
            "", "a", "a@b", "@example.org", "a@@example.org", "a@b@c.org", "a @example.org",
            "a@.org", "a@example.", "a@exa mple.org", None, 5, "a@example.org\n",
        )  # fmt: skip
        self.refused("email", [["Ada", email, 1] for email in emails])

    def test_wrong_ages_are_refused(self):
        ages = (-1, 151, "36", 3.5, None, True, False)
        self.refused("age", [["Ada", "a@example.org", age] for age in ages])

    def test_the_first_wrong_field_is_named(self):
        self.refused("name", [["", "nothing", -1]])
        self.refused("email", [["Ada", "nothing", -1]])

    def test_a_twin_is_refused_however_it_is_written(self):
        told, count = ask(ADD, [["Ada", "ada@example.org", 36], ["Eve", "ADA@example.org", 40]])
        self.assertEqual(told[1], {"field": "email", "grew": 0})
        self.assertEqual((told[0]["found"]["name"], count), ("Ada", 1))
