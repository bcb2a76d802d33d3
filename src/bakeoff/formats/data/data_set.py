"""A data set as a suite: each row of a file becomes a task.

A row's prompt is the text of a column, or comes from a template over its columns. A task without an
id column is named by its content, so that rows which are added, moved or left out rename no other.
"""

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Annotated, NoReturn

import msgspec
from msgspec import Meta

from bakeoff._lib.digest import digest
from bakeoff._lib.phrasing import near
from bakeoff.core.attachment import SUFFIXES, Attachment
from bakeoff.core.errors import UsageError
from bakeoff.core.lazy_tasks import MOST_HELD, StreamedTasks, first_of
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import Message, ScorerSpec, Task
from bakeoff.core.values import Json
from bakeoff.formats.attachments import attachment, attachments
from bakeoff.formats.data.checking import Checks, guessed_scorers
from bakeoff.formats.data.columns import (
    OUR_SCORERS,
    PROMPTFOO_EXPECTED,
    ROLES,
    ColumnMap,
    Columns,
    DataOptions,
    resolve_columns,
)
from bakeoff.formats.data.rows import DataFile, Row
from bakeoff.formats.suite import Scoring
from bakeoff.formats.text.template import Template, is_template

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,300})(\.[0-9]{1,300})?([eE][-+]?[0-9]{1,2})?")
_WORD = re.compile(r"\w+")
_PROMPTFOO_ASSERTION = re.compile(r"([a-z][a-z-]*)(?:\([^)]*\))?:")
_ID_WORDS, _ID_LENGTH = 6, 40
_SMALLEST_TABLE = 1 << 12  # hashes
_WORTH_A_SCAN = 1 << 18  # bytes: a smaller file is just read
_NO_METADATA = ("id", "prompt", "category", "group", "tags", "file")


class DataTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A data set: CSV, TSV, JSON Lines, a JSON list, Parquet, or `hf://owner/name`.

    `map` says which column is the `id`, `prompt`, `expected`, `category`, `group`, `tags` or `file` (a
    picture, PDF or text: a path in the folder `files`, by default that of the data set), and names
    further variables; usual names are guessed. `prompt` may be a template. `where`, `sql` (a condition
    in the SQL of duckdb, extra `data`) and `sample` take a part of the rows.
    """

    path: str
    files: str | None = None
    map: dict[str, str] = {}
    where: str | None = None
    sql: str | None = None
    sample: Annotated[int, Meta(ge=1)] | None = None
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How rows become tasks: which columns mean what, what prompts need of them, how they are scored."""

    options: DataOptions = field(default_factory=DataOptions)
    scoring: Scoring = field(default_factory=Scoring)
    files: Path | None = None

    @cached_property
    def columns(self) -> ColumnMap:
        """The columns as a person maps them."""
        return ColumnMap.of(self.options.columns)


def read_data_set(file: DataFile, reading: Reading) -> RunSpec:
    """Return the tasks of the rows of *file*; those of a large one are read as they are needed."""

    def reader() -> RowReader:
        return RowReader(file.name, reading, reading.files or file.folder)

    tasks: Sequence[Task]
    shapes = file.scan() if file.size >= _WORTH_A_SCAN else ()
    first = reader()
    if (length := sum(shape.rows for shape in shapes)) <= MOST_HELD:
        tasks = tuple(first.tasks(file.rows()))
    else:
        tasks = StreamedTasks(
            read=lambda: reader().tasks(file.rows()),
            length=length,
            first=first_of(first.tasks(file.rows())),
            shapes=tuple((_like(s.first, shapes[0].first, reader()), s.rows) for s in shapes),
        )
    notices = (*file.notices, *first.notices(whole=not isinstance(tasks, StreamedTasks)))
    name = PurePosixPath(file.name).stem or file.name
    return RunSpec(
        name=name,
        tasks=tasks,
        sources=(file.source,),
        notices=notices,
        columns=first.columns.named() if first.columns else {},
    )


def _like(row: Row, first: Row, reader: "RowReader") -> Task:
    """Return the task of *row*; what columns mean is known from the *first* one."""
    *_, task = reader.tasks((first, row) if row is not first else (row,))
    return task


