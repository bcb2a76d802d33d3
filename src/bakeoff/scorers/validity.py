"""Scorers for answers that must parse: valid-json, valid-python, valid-sql."""

import ast
import asyncio
import re
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import ScorerError, UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.task import Task
from bakeoff.scorers.json_answer import NoJsonError, read_json

_FENCED = re.compile(r"^[ \t]*```[\w+-]*[ \t\r]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_WHOLE = re.compile(r"\s*```[\w+-]*[ \t\r]*\n(.*)\n[ \t]*```\s*", re.DOTALL)
_LONGEST = 1_000_000  # characters
_SHORT = 20_000  # a longer answer is parsed beside the event loop


def code_in(answer: str) -> str:
    """Return the code of *answer*: its fenced blocks one after the other, else all of it."""
    blocks = [match[1] for match in _FENCED.finditer(answer)]
    return "\n".join(blocks) if blocks else answer


@dataclass(frozen=True, kw_only=True)
class ValidJson:
    """1 where the whole answer is JSON by RFC 8259, or one fenced block with nothing around it."""

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Parse it."""
        fenced = _WHOLE.fullmatch(outcome.answer)
        try:
            read_json(fenced[1] if fenced else outcome.answer)
        except NoJsonError as error:
            return _verdict("valid-json", f"not JSON: {one_line(str(error))}")
        return _verdict("valid-json", None)


@dataclass(frozen=True, kw_only=True)
class ValidPython:
    """1 where the code of the answer parses as Python, the version Bakeoff runs on.

    The code is what is in fenced blocks, else the whole answer. It is parsed, never run.
    """

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Parse it."""
        code = _bounded("valid-python", code_in(outcome.answer))
        return _verdict("valid-python", await _parsed(python_fault, code))


def python_fault(code: str) -> str | None:
    """Return why *code* does not parse as Python, or None."""
    if not code.strip():
        return "there is no code"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
    except SyntaxError as error:
        return one_line(f"line {error.lineno}: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return one_line(f"it cannot be parsed: {type(error).__name__} {error}")
    return None


@dataclass(frozen=True, kw_only=True)
class ValidSql:
    """1 where the code of the answer is SQL that SQLite parses: other dialects differ.

    The code is what is in fenced blocks, else the whole answer. Without a `schema` only the grammar
    counts; with one (CREATE statements), tables, columns and functions must exist too. Nothing of
    the answer is run.
    """

    schema: str | None = None

    def __post_init__(self) -> None:
        try:
            _database(self.schema).close()
        except sqlite3.Error as error:
            raise UsageError(
                f"scorer 'valid-sql': SQLite refuses `schema`: {error}; write CREATE statements"
            ) from error

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Let SQLite compile each statement."""
        code = _bounded("valid-sql", code_in(outcome.answer))
        return _verdict("valid-sql", await _parsed(self._fault, code))

    def _fault(self, code: str) -> str | None:
        statements = [text for text in _statements(code) if _without_comments(text)]
        if not statements:
            return "there is no statement"
        with closing(_database(self.schema)) as database:
            for number, statement in enumerate(statements, start=1):
                if fault := self._statement_fault(database, statement):
                    where = f"statement {number}: " if len(statements) > 1 else ""
                    return one_line(f"{where}{fault}")
        return None

    def _statement_fault(self, database: sqlite3.Connection, statement: str) -> str | None:
        text = _EXPLAIN.sub("", statement)
        try:
            database.execute(f"EXPLAIN {text}").close()
        except (ValueError, sqlite3.ProgrammingError) as error:
            return None if "Incorrect number of bindings" in str(error) else str(error)
        except sqlite3.Error as error:
            message = str(error)
            return message if self.schema is not None or _GRAMMAR.search(message) else None
        return None


_EXPLAIN = re.compile(r"^\s*explain\s+(?:query\s+plan\s+)?", re.IGNORECASE)
_GRAMMAR = re.compile(
    r"syntax error|incomplete input|unrecognized token|too deep|stack overflow|too big|unterminated"
)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_STEPS = 1_000_000  # of SQLite's machine: a schema creates tables, it computes nothing
_REFUSED = frozenset({sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA})


def _database(schema: str | None) -> sqlite3.Connection:
    """Return an empty database in memory with *schema*, which can reach no file."""
    database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    database.set_authorizer(
        lambda action, *_: sqlite3.SQLITE_DENY if action in _REFUSED else sqlite3.SQLITE_OK
    )
    database.set_progress_handler(lambda: 1, _STEPS)
    try:
        database.executescript(schema or "")
    except BaseException:
        database.close()
        raise
    return database


def _statements(code: str) -> Iterator[str]:
    """Yield the statements of *code*: a semicolon in a string or a trigger ends none."""
    start = 0
    for match in re.finditer(";", code):
        statement = code[start : match.end()]
        if sqlite3.complete_statement(statement):
            yield statement
            start = match.end()
    yield code[start:]


def _without_comments(statement: str) -> str:
    return _COMMENT.sub("", statement).strip(" \t\r\n\f\v;")


async def _parsed(fault_of: Callable[[str], str | None], code: str) -> str | None:
    return fault_of(code) if len(code) <= _SHORT else await asyncio.to_thread(fault_of, code)


def _bounded(scorer: str, code: str) -> str:
    if len(code) > _LONGEST:
        raise ScorerError(
            f"scorer {scorer!r}: the answer has {len(code):,} characters; "
            f"{_LONGEST:,} are parsed at most"
        )
    return code


def _verdict(scorer: str, fault: str | None) -> Score:
    return Score(scorer=scorer, value=float(fault is None), explanation=fault)
