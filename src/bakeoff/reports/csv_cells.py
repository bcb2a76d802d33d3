"""Values as cells of a CSV file: none of them is a formula to a spreadsheet."""

import csv
import io
import unicodedata
from collections.abc import Sequence

from bakeoff._lib.untrusted import one_line
from bakeoff.core.values import Json

_FORMULA = frozenset("=+-@|%\N{MINUS SIGN}")
_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Mn", "Me", "Zl", "Zp", "Zs"})
_LONGEST = 2_000


def line(values: Sequence[Json], *, longest: int = _LONGEST) -> str:
    """Return *values* as one line; a text that is longer than *longest* is cut."""
    out = io.StringIO()
    cells = [cell(value, longest=longest) for value in values]
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


def cell(value: Json, *, longest: int = _LONGEST) -> str:
    """Return *value* as text; what is unknown is empty, and a text is on one line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(round(value, 6))
    text = one_line(str(value), width=longest)
    return f"'{text}" if _is_formula(text) else text


def _is_formula(text: str) -> bool:
    """Whether a spreadsheet might take *text* for a formula: by the first character that is seen.

    Full-width and small signs are read as the plain ones, and what is not seen may be skipped.
    """
    if text[:1].isalnum():
        return False
    first = next((c for c in text if unicodedata.category(c) not in _UNSEEN), "")
    return unicodedata.normalize("NFKC", first)[:1] in _FORMULA
