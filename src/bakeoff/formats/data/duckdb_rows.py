"""Rows by duckdb (extra `data`): Parquet files, and conditions in SQL on the rows of any data set."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff._lib.process_setup import collect_at_exit
from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json
from bakeoff.formats.data.rows import DataFile, Row, Shape, plain_value, shapes_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_BATCH = 1000  # rows
_PLAIN = ("VARCHAR", "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT",
          "USMALLINT", "UINTEGER", "UBIGINT", "DOUBLE", "STRUCT", "MAP")  # fmt: skip
_BYTES, _PICTURE = "BLOB", "STRUCT(bytes BLOB, path VARCHAR)"
_PLACE = '"#"'  # of a row in its batch
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
NEEDS_EXTRA = 'needs the extra `data`: pip install "bakeoff[data]"'


def _open_duckdb(what: str, *, external_access: bool = True) -> "DuckDBPyConnection":
    """Return a database in memory that uses one core; an error begins with *what* it is for."""
    try:
        import duckdb
    except ImportError as error:
        raise UsageError(f"{what} {NEEDS_EXTRA}") from error
    collect_at_exit()  # it lists what is left of it on the standard error stream
    # the models need the cores, and one reads fast enough
    return duckdb.connect(config={"threads": 1, "enable_external_access": external_access})


def read_parquet(path: Path) -> Iterator[Row]:
    """Yield the rows of the Parquet file at *path*; the line of a row is its number in the file."""
    if not path.is_file() or not path.stat().st_size:
        raise UsageError(f"{path} is empty or not a file; it must be a Parquet file")
    with _open_duckdb(f"{path}: Parquet") as db:
        import duckdb

        try:
            names, columns = _columns(db, path)
            rows = db.execute(f"SELECT {columns} FROM read_parquet(?)", [_escaped(path)])  # noqa: S608 -- column names, quoted
            number = 0
            while batch := rows.fetchmany(_BATCH):
                for values in batch:
                    number += 1
                    yield Row(
                        number, {n: plain_value(v) for n, v in zip(names, values, strict=True)}
                    )
        except duckdb.Error as error:
            reason = str(error).partition("\n")[0]
            raise UsageError(f"{path}: not a readable Parquet file: {reason}") from error


def scan_parquet(path: Path) -> Sequence[Shape]:
    """Return the first row of the Parquet file at *path*, and how many there are."""
    first = next(read_parquet(path), None)
    if first is None:
        return []
    with _open_duckdb(f"{path}: Parquet") as db:
        counted = db.execute("SELECT count(*) FROM read_parquet(?)", [_escaped(path)]).fetchone()
        return [Shape(first, counted[0] if counted else 0)]


def _columns(db: "DuckDBPyConnection", path: Path) -> tuple[Sequence[str], str]:
    """Return the names of the columns, and what to select of them: dates, decimals as their text.

    A picture, in bytes or as the Hugging Face Hub keeps it, becomes a data URI. Other columns with
    bytes in them are left out: they are no text.
    """
    described = db.execute("DESCRIBE SELECT * FROM read_parquet(?)", [_escaped(path)]).fetchall()
    names, expressions = [], []
    for name, kind, *_ in described:
        quoted = '"' + name.replace('"', '""') + '"'
        if kind in (_BYTES, _PICTURE):  # as data URIs
            data = quoted if kind == _BYTES else f"{quoted}.bytes"
            names.append(name)
            expressions.append(f"'data:;base64,' || base64({data})")
            continue
        if "BLOB" in kind:
            continue
        kept = kind.startswith(_PLAIN) or kind.endswith("[]")
        names.append(name)
        expressions.append(quoted if kept else f"CAST({quoted} AS VARCHAR)")
    if not names:
        raise UsageError(f"{path}: it has no column of text or numbers")
    return names, ", ".join(expressions)


def _escaped(path: Path) -> str:
    """Return *path* so that no character of it is a wildcard."""
    return "".join(f"[{mark}]" if mark in "*?[" else mark for mark in str(path.resolve()))


# --- conditions in SQL ----------------------------------------------------------------------------


def sql_filtered(file: DataFile, condition: str, label: str) -> DataFile:
    """Return the rows of *file* for which *condition* holds; *label* is what an error begins with.

    A condition sees one row at a time and nothing else: no file, no other row.
    """

    def rows() -> Iterator[Row]:
        return _matching(file.rows(), condition, label)

    return replace(file, rows=rows, scan=lambda: shapes_of(rows()))


def _matching(rows: Iterator[Row], condition: str, label: str) -> Iterator[Row]:
    batch = list(islice(rows, _BATCH))
    columns = _column_types(batch)
    query = _query(columns, condition)
    matched = 0
    with _open_duckdb(f"{label}: a condition in SQL", external_access=False) as db:
        import duckdb

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


def _column_types(rows: Sequence[Row]) -> dict[str, str]:
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
