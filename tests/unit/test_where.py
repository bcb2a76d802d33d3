"""Expressions over the columns of tasks: what they mean, and what is said where they mean nothing."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.core.errors import UsageError
from bakeoff.planning.where import parse_where

ROW: dict[str, Any] = {
    "lang": "de", "level": "3", "score": 0.5, "tags": ["a", "b"], "empty": "", "flag": "true",
    "name with space": "x", "nan": "nan", "nothing": None, "quote": "it's",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lang == 'de'", True),
        ('lang == "en"', False),
        ("lang != 'en'", True),
        ("level > 2", True),
        ("level > 10", False),  # as numbers, not as texts
        ("level == 3.0", True),
        ("level <= 3 and level >= 3", True),
        ("score < 1", True),
        ("lang > 2", False),  # no number
        ("lang != 2", True),
        ("nan == 0", False),
        ("lang in ('en', 'de')", True),
        ("lang not in ['en', 'de']", False),
        ("level in (1, 2, 3,)", True),
        ("not lang == 'de'", False),
        ("lang == 'en' or lang == 'de' and level == 3", True),
        ("(lang == 'en' or lang == 'de') and level == 4", False),
        ("tags contains 'a'", True),
        ("tags contains 'ab'", False),
        ("lang contains 'e'", True),
        ("lang startswith 'd'", True),
        ("lang endswith 'd'", False),
        ("`name with space` == 'x'", True),
        ("empty == null and nothing == ''", True),
        ("empty", False),
        ("flag and not empty", True),
        ("flag == true", True),
        (r"quote == 'it\'s'", True),
        ("-1 < level", True),
    ],
)
def test_an_expression_says_which_rows_are_meant(text: str, expected: bool) -> None:
    assert parse_where(text).matches(ROW) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no expression"),
        ("lang = 'de'", r"character 6: to compare, write two equals signs"),
        ("lang == 'de", r"character 9: this quote is never closed"),
        ("lang == ", r"a column, a number or a text in quotes is expected"),
        ("lang == 'a' level", r"character 13: `and` or `or` is expected"),
        ("(lang == 'a'", r"'\)' is expected"),
        ("lang in 'de'", r"a list is expected after `in`"),
        ("lang not 'de'", r"`in` is expected after `not`"),
        ("lang ; 1", r"character 6: unexpected ';'"),
        ("lang == 'a' && level", r"character 13: unexpected '&'; write `and`"),
        ("lang == 'a' AND level", r"character 13: write `and` instead"),
        ("lang LIKE 'a'", r"character 6: write `contains` instead"),
        ("__import__('os')", r"`and` or `or` is expected"),
        ("(" * 100 + "a" + ")" * 100, "nested more than"),
        ("a" * 20_000, "longer than"),
    ],
)
def test_a_mistake_is_shown_where_it_is(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_where(text)


def test_a_column_that_is_not_there_is_named_with_the_one_that_was_meant() -> None:
    with pytest.raises(UsageError, match=r"character 15: no column 'lnag'; did you mean 'lang'"):
        parse_where("level > 2 and lnag == 'de'").check(list(ROW))
    with pytest.raises(
        UsageError, match=r"no column 'french'.*; a text stands in quotes: 'french'"
    ):
        parse_where("lang == french").check(list(ROW))


@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        parse_where(text).matches(ROW)
