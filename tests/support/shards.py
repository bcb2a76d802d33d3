"""Runs of shards, and what a merged run must have in common with a whole one."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import bakeoff
from bakeoff import Run

# what differs between two runs of the same: their names, and when and how long
_OF_THE_CLOCK = frozenset({
    "started_at", "elapsed_s", "model_s", "first_token_s", "load_s", "crc", "rest",
})  # fmt: skip
_PLAN_TABLES = (
    "task", "task_chunk", "lost_task", "candidate", "block", "block_task", "block_candidate",
)  # fmt: skip


def run_shards(source: Any, count: int, output: Path, **options: Any) -> list[Run]:
    """Run every shard of *source*."""
    return [
        bakeoff.run(source, shard=f"{index}/{count}", output=output, **options)
        for index in range(count)
    ]


def ledger_of(run: Run) -> dict[str, list[tuple[Any, ...]]]:
    """Everything in the ledger of *run* that is no id of a run and no time."""
    with closing(sqlite3.connect(run.folder / "ledger.sqlite")) as db:
        tables = {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in _PLAN_TABLES}
        for name in ("attempt", "earlier_attempt"):
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({name})")]
            kept = ", ".join(c for c in columns if c not in {*_OF_THE_CLOCK, "row"})
            tables[name] = db.execute(f"SELECT {kept} FROM {name}").fetchall()
        keys = ("plan_crc", "schema_crc")
        tables["meta"] = [
            db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone() for key in keys
        ]
        return tables


def timeless(data: Any) -> Any:
    """*data* of a report without ids of runs, times and what is computed from times."""
    if isinstance(data, Mapping):
        return {
            key: timeless(value)
            for key, value in data.items()
            if not any(part in key for part in ("_s", "seconds", "latency", "per_s", "run"))
        }
    if isinstance(data, Sequence) and not isinstance(data, str):
        return [timeless(value) for value in data]
    return data


def summary_of(run: Run) -> Any:
    """The summary of *run* as its file has it, without ids and times."""
    return timeless(json.loads((run.folder / "summary.json").read_bytes()))


def assert_same_run(merged: Run, whole: Run) -> None:
    """Fail where two runs are not the same but for their ids and times."""
    before, after = ledger_of(whole), ledger_of(merged)
    for name, rows in before.items():
        assert after[name] == rows, name
    assert summary_of(merged) == summary_of(whole)
    one, other = merged.manifest, whole.manifest
    assert (one.plan, one.planned, one.tasks) == (other.plan, other.planned, other.tasks)
    assert (one.candidates, one.conditions, one.cap) == (
        other.candidates,
        other.conditions,
        other.cap,
    )
    assert merged.plan == whole.plan
