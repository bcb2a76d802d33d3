"""What the viewer asks of a ledger: aggregates and pages of trials, by SQL on columns.

Only a search looks into the records of attempts, for as long as it is told to; nothing returns more rows than it was
asked for. The layout of the ledger is known to `_COUNTED` alone.
"""

import json
import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from time import thread_time
from typing import Any

import msgspec

from bakeoff._lib.clock import monotonic
from bakeoff._lib.value_object import value_object
from bakeoff.core.plan import trial_name
from bakeoff.stores.ledger_reader import COUNTED_ATTEMPTS, OF_TASKS, SqliteLedger, rows_named
from bakeoff.stores.schema import STATUS_NAME

_SELECTED = f"""
SELECT a.trial, a.rollout, a.task, a.candidate, t.id AS task_id, t.category AS category,
  c.id AS candidate_id, {STATUS_NAME} AS status, a.score AS score, a.passed AS passed,
  a.fault_boundary AS fault, a.number AS attempts, a.elapsed_s AS elapsed_s,
  a.model_s AS model_s, a.first_token_s AS first_token_s, a.input_tokens AS input_tokens,
  a.output_tokens AS output_tokens, a.cost_usd AS cost_usd, a.blob AS blob, a.rest AS rest
{COUNTED_ATTEMPTS}"""
_COUNTED = f"({_SELECTED})"  # the attempt that counts of each planned trial
_COUNTED_OF_TASKS = f"({_SELECTED} {OF_TASKS})"  # looked up one by one
# how many they are, where the plan is everything with everything: an index knows
_ENDED_OF_ALL = """
SELECT (SELECT count(*) FROM attempt) FROM planned
WHERE planned.rollouts > (SELECT rollout FROM last)
AND NOT EXISTS (SELECT 1 FROM lost_task) AND NOT EXISTS (SELECT 1 FROM candidate WHERE length(body) = 0)
"""
_LINE = (
    "trial, task_id, category, candidate_id, rollout, status, score, passed, fault, attempts, elapsed_s,"
    " input_tokens, output_tokens, cost_usd"
)
MEASURES = ("model_s", "first_token_s", "input_tokens", "output_tokens", "cost_usd")


@value_object
class CandidateProgress:
    """How far one candidate has come; costs and tokens are those of the attempts that count."""

    candidate: str
    statuses: Mapping[str, int]
    mean_score: float | None
    passed: int
    scored: int
    cost_usd: float | None
    tokens: int

    @property
    def ended(self) -> int:
        """How many trials have a record."""
        return sum(self.statuses.values())


@dataclass(frozen=True, slots=True)
class TrialEntry:
    """A recorded trial without what was said in it; `key` is its place in the order of the plan."""

    key: int
    task_id: str
    category: str | None
    candidate_id: str
    rollout: int
    status: str
    score: float | None
    passed: bool | None
    fault: str | None
    attempts: int
    elapsed_s: float
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None

    @property
    def name(self) -> str:
        """How a person refers to the trial."""
        return trial_name(self.task_id, self.candidate_id, self.rollout)


@value_object
class TrialQuery:
    """Which trials: those that fit all that is given."""

    candidate: str = ""
    category: str = ""
    status: str = ""
    fault: str = ""
    result: str = ""  # passed, failed, partial or unscored
    task: str = ""  # a part of its id
    least: float | None = None  # score
    most: float | None = None  # score
    tasks: Sequence[str] | None = None  # only those with these ids
    keys: Sequence[int] | None = None  # only these
    without: Sequence[int] = ()


@value_object
class Scanned:
    """Trials that were found by what is in their records; `after` is where to go on, None at the end."""

    entries: Sequence[TrialEntry]
    said: Sequence["SearchedText"]
    looked_at: int
    after: int | None


class _Scored(msgspec.Struct):
    scorer: str
    value: float = 0.0
    explanation: str | None = None


class _Answer(msgspec.Struct):
    answer: str = ""


class _Message(msgspec.Struct):
    message: str = ""


class SearchedText(msgspec.Struct):
    """What a search looks at in the record of a trial; its transcript is not decoded."""

    outcome: _Answer | None = None
    fault: _Message | None = None
    scores: tuple[_Scored, ...] = ()

    @property
    def text(self) -> str:
        """The fault, or the answer."""
        if self.fault is not None:
            return self.fault.message
        return self.outcome.answer if self.outcome else ""

    @property
    def why(self) -> str:
        """Why it did not get full marks, as the first scorer that says so explains it."""
        return next((s.explanation for s in self.scores if s.value < 1 and s.explanation), "")

    def is_marked_down_by(self, scorer: str) -> bool:
        """Whether this scorer gave less than full marks."""
        return any(score.scorer == scorer and score.value < 1 for score in self.scores)


