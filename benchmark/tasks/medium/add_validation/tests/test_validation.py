import unittest

from registry import users
from registry.users import Registry


class Validation(unittest.TestCase):
    def refused(self, *entry, registry=None):
        registry = registry or Registry()
        before = len(registry)
        with self.assertRaises(users.ValidationError) as caught:
            registry.add(*entry)
        self.assertEqual(len(registry), before)
        return caught.exception.field

    def test_the_error_is_a_value_error(self):
        self.assertTrue(issubclass(users.ValidationError, ValueError))

    def test_right_entries_are_kept_trimmed_and_in_lower_case(self):
        registry = Registry()
        user = registry.add("  Ada Lovelace ", "Ada@Example.ORG", 36)
        self.assertEqual(user, {"name": "Ada Lovelace", "email": "ada@example.org", "age": 36})
        self.assertEqual(registry.find("ada@example.org"), user)
        registry.add("x" * 80, "a.b+c@mail.example.org", 0)
        registry.add("Old", "old@example.org", 150)
        self.assertEqual(len(registry), 3)

    def test_wrong_names_are_refused(self):
        for name in ("", "   ", None, 7, "x" * 81):
            self.assertEqual(self.refused(name, "a@example.org", 1), "name", repr(name))

    def test_wrong_emails_are_refused(self):
        wrong = ("", "a", "a@b", "@example.org", "a@@example.org", "a@b@c.org", "a @example.org",
                 "a@.org", "a@example.", "a@exa mple.org", None, 5, "a@example.org\n")
        for email in wrong:
            self.assertEqual(self.refused("Ada", email, 1), "email", repr(email))

    def test_wrong_ages_are_refused(self):
        for age in (-1, 151, "36", 3.5, None, True, False):
            self.assertEqual(self.refused("Ada", "a@example.org", age), "age", repr(age))

    def test_the_first_wrong_field_is_named(self):
        self.assertEqual(self.refused("", "nothing", -1), "name")
        self.assertEqual(self.refused("Ada", "nothing", -1), "email")

    def test_a_twin_is_refused_however_it_is_written(self):
        registry = Registry()
        registry.add("Ada", "ada@example.org", 36)
        self.assertEqual(self.refused("Eve", "ADA@example.org", 40, registry=registry), "email")
        self.assertEqual(registry.find("ada@example.org")["name"], "Ada")
