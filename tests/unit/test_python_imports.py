"""Which modules a source imports, by its text."""

import pytest

from bakeoff._lib.tracebacks import imports_module
from bakeoff.scorers.rubrics import check_for_script


@pytest.mark.parametrize(
    ("source", "imports"),
    [
        ("import unittest", True),
        ("import os, unittest", True),
        ("import os.path as p, sys , unittest", True),
        ("import os; import unittest", True),
        ("    from unittest import TestCase", True),
        ("import unittest.mock", True),
        ("import os, unittest2", False),
        ("import my.unittest", False),
        ("# import unittest", False),
        ("from os import unittest", False),
        ("import os\nunittest = 1", False),
        ("import os,\nunittest", False),  # which is no Python
    ],
)
def test_an_import_is_seen_wherever_it_stands_in_its_statement(source: str, imports: bool) -> None:
    assert imports_module(source, "unittest") is imports


_CASE = "class T(unittest.TestCase):\n    def test_it(self): ...\n"


@pytest.mark.parametrize(
    ("first", "runner"),
    [
        ("import os, unittest\n", "unittest"),
        ("import unittest, pytest\n", "pytest"),
        ("import os, pytest\nimport unittest\n", "pytest"),
    ],
)
def test_a_rubric_s_tests_are_run_by_what_they_import(first: str, runner: str) -> None:
    assert check_for_script("t.py", first + _CASE, time_s=1, environment={}).runner == runner