@value_object
class MatrixCell:
    """What came of one task for one candidate."""

    mean: float | None
    scored: int
    passed: int
    faulted: int


@value_object
class MatrixRow:
    """A task with its results by candidate; `spread` is how far the candidates are apart on it."""

    task_id: str
    spread: float
    cells: Mapping[str, MatrixCell]


_RESULTS = {
    "passed": "passed = 1",
    "failed": "passed = 0",
    "partial": "score > 0 AND score < 1",
    "unscored": "score IS NULL",
}


class LedgerQueries:
    """Asks one ledger, which may be written meanwhile."""

    def __init__(self, ledger: SqliteLedger) -> None:
        self._ledger = ledger

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._ledger._reading_attempts() as db:  # noqa: SLF001 -- the reader's own connection
            yield db

    def progress(self) -> list[CandidateProgress]:
        """Return how far each candidate has come, in the order of the plan."""
        query = f"""
        SELECT candidate_id, status, count(*), count(score), coalesce(sum(passed), 0),
          sum(cost_usd), coalesce(sum(input_tokens), 0) + coalesce(sum(output_tokens), 0)
        FROM {_COUNTED} GROUP BY candidate, status ORDER BY candidate"""  # noqa: S608
        with self._reading() as db:
            rows = db.execute(query).fetchall()
        means = self._ledger.mean_scores()
        by_candidate: dict[str, list[Sequence[Any]]] = {}
        statuses: dict[str, dict[str, int]] = {}
        for candidate, status, many, *figures in rows:
            statuses.setdefault(candidate, {})[status] = many
            by_candidate.setdefault(candidate, []).append(figures)
        return [
            _candidate_progress(name, statuses[name], figures, means.get(name))
            for name, figures in by_candidate.items()
        ]

    def ended(self) -> int:
        """Return how many planned trials have a record."""
        with self._reading() as db:
            row = db.execute(_ENDED_OF_ALL).fetchone()
            row = row or db.execute(f"SELECT count(*) FROM {_COUNTED}").fetchone()  # noqa: S608
        return int(row[0])

    def time_s(self, now: float | None = None) -> float | None:
        """Return how long the run was at work, all sessions together; *now* is when one that goes on is looked at."""
        with self._reading() as db:
            sessions = db.execute(
                "SELECT started_at, ended_at FROM session ORDER BY row"
            ).fetchall()
            if not sessions:
                return None
            began = [datetime.fromisoformat(started).timestamp() for started, _ in sessions]
            total = 0.0
            for number, (_, ended) in enumerate(sessions):
                is_last = number == len(sessions) - 1
                if ended is not None:
                    end = datetime.fromisoformat(ended).timestamp()
                elif is_last and now is not None:
                    end = now
                else:  # it was killed: its last trial is when it was seen alive
                    before = math.inf if is_last else began[number + 1]
                    query = "SELECT max(started_at + elapsed_s) FROM attempt WHERE started_at < ?"
                    end = db.execute(query, (before,)).fetchone()[0] or began[number]
                total += max(end - began[number], 0.0)
        return total

    def count(self, which: TrialQuery) -> int:
        """Return how many trials there are of those that *which* asks for."""
        where, values = _where(which)
        with self._reading() as db:
            query = f"SELECT count(*) FROM {_COUNTED} {where}"  # noqa: S608 -- values are bound
            return int(db.execute(query, values).fetchone()[0])

    def trials(
        self, which: TrialQuery, *, limit: int, after: int | None = None
    ) -> list[TrialEntry]:
        """Return a page of the trials that *which* asks for: in the order of the plan, *after* one of them."""
        where, values = _where(which, after)
        query = f"SELECT {_LINE} FROM {_COUNTED} {where} ORDER BY trial LIMIT ?"  # noqa: S608 -- values are bound
        with self._reading() as db:
            return [_entry(row) for row in db.execute(query, (*values, limit))]

    def trials_said(
        self, which: TrialQuery, *, limit: int, within_s: float, after: int | None = None
    ) -> list[tuple[TrialEntry, SearchedText | None]]:
        """Return the same page of trials with what was said in each; None for what takes more CPU than that."""
        where, values = _where(which, after)
        query = f"SELECT {_LINE}, blob, rest FROM {_COUNTED} {where} ORDER BY trial LIMIT ?"  # noqa: S608 -- values are bound
        with self._reading() as db:
            rows = db.execute(query, (*values, limit)).fetchall()
        until = thread_time() + within_s
        return [
            self._said(row) if thread_time() < until else (_entry(row[:-2]), None) for row in rows
        ]

    def _said(self, row: Sequence[Any]) -> tuple[TrialEntry, SearchedText]:
        *columns, blob, rest = row
        entry = _entry(columns)
        said = self._ledger._decoded((*_names(entry), blob, rest), SearchedText)  # noqa: SLF001 -- the reader's own records
        return entry, said if said is not None else SearchedText()

    def scan(
        self,
        which: TrialQuery,
        is_wanted: Callable[[TrialEntry, SearchedText], bool],
        *,
        limit: int,
        within_s: float,
        after: int | None = None,
        before: int | None = None,
    ) -> Scanned:
        """Look into the records of the trials that *which* asks for, for so long or until *limit* are found.

        It begins *after* a trial and goes on, or *before* one and goes back.
        """
        where, values = _where(which, after, before)
        order = "trial" if before is None else "trial DESC"
        query = f"SELECT {_LINE}, blob, rest FROM {_COUNTED} {where} ORDER BY {order}"  # noqa: S608 -- values are bound
        entries: list[TrialEntry] = []
        found: list[SearchedText] = []
        looked_at, until = 0, monotonic() + within_s
        with self._reading() as db:
            for row in db.execute(query, values):
                looked_at += 1
                entry, said = self._said(row)
                if is_wanted(entry, said):
                    entries.append(entry)
                    found.append(said)
                if len(entries) == limit or monotonic() > until:
                    return Scanned(
                        entries=entries, said=found, looked_at=looked_at, after=entry.key
                    )
        return Scanned(entries=entries, said=found, looked_at=looked_at, after=None)

    def trials_of(self, *task_ids: str) -> list[TrialEntry]:
        """Return the trials of tasks, candidate by candidate."""
        query = f"SELECT {_LINE} FROM {_COUNTED_OF_TASKS} ORDER BY candidate, rollout"  # noqa: S608 -- values are bound
        with self._reading() as db:
            rows = list(rows_named(db, task_ids))
            found = db.execute(query, {"tasks": json.dumps(rows)})
            return [_entry(row) for row in found]

    def beside(self, which: TrialQuery, key: int) -> tuple[TrialEntry | None, TrialEntry | None]:
        """Return the trials before and after the one with this *key*, among those that *which* asks for."""
        where, values = _where(which)
        found: list[TrialEntry | None] = []
        with self._reading() as db:
            for sign, order in (("<", "trial DESC"), (">", "trial")):
                near = f"{where or 'WHERE 1'} AND trial {sign} ? ORDER BY {order} LIMIT 1"
                row = db.execute(
                    f"SELECT {_LINE} FROM {_COUNTED} {near}",  # noqa: S608 -- values are bound
                    (*values, key),
                ).fetchone()
                found.append(None if row is None else _entry(row))
        return found[0], found[1]

    def faults(self) -> list[tuple[str, str, int]]:
        """Return how many trials of each candidate broke at each boundary, the most first."""
        query = f"""SELECT candidate_id, fault, count(*) FROM {_COUNTED} WHERE status = 'faulted'
        GROUP BY candidate, fault ORDER BY 3 DESC LIMIT 200"""  # noqa: S608
        with self._reading() as db:
            return [(name, fault or "unknown", many) for name, fault, many in db.execute(query)]

    def categories(self, *, limit: int = 500) -> list[str]:
        """Return the categories of the tasks, by name."""
        query = "SELECT DISTINCT category FROM task WHERE category IS NOT NULL ORDER BY 1 LIMIT ?"
        with self._reading() as db:
            return [name for (name,) in db.execute(query, (limit,))]

    def means(self) -> dict[str, dict[str, MatrixCell]]:
        """Return what came of each task, by candidate."""
        query = f"""
        SELECT task_id, candidate_id, avg(score), count(score), coalesce(sum(passed), 0),
          sum(status = 'faulted')
        FROM {_COUNTED} GROUP BY task, candidate ORDER BY task, candidate"""  # noqa: S608
        by_candidate: dict[str, dict[str, MatrixCell]] = {}
        with self._reading() as db:
            for task, candidate, mean, scored, passed, faulted in db.execute(query):
                cell = MatrixCell(mean=mean, scored=scored, passed=passed, faulted=faulted)
                by_candidate.setdefault(candidate, {})[task] = cell
        return by_candidate

    def matrix(
        self, *, limit: int, skip: int = 0, only_differing: bool = False
    ) -> tuple[list[MatrixRow], int]:
        """Return a page of tasks with their results, those that tell candidates apart first, and how many there are."""
        cells = f"""
        SELECT task, task_id, candidate_id, avg(score) AS mean, count(score) AS scored,
          coalesce(sum(passed), 0) AS passed, sum(status = 'faulted') AS faulted
        FROM {_COUNTED} GROUP BY task, candidate"""  # noqa: S608
        differing = "HAVING spread > 0" if only_differing else ""
        tasks = f"""
        SELECT task, coalesce(max(mean) - min(mean), 0) AS spread FROM cells
        GROUP BY task {differing}"""  # noqa: S608
        query = f"""
        WITH cells AS MATERIALIZED ({cells}), tasks AS MATERIALIZED ({tasks}),
        page AS (SELECT * FROM tasks ORDER BY spread DESC, task LIMIT ? OFFSET ?)
        SELECT page.task, page.spread, (SELECT count(*) FROM tasks),
          task_id, candidate_id, mean, scored, passed, faulted
        FROM page JOIN cells ON cells.task = page.task
        ORDER BY page.spread DESC, page.task"""  # noqa: S608
        rows: dict[int, tuple[str, float, dict[str, MatrixCell]]] = {}
        many = 0
        with self._reading() as db:
            for task, spread, many_, task_id, candidate, *figures in db.execute(
                query, (limit, skip)
            ):
                many = many_
                mean, scored, passed, faulted = figures
                cell = MatrixCell(mean=mean, scored=scored, passed=passed, faulted=faulted)
                rows.setdefault(task, (task_id, spread, {}))[2][candidate] = cell
        return [MatrixRow(task_id=t, spread=s, cells=c) for t, s, c in rows.values()], many

    def distribution(self, measure: str, *, bins: int = 30) -> tuple[float, dict[str, list[int]]]:
        """Return the width of a bin, and by candidate how many trials are in each; the last bin is open.

        The axis ends at four times the mean: what is beyond it is in the last bin.
        """
        if measure not in MEASURES:
            raise ValueError(f"no measure {measure!r}; there are: {', '.join(MEASURES)}")
        with self._reading() as db:
            mean = db.execute(f"SELECT avg({measure}) FROM {_COUNTED}").fetchone()[0]  # noqa: S608
            if not mean:
                return 0.0, {}
            width = 4 * mean / bins
            query = f"""
            SELECT candidate_id, min(CAST({measure} / ? AS INTEGER), ?) AS bin, count(*)
            FROM {_COUNTED} WHERE {measure} IS NOT NULL
            GROUP BY candidate, bin ORDER BY candidate"""  # noqa: S608 -- a measure of ours
            counts: dict[str, list[int]] = {}
            for candidate, place, many in db.execute(query, (width, bins - 1)):
                counts.setdefault(candidate, [0] * bins)[max(place, 0)] += many
        return width, counts