class RowReader:
    """Makes tasks of the rows of one *source*; what its columns mean is known from the first row.

    A row that repeats an earlier one is left out; two different rows with one id are an error.
    """

    def __init__(self, source: str, reading: Reading, folder: Path | None = None) -> None:
        self._source = source
        self._folder = folder
        self._reading = reading
        self._at = SourceLocation(file=source)
        self._seen = HashSet()  # of ids
        self.columns: Columns | None = None
        self.checks = Checks()
        self.repeated: list[int] = []

    def tasks(self, rows: Iterable[Row]) -> Iterator[Task]:
        """Yield the task of every row."""
        iterator = iter(rows)
        first = next(iterator, None)
        if first is None:
            raise UsageError(f"{self._source}: there are no rows in it; add one at least")
        columns = resolve_columns(
            self._reading.columns,
            list(first.values),
            where=self._source,
            needs_prompt=self._reading.options.own_prompt,
        )
        self._refuse_misspelt(columns)
        if not self._may_be_files(first.values.get(columns.column("file") or "")):
            columns = columns.without_guess("file")
        self.columns = columns
        self._used = {columns.column(role) for role in _NO_METADATA}
        for row in chain((first,), iterator):
            task = self._task(row, columns)
            if self._is_new(task.id, row, columns):
                self.checks.add(task)
                yield task

    def notices(self, *, whole: bool) -> Iterator[str]:
        """Yield what a person should know of how the rows were read; *whole* is whether all were."""
        if self.columns is not None and (guessed := self.columns.described()):
            yield f"{self._source}: columns guessed by their names: {guessed}"
        if whole and not self._is_scored:
            yield from (f"{self._source}: {line}" for line in self.checks.described())
        if self.repeated:
            many = len(self.repeated)
            rows = "this row is" if many == 1 else f"{many} rows, this one first, are"
            yield f"{self._source}:{self.repeated[0]}: {rows} equal to an earlier one and run once"

    @property
    def _is_scored(self) -> bool:
        """Whether somebody says how answers are checked."""
        return self._reading.options.scored or self._reading.scoring.scorers is not None

    def _refuse_misspelt(self, columns: Columns) -> None:
        """Raise where what is mapped is a role, misspelt: nothing inserts such a variable."""
        if self._reading.options.variables or self._template is not None:
            return
        for name in columns.variables:
            if meant := near(name, ROLES, least=0.75):
                raise UsageError(
                    f"{self._source}: {name!r} is no role of a column, and no prompt inserts it; did you "
                    f"mean {meant!r}?"
                )

    def _is_new(self, task_id: str, row: Row, columns: Columns) -> bool:
        if self._seen.add(hash(task_id)):
            return True
        if (column := columns.column("id")) is not None:
            raise UsageError(
                f"{self._source}:{row.line}: an earlier row has the {column} {task_id!r} too; give each "
                "row its own, or name rows by their content: --map id="
            )
        self.repeated.append(row.line)
        return False

    def _task(self, row: Row, columns: Columns) -> Task:
        expected = columns.column("expected")
        options = self._reading.options
        carried = options.variables or self._template is not None
        variables = self._variables(row, columns) if carried else {}
        prompt = self._prompt(row, columns, variables) if options.own_prompt else ""
        files = self._files(row, columns)
        target = None if expected is None else self._target(row, expected)
        rest = {
            name: v
            for name, v in row.values.items()
            if name not in self._used and name not in variables and not _is_data_uri(v)
        }
        return Task(
            id=self._id(row, columns, prompt),
            messages=(Message(role="user", content=prompt, attachments=files),)
            if prompt or files
            else (),
            target=target,
            scorers=self._scorers(target, row),
            pass_threshold=self._reading.scoring.pass_threshold,
            category=_label(row, columns.column("category")),
            group=_label(row, columns.column("group")),
            metadata=_with_tags(rest, row, columns.column("tags")),
            vars=variables,
        )

    def _variables(self, row: Row, columns: Columns) -> dict[str, Json]:
        """Return what a template may insert of *row*.

        The expected answer is a variable only where a person maps it: a prompt must not hold it.
        """
        hidden = {columns.column("expected"), columns.column("file")}
        values = {
            name: value
            for name, value in row.values.items()
            if name not in hidden and not _is_data_uri(value)
        }
        for name, column in columns.variables.items():
            values[name] = row.values.get(column, "")
        return values

    @cached_property
    def _template(self) -> Template | None:
        """The template in the place of the prompt's column, if there is one."""
        text = self._reading.columns.roles.get("prompt", "")
        return Template(text, source="map.prompt") if is_template(text) else None

    def _prompt(self, row: Row, columns: Columns, variables: Mapping[str, Json]) -> str:
        if self._template is not None:
            return self._rendered(self._template, row, variables)
        column = columns.column("prompt") or ""
        prompt = row.values.get(column, "")
        if not isinstance(prompt, str):
            self._wrong(row, f"column {column!r} is the prompt, and holds a list or an object here; "
                        "write a template for it: --prompt FILE")  # fmt: skip
        if not prompt.strip():
            self._wrong(row, f"column {column!r} is the prompt, and is empty here")
        return prompt

    def _may_be_files(self, value: Json) -> bool:
        """Whether *value*, of a column with a usual name, is or names pictures; empty, it may be."""
        return all(
            isinstance(each, str)
            and (not each or _is_data_uri(each) or _names_a_file(each) or self._is_a_file(each))
            for each in (value if isinstance(value, list) else [value])
        )

    def _is_a_file(self, given: str) -> bool:
        try:
            attachment(given, self._folder)
        except UsageError:
            return False
        return True

    def _files(self, row: Row, columns: Columns) -> tuple[Attachment, ...]:
        """Return what the message of *row* shows: the file that its cell names, or several in a list."""
        column = columns.column("file")
        value = row.values.get(column, "") if column is not None else ""
        given = value if isinstance(value, list) else [value] if value else []
        try:
            return attachments([str(each) for each in given], self._folder)
        except UsageError as error:
            hint = "; if it is none: --map file=" if "file" in columns.guessed else ""
            self._wrong(row, f"column {column!r}: {error}{hint}")

    def _rendered(self, template: Template, row: Row, variables: Mapping[str, Json]) -> str:
        try:
            return template.render(variables)
        except UsageError as error:
            raise UsageError(f"{self._source}:{row.line}: {error}") from error

    def _id(self, row: Row, columns: Columns, prompt: str) -> str:
        column = columns.column("id")
        if column is None:
            texts = (v for v in row.values.values() if isinstance(v, str) and not _is_data_uri(v))
            text = prompt or next(filter(None, texts), "")
            words = "-".join(_WORD.findall(text[:200].lower())[:_ID_WORDS])[:_ID_LENGTH]
            return f"{words.strip('-')}~{digest(dict(row.values))[:12]}"
        own = row.values.get(column, "")
        if not isinstance(own, str) or not own.strip():
            self._wrong(row, f"column {column!r} is the id, and has none here")
        return own

    def _target(self, row: Row, column: str) -> Json:
        """Return the expected answer: a text that is a JSON number as that number, nothing as None."""
        value = row.values.get(column, "")
        if not isinstance(value, str):
            return value
        if column == PROMPTFOO_EXPECTED:
            self._refuse_assertion(row, value)
        if number := _NUMBER.fullmatch(value):
            return float(value) if number[1] or number[2] else int(value)
        return value if value.strip() else None

    def _refuse_assertion(self, row: Row, value: str) -> None:
        assertion = _PROMPTFOO_ASSERTION.match(value)
        if assertion is None or assertion[1] not in OUR_SCORERS:
            return
        scorer = OUR_SCORERS[assertion[1]]
        self._wrong(
            row,
            f"column {PROMPTFOO_EXPECTED!r} holds promptfoo's check {assertion[1]!r}, which is not read "
            f"here: keep the text after the colon in a column of its own, name it with --expected, and "
            f"check it with --scorer {scorer}",
        )

    def _scorers(self, target: Json, row: Row) -> tuple[ScorerSpec, ...]:
        if self._reading.scoring.scorers is not None:
            return self._reading.scoring.scorers
        return guessed_scorers(target, row.values, self._at)

    def _wrong(self, row: Row, why: str) -> NoReturn:
        raise UsageError(f"{self._source}:{row.line}: {why}")


