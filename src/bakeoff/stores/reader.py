"""The ledger, read: while the run goes on, or long after."""

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from bakeoff.core.budget import Bill
from bakeoff.core.candidate import Candidate, Conditions
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Block, Plan
from bakeoff.core.record import Attempt, Status, TrialRecord, TrialRow
from bakeoff.core.task import Task
from bakeoff.stores.schema import VERSION, unpack
from bakeoff.stores.sqlite import BLOBS, LEDGER

# Of all that is recorded, what the plan of today asks for; an earlier plan may have asked for more.
_PLANNED_ATTEMPTS = """
FROM attempt a
JOIN task t ON t.row = a.task
JOIN candidate c ON c.row = a.candidate
WHERE EXISTS (
  SELECT 1 FROM block b
  JOIN planned_task bt ON bt.block = b.block AND bt.task = a.task
  JOIN planned_candidate bc ON bc.block = b.block AND bc.candidate = a.candidate
  WHERE a.rollout < b.rollouts)
"""
_ROW = (
    "SELECT t.id, t.category, c.id, a.rollout, a.status, a.score, a.passed, a.fault_boundary,"
    " a.fault_transient, a.number, a.elapsed_s, a.model_s, a.first_token_s, a.requests,"
    f" a.input_tokens, a.output_tokens, a.cost_usd, a.load_s, a.flags {_PLANNED_ATTEMPTS} AND NOT a.superseded"
    " ORDER BY a.rollout, a.task, a.candidate"
)
# every attempt ever made here, whatever counts today: what was billed stays billed
_BILLED = (
    "SELECT sum(billed_usd), coalesce(sum(billed_tokens), 0), coalesce(sum(unsure_usd), 0.0),"
    " coalesce(sum(unsure_tokens), 0), coalesce(sum(unpriced), 0) FROM attempt"
)
_RECORD = f"SELECT t.id, t.category, c.id, a.rollout, a.blob, a.body {_PLANNED_ATTEMPTS}"

_PART = """
AND (:tasks IS NULL OR t.id IN (SELECT value FROM json_each(:tasks)))
AND (:candidate IS NULL OR c.id = :candidate)
AND (:rollouts IS NULL OR a.rollout < :rollouts)
"""


@dataclass(frozen=True, kw_only=True)
class Seat:
    """A candidate under its conditions, as the ledger keeps it."""

    candidate: Candidate
    conditions: Conditions