def _candidate_progress(
    name: str,
    statuses: Mapping[str, int],
    figures: Sequence[Sequence[Any]],
    mean: float | None,
) -> CandidateProgress:
    costs = [row[2] for row in figures if row[2] is not None]
    return CandidateProgress(
        candidate=name,
        statuses=statuses,
        mean_score=mean,
        scored=int(sum(row[0] for row in figures)),
        passed=int(sum(row[1] for row in figures)),
        cost_usd=sum(costs) if costs else None,
        tokens=int(sum(row[3] for row in figures)),
    )


_PASSED = 7  # its place in a line


def _entry(row: Sequence[Any]) -> TrialEntry:
    values = list(row)
    if values[_PASSED] is not None:
        values[_PASSED] = bool(values[_PASSED])
    return TrialEntry(*values)


def _names(entry: TrialEntry) -> tuple[str, str | None, str, int]:
    return entry.task_id, entry.category, entry.candidate_id, entry.rollout


def _where(
    which: TrialQuery, after: int | None = None, before: int | None = None
) -> tuple[str, tuple[Any, ...]]:
    """Return the condition for *which*, of trials *after* or *before* one, and the values that it binds."""
    tasks = None if which.tasks is None else json.dumps(list(which.tasks))
    keys = None if which.keys is None else json.dumps(list(which.keys))
    without = json.dumps(list(which.without)) if which.without else None
    parts: list[str] = []
    values: list[Any] = []
    for column, value in (
        ("trial > ?", after), ("trial < ?", before), ("candidate_id = ?", which.candidate or None),
        ("category = ?", which.category or None), ("status = ?", which.status or None),
        ("fault = ?", which.fault or None), ("score >= ?", which.least), ("score <= ?", which.most),
        ("instr(lower(task_id), lower(?)) > 0", which.task or None),
        ("task_id IN (SELECT value FROM json_each(?))", tasks),
        ("trial IN (SELECT value FROM json_each(?))", keys),
        ("trial NOT IN (SELECT value FROM json_each(?))", without),
    ):  # fmt: skip
        if value is not None:
            parts.append(column)
            values.append(value)
    if which.result in _RESULTS:
        parts.append(_RESULTS[which.result])
    return (f"WHERE {' AND '.join(parts)}" if parts else ""), tuple(values)
