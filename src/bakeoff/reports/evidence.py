"""What one rollout left behind, for a person to look at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bakeoff.core.record import Attempt, Score, TrialRecord
from bakeoff.core.task import Message
from bakeoff.stats.head_to_head import Verdict, verdict


@dataclass(frozen=True, kw_only=True)
class Check:
    """What one scorer said, and what its tests printed."""

    scorer: str
    value: float
    explanation: str | None = None
    output: str | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A rollout: what was said and changed, how it was checked, and why it is no whole success."""

    started_at: str
    error: str | None = None
    answer: str = ""
    patch: str | None = None
    left_out: tuple[str, ...] = ()
    transcript: tuple[Message, ...] = ()
    checks: tuple[Check, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)


def evidence_of(record: TrialRecord) -> Evidence:
    """Return what the attempt that counts left."""
    attempt, outcome = record.attempt, record.attempt.outcome
    change = outcome.change if outcome else None
    return Evidence(
        started_at=started_at(attempt),
        error=error_of(attempt),
        answer=outcome.answer if outcome else "",
        patch=change.patch if change else None,
        left_out=change.left_out if change else (),
        transcript=outcome.transcript if outcome else (),
        checks=tuple(_check(score) for score in attempt.scores),
        phases=attempt.phases,
    )


def started_at(attempt: Attempt) -> str:
    """Return when *attempt* began, in UTC."""
    return datetime.fromtimestamp(attempt.started_at, UTC).isoformat(timespec="seconds")


def _check(score: Score) -> Check:
    output = score.details.get("output")
    return Check(
        scorer=score.scorer,
        value=score.value,
        explanation=score.explanation,
        output=output if isinstance(output, str) else None,
    )


def error_of(attempt: Attempt) -> str | None:
    """Return why *attempt* is no success, or stopped at a limit; None where there is nothing to say."""
    found = verdict(attempt)
    if attempt.fault is not None:
        return f"{attempt.fault.boundary}: {attempt.fault.message}"
    if found.limited:
        reason = (attempt.outcome.stop_reason if attempt.outcome else None) or "a limit ran out"
        return f"{reason}; what was done by then passes the check" if found.solved else reason
    if found is Verdict.FAILED:
        told = [s.explanation for s in attempt.scores if s.explanation and s.value < 1]
        return "the check failed" + (f": {told[0]}" if told else "")
    return "it was stopped before it was done" if found is Verdict.CANCELLED else None
