"""Parquet files, read in batches by duckdb (extra `data`)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.core.errors import UsageError
from bakeoff.formats.data.rows import Row, Shape, plain_value

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_BATCH = 1000  # rows
_PLAIN = ("VARCHAR", "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT",
          "USMALLINT", "UINTEGER", "UBIGINT", "DOUBLE", "STRUCT", "MAP")  # fmt: skip
_BYTES, _PICTURE = "BLOB", "STRUCT(bytes BLOB, path VARCHAR)"
NEEDS_EXTRA = 'needs the extra `data`: pip install "bakeoff[data]"'


def read_parquet(path: Path) -> Iterator[Row]:
    """Yield the rows of the Parquet file at *path*; the line of a row is its number in the file."""
    try:
        import duckdb
    except ImportError as error:
        raise UsageError(f"{path}: Parquet {NEEDS_EXTRA}") from error
    if not path.is_file() or not path.stat().st_size:
        raise UsageError(f"{path} is empty or not a file; it must be a Parquet file")
    with duckdb.connect() as db:
        try:
            db.execute("SET threads = 1")  # the models need the cores, and one reads fast enough
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
    import duckdb

    with duckdb.connect() as db:
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
