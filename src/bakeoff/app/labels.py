"""What people say of answers: right or wrong, and why. A CSV file, which the viewer writes into the folder of a run."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from bakeoff._lib.files import write_atomic
from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import UsageError
from bakeoff.reports.data_files import csv_line, unescaped_cell

LABELS = "labels.csv"
LABEL = "label"
MOST_NOTE = 1_000
RIGHT, WRONG = "pass", "fail"
_NOTE = "note"
_TRIAL = ("task", "candidate", "rollout")
_WORDS = {RIGHT: 1.0, "yes": 1.0, "true": 1.0, WRONG: 0.0, "no": 0.0, "false": 0.0}
_LONGEST_CELL = 32_000

TrialKey: TypeAlias = tuple[str, str, int]
"""Task, candidate and rollout."""

_writing = Lock()  # a viewer answers in threads


@value_object
class TrialLabel:
    """A label as it was written, and a note; either may be empty."""

    text: str = ""
    note: str = ""

    @property
    def value(self) -> float | None:
        """The label from 0 to 1; None where there is none, or something else."""
        try:
            return _value(self.text) if self.text else None
        except ValueError:
            return None


def label_values(path: Path, column: str = LABEL) -> dict[TrialKey, float]:
    """Return the labels of people in *column* of a CSV file, from 0 to 1; a cell left empty is none."""
    names, rows = _table(path)
    if column not in names:
        raise UsageError(f"{path}: no column {column!r}; {did_you_mean(column, names)}")
    values: dict[TrialKey, float] = {}
    for where, key, row in rows:
        if text := (row[column] or "").strip():
            try:
                values[key] = _value(text)
            except ValueError as error:
                raise UsageError(
                    f"{where}: {column} is {text!r}; write 0 to 1, or pass and fail"
                ) from error
    if not values:
        raise UsageError(f"{path}: the column {column!r} is empty; write 0 to 1, or pass and fail")
    return values


def read_labels(folder: Path) -> dict[TrialKey, TrialLabel]:
    """Return what was said of the trials of the run in *folder*."""
    if not (folder / LABELS).is_file():
        return {}
    return {
        key: TrialLabel(text=(row.get(LABEL) or "").strip(), note=row.get(_NOTE) or "")
        for _, key, row in _table(folder / LABELS)[1]
    }


def keep_label(folder: Path, key: TrialKey, label: TrialLabel) -> None:
    """Write down what is said of one trial of the run in *folder*; columns of one's own stay as they are."""
    path = folder / LABELS
    with _writing:
        names, rows = _table(path) if path.is_file() else ([], [])
        names += [name for name in (*_TRIAL, LABEL, _NOTE) if name not in names]
        kept = {known: row for _, known, row in rows}
        row = kept.setdefault(key, dict(zip(_TRIAL, map(str, key), strict=True)))
        row |= {LABEL: label.text, _NOTE: label.note}
        if not any(row.get(name) for name in names if name not in _TRIAL):
            del kept[key]
        lines = [names, *([row.get(name) or "" for name in names] for row in kept.values())]
        try:
            text = "".join(csv_line(line, longest=_LONGEST_CELL) for line in lines)
            write_atomic(path, text.encode())
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from error


_Row: TypeAlias = dict[str, str]


def _table(path: Path) -> tuple[list[str], list[tuple[str, TrialKey, _Row]]]:
    """Return the columns of a file of labels, and its rows: where each is, and of which trial."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            names = list(reader.fieldnames or ())
            for name in _TRIAL:
                if name not in names:
                    raise UsageError(f"{path}: no column {name!r}; {did_you_mean(name, names)}")
            return names, list(_rows(path, reader))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _rows(path: Path, reader: "csv.DictReader[str]") -> Iterator[tuple[str, TrialKey, _Row]]:
    for given in reader:
        where = f"{path}:{reader.line_num}"
        row: Mapping[str, str | None] = {k: v for k, v in given.items() if isinstance(k, str)}
        plain = {name: unescaped_cell(text or "") for name, text in row.items()}
        try:
            rollout = int(plain["rollout"])
        except ValueError as error:
            raise UsageError(
                f"{where}: rollout is {plain['rollout']!r}; it is a whole number from 0 on"
            ) from error
        yield where, (plain["task"], plain["candidate"], rollout), plain


def _value(text: str) -> float:
    value = _WORDS.get(text.lower())
    value = float(text) if value is None else value
    if not 0 <= value <= 1:
        raise ValueError(text)
    return value
