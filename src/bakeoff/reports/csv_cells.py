"""Values as cells of a CSV file: none of them is a formula to a spreadsheet."""

import csv
import io
from collections.abc import Sequence

from bakeoff._lib.untrusted import one_line
from bakeoff.core.values import Json

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")
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
    return f"'{text}" if text.startswith(_FORMULA) else text
