"""The artifacts of a trial in a workspace as files: patch, transcript, logs and figures."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from bakeoff._lib import files
from bakeoff._lib.files import safe_name, write_atomic
from bakeoff._lib.redact import Redactor
from bakeoff.core.errors import LedgerError
from bakeoff.core.plan import Trial
from bakeoff.core.record import Attempt
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.core.workspace import repository_patch

ARTIFACTS = "artifacts"


def artifacts_folder(run: Path, trial: str, attempt: int) -> Path:
    """Return the folder with the artifacts of an attempt."""
    return run / ARTIFACTS / safe_name(trial) / str(attempt)


def write_artifacts(run: Path, trial: Trial, attempt: Attempt, redactor: Redactor) -> None:
    """Write the files of *attempt* into the folder of its *run*."""
    folder = artifacts_folder(run, trial.name, attempt.number)
    try:
        files.make_folder(folder)
        for name, text in files_of(trial.task, attempt):
            write_atomic(folder / name, redactor.text(text).encode("utf-8", "replace"))
    except OSError as error:
        raise LedgerError(
            f"{folder} cannot be written: {error.strerror}; the trials are kept: make room there, "
            "then resume the run"
        ) from error


def files_of(task: Task, attempt: Attempt) -> Iterator[tuple[str, str]]:
    """Yield the name and text of each artifact of *attempt*."""
    outcome = attempt.outcome
    if outcome is not None and outcome.change is not None:
        yield from patch_files(task, outcome.change.patch)
    if outcome is not None and outcome.transcript:
        lines = (msgspec.json.encode(message).decode() for message in outcome.transcript)
        yield "transcript.jsonl", "\n".join(lines) + "\n"
    if outcome is not None and outcome.log:
        yield "agent.log", outcome.log
    for score in attempt.scores:
        if isinstance(output := score.details.get("output"), str):
            yield f"{safe_name(score.label)}.log", output
    data = msgspec.json.encode(_figures(attempt))
    yield "attempt.json", msgspec.json.format(data, indent=2).decode() + "\n"


def patch_files(task: Task, patch: str) -> Iterator[tuple[str, str]]:
    """Yield a change as patch files: one for `git apply` in the repository, one for the rest if any."""
    parts = repository_patch(task.workspace, patch)
    yield "diff.patch", parts.inside
    if parts.outside:
        yield "outside_repository.patch", parts.outside


def _figures(attempt: Attempt) -> dict[str, Json]:
    """Return the figures of an attempt."""
    change = attempt.outcome.change if attempt.outcome else None
    usage = attempt.spent.usage
    return {
        "status": attempt.status.value,
        "score": attempt.score,
        "passed": attempt.passed,
        "fault": None if attempt.fault is None else attempt.fault.message,
        "seconds": {"total": attempt.elapsed_s, **attempt.phases},
        "files_changed": change.files if change else None,
        "lines_added": change.added if change else None,
        "lines_removed": change.removed if change else None,
        "left_out": list(change.left_out) if change else [],
        "prompts": attempt.spent.sent,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usage.cost_usd,
        "interventions": attempt.outcome.interventions if attempt.outcome else 0,
    }
