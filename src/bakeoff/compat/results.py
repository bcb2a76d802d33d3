"""What the `TestRunner` class hands out, and how a recorded attempt becomes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

from bakeoff._lib.clock import now
from bakeoff.core.plan import Trial
from bakeoff.core.record import Attempt, Score, Status
from bakeoff.core.values import Json


@dataclass
class TestResult:
    """Container for single test execution result.

    `success` says that the API call worked and gave an answer, not that the answer is right; the
    `scores` say that, where the test has scorers. A token count that the server did not tell is 0.
    `execution_time` is the time of the request that was answered, in seconds; where none was, the
    time until that was clear. A failed scorer leaves `success` True and says so in
    `error_message`. `time_to_first_token` is measured where the test has `stream: true`.
    """

    __test__: ClassVar[bool] = False  # not something for pytest to collect

    test_id: str
    test_name: str
    success: bool
    response_text: str
    execution_time: float
    prompt_tokens: int
    completion_tokens: int
    tokens_per_second: float
    error_message: str | None
    timestamp: str
    api_response: dict[str, Any]
    scores: list[dict[str, Any]] = field(default_factory=list)
    time_to_first_token: float | None = None
    model: str | None = None


@dataclass
class ExecutionProgress:
    """Container for execution progress information; times in seconds."""

    total_tests: int
    completed_tests: int
    successful_tests: int
    failed_tests: int
    current_test: str | None
    estimated_remaining_time: float
    average_execution_time: float


@dataclass
class APIConfiguration:
    """Container for API configuration; times in seconds."""

    endpoint: str
    model: str
    headers: dict[str, str] = field(repr=False)  # there may be a key in them
    timeout: float
    retry_attempts: int
    retry_delay: float


def result_of(trial: Trial, attempt: Attempt) -> TestResult:
    """Return what is recorded of *trial*."""
    task, outcome, spent = trial.task, attempt.outcome, attempt.spent
    error = _error(attempt)
    seconds = spent.model_s or attempt.elapsed_s
    tokens = spent.usage.output_tokens or 0
    return TestResult(
        test_id=task.id,
        test_name=task.name or task.id,
        success=error is None or _only_scoring_failed(attempt),
        response_text=outcome.answer if outcome else "",
        execution_time=seconds,
        prompt_tokens=spent.usage.input_tokens or 0,
        completion_tokens=tokens,
        tokens_per_second=tokens / seconds if seconds > 0 else 0.0,
        error_message=error,
        timestamp=datetime.fromtimestamp(attempt.started_at, UTC).isoformat(),
        api_response=_response(attempt),
        scores=[_score(score) for score in attempt.scores],
        time_to_first_token=spent.first_token_s,
        model=trial.candidate.model.name,
    )


def failed_result(test_id: str, name: str | None, message: str) -> TestResult:
    """Return the result of a test that could not even be started."""
    return TestResult(
        test_id=test_id,
        test_name=name or test_id,
        success=False,
        response_text="",
        execution_time=0.0,
        prompt_tokens=0,
        completion_tokens=0,
        tokens_per_second=0.0,
        error_message=message,
        timestamp=now().isoformat(),
        api_response={},
    )


def _only_scoring_failed(attempt: Attempt) -> bool:
    fault, outcome = attempt.fault, attempt.outcome
    return fault is not None and fault.boundary == "scorer" and bool(outcome and outcome.answer)


def _error(attempt: Attempt) -> str | None:
    if attempt.fault is not None:
        return attempt.fault.message
    outcome = attempt.outcome
    if outcome is None:
        return f"the test was {attempt.status}"
    if attempt.status is not Status.COMPLETED:
        return outcome.stop_reason or f"the test was {attempt.status}"
    if not outcome.answer:
        return f"the answer has no text (finish reason: {outcome.stop_reason})"
    return None


def _response(attempt: Attempt) -> dict[str, Json]:
    """Return the API's own JSON; what came in pieces or was not kept is put together again."""
    outcome, usage = attempt.outcome, attempt.spent.usage
    if outcome is None or not attempt.spent.requests:
        return {}
    if isinstance(outcome.raw, Mapping):
        return dict(outcome.raw)
    if outcome.raw is not None:
        return {"body": outcome.raw}
    message: dict[str, Json] = {"role": "assistant", "content": outcome.answer}
    if outcome.transcript and outcome.transcript[-1].reasoning:
        message["reasoning_content"] = outcome.transcript[-1].reasoning
    return {
        "model": outcome.model,
        "choices": [{"index": 0, "message": message, "finish_reason": outcome.stop_reason}],
        "usage": {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens},
    }


def _score(score: Score) -> dict[str, Json]:
    return {
        "scorer": score.scorer,
        "value": score.value,
        "weight": score.weight,
        "explanation": score.explanation,
        "details": dict(score.details),
    }
