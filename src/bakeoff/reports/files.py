"""The summary file of a run, and the texts that several reports share: questions and answers."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bakeoff._lib.files import write_atomic
from bakeoff.core.errors import LedgerError
from bakeoff.core.record import TrialRecord, TrialRow
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.reports.wording.decision import answer
from bakeoff.stats.summary import Summary

if TYPE_CHECKING:
    from bakeoff.reports.wording.findings import Findings

SUMMARY = "summary.json"


def as_json(summary: Summary) -> dict[str, Json]:
    """Return *summary* as plain data; what is unknown is null."""
    data: dict[str, Json] = msgspec.to_builtins(summary)
    return {**data, "headline": msgspec.to_builtins(answer(summary))}


def write_summary(folder: Path, summary: Summary) -> None:
    """Write *summary* into *folder*."""
    text = msgspec.json.format(msgspec.json.encode(as_json(summary)), indent=2)
    try:
        write_atomic(folder / SUMMARY, text + b"\n")
    except OSError as error:
        raise LedgerError(
            f"{folder / SUMMARY} cannot be written: {error.strerror}; the trials are kept: "
            "make room there, then: bakeoff summarize"
        ) from error


def question(task: Task) -> str:
    """Return the prompt of *task*; several messages are prefixed with their roles."""
    if not task.messages:
        return task.prompt or ""
    if len(task.messages) == 1:
        return task.messages[0].described
    return "\n".join(f"{message.role}: {message.described}" for message in task.messages)


def expected(task: Task) -> str | None:
    """Return the target of *task* as text; None if it has none."""
    if task.target is None or isinstance(task.target, str):
        return task.target
    return msgspec.json.encode(task.target).decode()


def rows_with_answers(findings: "Findings") -> Iterator[tuple[TrialRow, str | None]]:
    """Yield each recorded trial with its answer; None if it has none or the report has no texts."""
    if not findings.with_text:
        yield from ((row, None) for row in findings.trials.rows())
        return
    records = findings.trials.records()  # in the same order; unreadable ones are skipped
    record = next(records, None)
    for row in findings.trials.rows():
        answer = None
        if record is not None and _is_of(record, row):
            answer = record.attempt.outcome.answer if record.attempt.outcome else None
            record = next(records, None)
        yield row, answer


def _is_of(record: TrialRecord, row: TrialRow) -> bool:
    return (record.task_id, record.candidate_id, record.rollout) == (
        row.task_id,
        row.candidate_id,
        row.rollout,
    )