def _is_data_uri(value: Json) -> bool:
    """Whether *value* is the content of a file, which is no text to insert or to look at."""
    return isinstance(value, str) and value.startswith("data:") and ";base64," in value[:200]


def _names_a_file(text: str) -> bool:
    """Whether *text* is called as a picture or a document is: one that is not there is a mistake."""
    return text.lower().endswith((".jpeg", *SUFFIXES.values()))


def _label(row: Row, column: str | None) -> str | None:
    value = row.values.get(column, "") if column is not None else ""
    return value.strip() or None if isinstance(value, str) else None


def _with_tags(metadata: dict[str, Json], row: Row, column: str | None) -> dict[str, Json]:
    """Return *metadata* with the tags of *row* as a list; a text holds them with commas between."""
    tags = row.values.get(column, "") if column is not None else ""
    if isinstance(tags, str):
        tags = [tag.strip() for tag in re.split("[,;]", tags) if tag.strip()]
    return {**metadata, "tags": tags} if tags else metadata


class HashSet:
    """A set of 64-bit hashes in a tenth of the memory of Python's own: for the ids of millions of rows.

    They are in an open-addressed table of eight bytes each, at most two thirds full.
    """

    def __init__(self) -> None:
        self._slots = array("q", bytes(8 * _SMALLEST_TABLE))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, value: int) -> bool:
        """Add *value*, such as that of `hash`; return whether it was not there yet."""
        value = value or 1  # zero is an empty slot
        if not _put(self._slots, value):
            return False
        self._count += 1
        if 3 * self._count > 2 * len(self._slots):
            larger = array("q", bytes(16 * len(self._slots)))
            for each in filter(None, self._slots):
                _put(larger, each)
            self._slots = larger
        return True


def _put(slots: "array[int]", value: int) -> bool:
    mask = len(slots) - 1
    at = value & mask
    while found := slots[at]:
        if found == value:
            return False
        at = (at + 1) & mask
    slots[at] = value
    return True
