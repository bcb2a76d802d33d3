import unittest

from durations import parse


class Durations(unittest.TestCase):
    def test_right_ones_are_read(self):
        right = {
            "45": 45, "0": 0, "90m": 5400, "1h30m": 5400, "1h 30m": 5400, "1d2h": 93600,
            "2 h 5 s": 7205, " 1D ": 86400, "1d 1h 1m 1s": 90061, "-1h30m": -5400, "-45": -45,
            "- 2s": -2, "0s": 0, "007s": 7, "100h": 360000,
        }
        for text, seconds in right.items():
            found = parse(text)
            self.assertEqual(found, seconds, text)
            self.assertIs(type(found), int, text)

    def test_wrong_ones_raise_a_value_error(self):
        wrong = (
            "", "   ", "-", "h", "1x", "1h30", "30 1h", "1m1h", "1h1h", "1.5h", "1,5h", "1h-30m",
            "--5s", "one hour", "1h and 2m", "5 5s", "1h30m!", "+5s",
        )
        for text in wrong:
            with self.assertRaises(ValueError, msg=text):
                parse(text)
