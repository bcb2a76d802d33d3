"""The rows of a data set that a condition in SQL holds for, tried by duckdb in batches (extra `data`)."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json
from bakeoff.formats.data.parquet import NEEDS_EXTRA
from bakeoff.formats.data.rows import DataFile, Row, shapes_of

_BATCH = 1000  # rows
_PLACE = '"#"'  # of a row in its batch
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")


def sql_filtered(file: DataFile, condition: str, label: str) -> DataFile:
    """Return the rows of *file* for which *condition* holds; *label* is what an error begins with.

    A condition sees one row at a time and nothing else: no file, no other row.
    """

    def rows() -> Iterator[Row]:
        return _matching(file.rows(), condition, label)

    return replace(file, rows=rows, scan=lambda: shapes_of(rows()))


def _matching(rows: Iterator[Row], condition: str, label: str) -> Iterator[Row]:
    try:
        import duckdb
    except ImportError as error:
        raise UsageError(f"{label}: a condition in SQL {NEEDS_EXTRA}") from error
    batch = list(islice(rows, _BATCH))
    columns = _columns(batch)
    query = _query(columns, condition)
    matched = 0
    with duckdb.connect(config={"enable_external_access": False, "threads": 1}) as db:
        db.execute("SET lock_configuration = true")
        while batch:
            values = [range(len(batch)), *(_values(batch, name) for name in columns)]
            try:
                places = db.execute(query, [list(column) for column in values]).fetchall()
            except duckdb.Error as error:
                raise UsageError(f"{label}: {_reason(error, columns)}") from error
            for (place,) in places:
                matched += 1
                yield batch[place]
            batch = list(islice(rows, _BATCH))
    if not matched:
        raise UsageError(f"{label} matches none of the rows")


def _columns(rows: Sequence[Row]) -> dict[str, str]:
    """Return the type of each column: a number where all of the first rows have one, or nothing."""
    kinds: dict[str, str] = {}
    for row in rows:
        for name, value in row.values.items():
            number = isinstance(value, str) and _NUMBER.fullmatch(value)
            if not number and value != "":
                kinds[name] = "VARCHAR"
            else:
                kinds.setdefault(name, "DOUBLE" if number else "")
                kinds[name] = kinds[name] or ("DOUBLE" if number else "")
    return {name: kind or "VARCHAR" for name, kind in kinds.items()}


def _query(columns: dict[str, str], condition: str) -> str:
    parts = [f"unnest($1::INTEGER[]) AS {_PLACE}"]
    typed = []
    for number, (name, kind) in enumerate(columns.items(), start=2):
        quoted = '"' + name.replace('"', '""') + '"'
        parts.append(f"unnest(${number}::VARCHAR[]) AS {quoted}")
        typed.append(f"TRY_CAST({quoted} AS {kind}) AS {quoted}")
    rows = f"SELECT {_PLACE}, {', '.join(typed)} FROM (SELECT {', '.join(parts)})"  # noqa: S608 -- names, quoted
    return f"SELECT {_PLACE} FROM ({rows}) WHERE (\n{condition}\n) ORDER BY {_PLACE}"  # noqa: S608 -- the user's own


def _values(rows: Sequence[Row], name: str) -> Iterator[str | None]:
    """Yield what SQL sees of a column: nothing as NULL, lists and objects as JSON."""
    for row in rows:
        value: Json = row.values.get(name, "")
        yield None if value == "" else value if isinstance(value, str) else json.dumps(value)


def _reason(error: Exception, columns: Iterable[str]) -> str:
    reason = " ".join(str(error).partition("\n\nLINE")[0].split())
    return f"{reason.rstrip('.')}; the columns are: {', '.join(columns)}"
