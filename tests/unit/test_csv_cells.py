"""Cells of CSV files: what a spreadsheet might run is made text."""

import pytest

from bakeoff.reports.data_files import csv_cell as cell
from bakeoff.reports.data_files import csv_line as line

SIGNS = "=+-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b\u2212\u207a"
BEFORE = [
    "",
    " ",
    "\t",
    "\n",
    "\u200b",
    "\u200d\u2060",
    "\ufeff",
    "\u00a0",
    "\u00ad",
    "\u0301",
]


@pytest.mark.parametrize("before", BEFORE, ids=ascii)
@pytest.mark.parametrize("sign", SIGNS, ids=ascii)
def test_a_text_that_begins_like_a_formula_is_no_formula(sign: str, before: str) -> None:
    assert cell(f"{before}{sign}cmd|' /C calc'!A0").startswith("'")


@pytest.mark.parametrize("text", ["1+1=2", "a=b", "日本", "(x)", "é", "", "…", "“quoted”"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert cell(text) == text


def test_numbers_are_numbers_and_a_line_has_one_line() -> None:
    assert line([-1, 0.5, None, True, "a\nb", "=1"]) == "-1,0.5,,true,a b,'=1\n"