class SqliteLedger:
    """Reads one run folder; several may read while one writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / LEDGER
        self._held: sqlite3.Connection | None = None
        if not self._path.is_file():
            raise UsageError(f"{folder} holds no {LEDGER}: it is not the folder of a run")

    @property
    def begun(self) -> bool:
        """Whether anything was ever planned here: a run may be killed before that."""
        try:
            with closing(sqlite3.connect(self._uri(), uri=True)) as db:
                return bool(db.execute("PRAGMA user_version").fetchone()[0])
        except sqlite3.Error:
            return True  # damaged, which is not empty

    def planned(self) -> Plan:
        """Return the plan of the run, whole."""
        with self._reading() as db:
            tasks = {
                row: unpack(body, Task) for row, body in db.execute("SELECT row, body FROM task")
            }
            seats = {
                row: unpack(body, Seat)
                for row, body in db.execute("SELECT row, body FROM candidate")
            }
            blocks = []
            conditions = Conditions()
            for number, rollouts in db.execute("SELECT block, rollouts FROM block ORDER BY block"):
                members = [seats[r] for r in _members(db, "candidate", number)]
                if members:
                    conditions = members[0].conditions
                blocks.append(
                    Block(
                        tasks=tuple(tasks[r] for r in _members(db, "task", number)),
                        candidates=tuple(s.candidate for s in members),
                        rollouts=rollouts,
                    )
                )
        return Plan(blocks=tuple(blocks), conditions=conditions)

    def known(self) -> tuple[dict[str, Task], dict[str, Seat]]:
        """Return every task and every candidate ever planned here, the newest of each id."""
        with self._reading() as db:
            tasks = (unpack(b, Task) for (b,) in db.execute("SELECT body FROM task ORDER BY row"))
            seats = (
                unpack(b, Seat) for (b,) in db.execute("SELECT body FROM candidate ORDER BY row")
            )
            return {t.id: t for t in tasks}, {s.candidate.id: s for s in seats}

    def finished(self) -> int:
        """Return how many trials of the plan a resume would leave alone."""
        final = tuple(status.value for status in Status if status.final)
        with self._reading() as db:
            query = (
                f"SELECT count(*) {_PLANNED_ATTEMPTS} AND NOT a.superseded AND a.status IN (?, ?)"
            )
            (count,) = db.execute(query, final).fetchone()
            return int(count)

    def answered(self) -> int:
        """Return how many recorded trials have an outcome that could be scored again."""
        return sum(1 for record in self.records() if record.attempt.scorable)

    def rows(self) -> Iterator[TrialRow]:
        """Yield each recorded trial without its body."""
        with self._reading() as db:
            for row in db.execute(_ROW):
                yield TrialRow(*row)

    def records(
        self,
        *,
        tasks: Collection[str] | None = None,
        candidate: str | None = None,
        rollouts: int | None = None,
    ) -> Iterator[TrialRecord]:
        """Yield each recorded trial with the attempt that counts, or just those of a part.

        Those of chosen *tasks* come task by task, all others rollout by rollout.
        """
        part = {
            "tasks": None if tasks is None else json.dumps(list(tasks)),
            "candidate": candidate,
            "rollouts": rollouts,
        }
        order = (
            "a.rollout, a.task, a.candidate" if tasks is None else "a.task, a.candidate, a.rollout"
        )
        with self._reading() as db:
            for row in db.execute(f"{_RECORD} AND NOT a.superseded {_PART} ORDER BY {order}", part):
                yield self._record(row)

    def attempts(self, name: str) -> Sequence[TrialRecord]:
        """Return all attempts of the trials called *name*: in full, or only by task id."""
        with self._reading() as db:
            found = db.execute(
                f"{_RECORD} AND (t.id = :name OR t.id || '@' || c.id || '#' || a.rollout = :name"
                " OR t.id || '@' || c.id = :name) ORDER BY a.rollout, a.candidate, a.number",
                {"name": name},
            )
            return [self._record(row) for row in found]

    def billed(self) -> Bill:
        """Return what the run was billed in all: every attempt, with its roles."""
        with self._reading() as db:
            cost, tokens, unsure_usd, unsure_tokens, unpriced = db.execute(_BILLED).fetchone()
        return Bill(
            cost_usd=cost,
            tokens=tokens,
            unsure_usd=unsure_usd,
            unsure_tokens=unsure_tokens,
            unpriced=unpriced,
        )

    def _record(
        self, row: tuple[str, str | None, str, int, str | None, bytes | None]
    ) -> TrialRecord:
        task_id, category, candidate_id, rollout, blob, body = row
        if body is None:
            body = self._blob(str(blob))
        return TrialRecord(
            task_id=task_id,
            category=category,
            candidate_id=candidate_id,
            rollout=rollout,
            attempt=unpack(body, Attempt),
        )

    def _blob(self, name: str) -> bytes:
        path = self._folder / BLOBS / name
        try:
            return path.read_bytes()
        except OSError as error:
            raise UsageError(
                f"{path} cannot be read: {error.strerror}; a part of the run is missing there"
            ) from error

    @contextmanager
    def at_one_moment(self) -> Iterator[None]:
        """Read the ledger as it is now until the end of the block, whatever is written meanwhile."""
        with closing(self._open()) as db:
            db.execute("BEGIN")
            db.execute("SELECT 1 FROM meta LIMIT 1").fetchone()
            self._held = db
            try:
                yield
            finally:
                self._held = None

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        if self._held is not None:
            yield self._held
            return
        with closing(self._open()) as db:
            yield db

    def _uri(self) -> str:
        return f"file:{quote(str(self._path.resolve()))}?mode=ro"

    def _open(self) -> sqlite3.Connection:
        try:
            db = sqlite3.connect(self._uri(), uri=True)
            found = db.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.Error as error:
            raise UsageError(f"{self._path} cannot be read: {error}") from error
        if found == 0:
            db.close()
            raise UsageError(
                f"{self._path} is empty: the run was cut off before it had begun; start it again"
            )
        if found != VERSION:
            db.close()
            raise UsageError(
                f"{self._path} is in ledger format {found}; this version of bakeoff reads {VERSION}"
            )
        # by task and by candidate, so that the plan can be looked up at each attempt
        db.execute("CREATE TEMP TABLE planned_task AS SELECT block, task FROM main.block_task")
        db.execute("CREATE UNIQUE INDEX temp.by_task ON planned_task (task, block)")
        db.execute(
            "CREATE TEMP TABLE planned_candidate AS SELECT block, candidate FROM main.block_candidate"
        )
        db.execute("CREATE UNIQUE INDEX temp.by_candidate ON planned_candidate (candidate, block)")
        return db


def _members(db: sqlite3.Connection, kind: str, block: int) -> list[int]:
    query = f"SELECT {kind} FROM block_{kind} WHERE block = ? ORDER BY position"  # noqa: S608
    return [row for (row,) in db.execute(query, (block,))]
