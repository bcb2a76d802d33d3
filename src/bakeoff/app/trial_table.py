"""The trials of a run as a table: for data frames, and as CSV, JSON Lines or Parquet files."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from bakeoff._lib import files
from bakeoff._lib.files import replacing
from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.sanitize import well_formed
from bakeoff._lib.value_object import positional_value_object
from bakeoff.app.reporting import redactor_of
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Plan
from bakeoff.core.record import TrialRecord, TrialRow
from bakeoff.core.values import Json
from bakeoff.formats.prompts import asked_by
from bakeoff.reports.data_files import csv_line
from bakeoff.reports.files import expected, question

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from bakeoff.app.run_results import Run

_BATCH = 5_000
_LONGEST_CELL = 32_000  # of a spreadsheet: it takes 32,767 characters
_INSTALL = 'it needs {0}: pip install "bakeoff[frames]", or {0} itself'


@positional_value_object
class TableColumn:
    """A column with the type of its values, each of which may be unknown."""

    name: str
    kind: type


_NUMBERS = tuple(
    TableColumn(name, kind)
    for name, kind in (
        ("task", str), ("category", str), ("candidate", str), ("rollout", int), ("status", str),
        ("score", float), ("passed", bool), ("fault_boundary", str), ("fault_transient", bool),
        ("attempts", int), ("seconds", float), ("model_seconds", float),
        ("first_token_seconds", float), ("requests", int), ("input_tokens", int),
        ("output_tokens", int), ("cost_usd", float), ("load_seconds", float), ("flags", str),
        ("group", str),
    )
)  # fmt: skip
_TEXTS = tuple(
    TableColumn(name, str) for name in ("question", "expected", "answer", "fault", "scores")
)
_WHETHER = tuple(n for n, column in enumerate(_NUMBERS) if column.kind is bool)


class TrialTable:
    """The recorded trials of a run: iterate over their records, or take them as a data frame.

    With *text*, a frame has what was asked, expected and answered, the message of a fault, and each
    score by its scorer as JSON.
    """

    def __init__(self, run: "Run") -> None:
        self._run = run

    def __repr__(self) -> str:
        return f"<the trials of {self._run!r}: iterate, or .to_pandas(), .to_polars(), .to_arrow()>"

    def __iter__(self) -> Iterator[TrialRecord]:
        """Yield each recorded trial with the attempt that counts."""
        return self._run.records()

    @staticmethod
    def columns(*, text: bool) -> tuple[TableColumn, ...]:
        """Return the columns of the table."""
        return (*_NUMBERS, *_TEXTS) if text else _NUMBERS

    def rows(self, *, text: bool = False) -> Iterator[Sequence[Json]]:
        """Yield the values of each recorded trial, in the order of the columns."""
        plan = self._run.plan
        groups = {task.id: task.group for task in plan.tasks if task.group is not None}
        if not text:
            yield from (_numbers(row, groups) for row in self._run.rows())
            return
        texts = _texts_of(plan)
        clean = redactor_of(plan).text
        for row, record in _paired(self._run.rows(), self._run.records()):
            values = [*texts(row), *_said(record)]
            yield [
                *_numbers(row, groups),
                *(None if v is None else clean(well_formed(v)) for v in values),
            ]

    def to_arrow(self, *, text: bool = False) -> "pa.Table":
        """Return the trials as a pyarrow table."""
        pa = _needed("pyarrow")
        schema = _schema(pa, self.columns(text=text))
        return pa.Table.from_batches(self._batches(pa, schema, text=text), schema)

    def to_polars(self, *, text: bool = False) -> "pl.DataFrame":
        """Return the trials as a polars frame."""
        polars = _needed("polars")
        kinds = {str: polars.String, int: polars.Int64, float: polars.Float64, bool: polars.Boolean}
        schema = {column.name: kinds[column.kind] for column in self.columns(text=text)}
        rows = list(self.rows(text=text))
        frame: pl.DataFrame = polars.DataFrame(rows, schema=schema, orient="row")
        return frame

    def to_pandas(self, *, text: bool = False) -> "pd.DataFrame":
        """Return the trials as a pandas frame, in types that know what is unknown."""
        pd = _needed("pandas")
        kinds = {str: "string", int: "Int64", float: "Float64", bool: "boolean"}
        columns = self.columns(text=text)
        frame = pd.DataFrame(self.rows(text=text), columns=[column.name for column in columns])
        return frame.astype({column.name: kinds[column.kind] for column in columns})

    def _batches(self, pa: Any, schema: Any, *, text: bool) -> Iterator[Any]:
        rows = self.rows(text=text)
        while batch := list(islice(rows, _BATCH)):
            columns = zip(*batch, strict=True)
            arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
            yield pa.record_batch(arrays, schema=schema)

    def write_parquet(self, file: IO[bytes], *, text: bool) -> None:
        """Write the trials as Parquet, a batch at a time."""
        pa = _needed("pyarrow")
        from pyarrow import parquet

        schema = _schema(pa, self.columns(text=text))
        with parquet.ParquetWriter(file, schema) as writer:
            for batch in self._batches(pa, schema, text=text):
                writer.write_batch(batch)

    def write_csv(self, file: IO[bytes], *, text: bool) -> None:
        """Write the trials as CSV in which no cell is a formula."""
        file.write(csv_line([column.name for column in self.columns(text=text)]).encode())
        for row in self.rows(text=text):
            file.write(csv_line(row, longest=_LONGEST_CELL).encode())

    def write_jsonl(self, file: IO[bytes], *, text: bool) -> None:
        """Write the trials as JSON Lines; what is unknown is null."""
        names = [column.name for column in self.columns(text=text)]
        for row in self.rows(text=text):
            values: dict[str, Any] = dict(zip(names, row, strict=True))
            if values.get("scores") is not None:
                values["scores"] = msgspec.Raw(values["scores"].encode())
            file.write(msgspec.json.encode(values) + b"\n")


def _schema(pa: Any, columns: Iterable[TableColumn]) -> Any:
    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    return pa.schema([(column.name, kinds[column.kind]) for column in columns])


def _needed(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(_INSTALL.format(name)) from error


def _numbers(row: TrialRow, groups: Mapping[str, str]) -> list[Json]:
    values: list[Any] = [*row, groups.get(row.task_id)]
    for place in _WHETHER:  # the database has them as 0 and 1
        values[place] = None if values[place] is None else bool(values[place])
    return values


def _texts_of(plan: Plan) -> Callable[[TrialRow], tuple[str | None, str | None]]:
    """Return what gives the question and the expected answer of a trial."""
    prompts = {c.id: c.prompt for c in plan.candidates if c.prompt is not None}
    if not prompts:
        known = {task.id: (question(task), expected(task)) for task in plan.tasks}
        return lambda row: known.get(row.task_id, (None, None))
    tasks = {task.id: task for task in plan.tasks}

    def asked(row: TrialRow) -> tuple[str | None, str | None]:
        task = tasks.get(row.task_id)
        if task is None:
            return None, None
        return question(asked_by(prompts.get(row.candidate_id), task)), expected(task)

    return asked


def _said(record: TrialRecord | None) -> tuple[str | None, str | None, str | None]:
    if record is None:  # it cannot be read any more
        return None, None, None
    attempt = record.attempt
    scores = {score.label: score.value for score in attempt.scores}
    return (
        attempt.outcome.answer if attempt.outcome else None,
        attempt.fault.message if attempt.fault else None,
        msgspec.json.encode(scores).decode() if scores else None,
    )


def _paired(
    rows: Iterable[TrialRow], records: Iterator[TrialRecord]
) -> Iterator[tuple[TrialRow, TrialRecord | None]]:
    """Yield each row with its record; both come in one order, and a record may be unreadable."""
    record = next(records, None)
    for row in rows:
        if record is not None and (record.task_id, record.candidate_id, record.rollout) == (
            row.task_id, row.candidate_id, row.rollout,
        ):  # fmt: skip
            yield row, record
            record = next(records, None)
        else:
            yield row, None


# --- files ------------------------------------------------------------------------------------


_WRITERS: Mapping[str, Callable[..., None]] = {
    "csv": TrialTable.write_csv,
    "jsonl": TrialTable.write_jsonl,
    "parquet": TrialTable.write_parquet,
}
FORMATS = tuple(_WRITERS)


def check_format(name: str) -> str:
    """Return *name*; raise `UsageError` where trials cannot be exported as that."""
    if name not in _WRITERS:
        raise UsageError(f"no export format {name!r}; {did_you_mean(name, _WRITERS)}")
    return name


def export(
    run: "Run",
    *,
    form: str = "csv",
    to: str | Path | None = None,
    text: bool = True,
) -> Path:
    """Write the trials of *run* into the file *to*, or `trials.FORM` in that folder or its own; return the path.

    Without *text*, it does not hold what was asked, expected and answered.
    """
    writer = _WRITERS[check_format(form)]
    path = Path(to or run.folder)
    if path.is_dir():
        path /= f"trials.{form}"
    with _written(path) as file:
        writer(TrialTable(run), file, text=text)
    return path


def export_to(run: "Run", file: IO[bytes], *, form: str = "csv", text: bool = True) -> None:
    """Write the trials of *run* to an open file."""
    _WRITERS[check_format(form)](TrialTable(run), file, text=text)


@contextmanager
def _written(path: Path) -> Iterator[IO[bytes]]:
    try:
        files.make_folder(path.parent)
        with replacing(path, durable=False) as file:
            yield file
    except OSError as error:
        why = error.strerror or os.strerror(error.errno or 0)
        raise UsageError(
            f"{path} cannot be written: {why}; choose another file with --to"
        ) from error
