"""The result types of the `TestRunner` class, the files of results, and the progress so far."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

from bakeoff._lib import files
from bakeoff._lib.clock import monotonic, now
from bakeoff._lib.digest import digest_bytes
from bakeoff._lib.files import digested_name, safe_name, write_atomic
from bakeoff._lib.redact import Redactor
from bakeoff._lib.sanitize import well_formed
from bakeoff.core.plan import Trial
from bakeoff.core.record import Attempt, Score, Status
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.frontends.test_runner.settings import TEMPLATE_FIELD, OutputSettings


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


def result_of(trial: Trial, attempt: Attempt) -> TestResult:
    """Return the result of *trial*."""
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
    """Return the API's own JSON, reassembled where it was streamed or not stored."""
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
        **({} if score.turn is None else {"turn": score.turn}),
    }


_RULE = "-" * 20
_LONGEST = 200  # bytes of a file name; file systems take 255


@dataclass(frozen=True, kw_only=True)
class ResultFiles:
    """One folder of results. `tasks` are the tests as they were asked, by id.

    `sends_prompt` tells of a test whether its `prompt` is sent, and not its messages.
    """

    folder: Path
    style: OutputSettings
    save_raw: bool
    tasks: Mapping[str, Task]
    sends_prompt: Callable[[Task], bool]
    redactor: Redactor = field(repr=False)

    def write(self, result: TestResult) -> None:
        """Write the files of one test; those of an earlier result of it are replaced."""
        name = safe_name(result.test_id)
        _put(self.folder / self._json_name(result), self._json(self._data(result)))
        _put(self.folder / f"{name}_completion.txt", self._completion(result))

    def write_batch(self, results: Sequence[TestResult]) -> Path:
        """Write all *results* into one new file and return where it is."""
        seconds = sum(result.execution_time for result in results)
        successful = sum(result.success for result in results)
        data = self._json(
            {
                "execution_summary": {
                    "total_tests": len(results),
                    "successful_tests": successful,
                    "failed_tests": len(results) - successful,
                    "total_execution_time": seconds,
                    "average_test_time": seconds / len(results) if results else 0.0,
                },
                "individual_results": [self._data(result) for result in results],
            }
        )
        path = self._claim(f"batch_results_{now().strftime('%Y%m%d_%H%M%S')}")
        try:
            _put(path, data)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def _claim(self, stem: str) -> Path:
        """Reserve a file name that no other process uses, even where two save in the same second."""
        files.make_folder(self.folder)
        number = 1
        while True:
            path = self.folder / f"{stem}{'' if number == 1 else f'_{number}'}.json"
            try:
                path.touch(exist_ok=False)
            except FileExistsError:
                number += 1
            else:
                return path

    def _json(self, data: Json) -> bytes:
        indent = 2 if self.style.pretty_print else None
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, indent=indent) + "\n"
        return self.redactor.data(well_formed(text).encode())

    def _data(self, result: TestResult) -> dict[str, Json]:
        data: dict[str, Json] = asdict(result)
        if not self.save_raw:
            data["api_response"] = {}
        task = self.tasks.get(result.test_id)
        if self.style.include_metadata and task is not None:
            parameters = dict(task.parameters)
            about = {"category": task.category, "parameters": parameters}
            data["metadata"] = {**about, **task.metadata}
        return data

    def _json_name(self, result: TestResult) -> str:
        template = self.style.filename_template
        if template is None:
            return f"{safe_name(result.test_id)}_result.json"
        fields = {
            "test_id": safe_name(result.test_id),
            "timestamp": safe_name(_moment(result.timestamp)),
            "model": safe_name(result.model or "none"),
            "category": self._category(result.test_id),
        }
        if self._alike[self._name_alone(result.test_id)] > 1:
            fields["test_id"] = digested_name(result.test_id)
        return fill_template(template, fields)

    @cached_property
    def _alike(self) -> Counter[str]:
        """How many tests have each name, but for time and model: `a/b_c` and `a_b/c` may share one."""
        return Counter(map(self._name_alone, self.tasks))

    def _name_alone(self, test_id: str) -> str:
        fields = {"test_id": safe_name(test_id), "category": self._category(test_id)}
        return fill_template(
            self.style.filename_template or "", {"timestamp": "", "model": "", **fields}
        )

    def _category(self, test_id: str) -> str:
        task = self.tasks.get(test_id)
        return safe_name((task.category if task else None) or "none")

    def _completion(self, result: TestResult) -> bytes:
        task = self.tasks.get(result.test_id)
        text = (
            f"PROMPT:\n{_RULE}\n{self._asked(task) if task else ''}\n\n"
            f"COMPLETION:\n{_RULE}\n{result.response_text}\n\n"
            f"METRICS:\n{_RULE}\n"
            f"Duration: {result.execution_time:.2f}s\n"
            f"Prompt Tokens: {result.prompt_tokens}\n"
            f"Completion Tokens: {result.completion_tokens}\n"
            f"Tokens per Second: {result.tokens_per_second:.2f} T/s\n"
        )
        return well_formed(self.redactor.text(text)).encode()

    def _asked(self, task: Task) -> str:
        if task.prompt is not None and self.sends_prompt(task):
            return task.prompt
        if len(task.messages) == 1:
            return task.messages[0].content
        return "\n\n".join(f"{m.role}: {m.content}" for m in task.messages)


def fill_template(template: str, fields: Mapping[str, str]) -> str:
    """Return *template* with its fields, which are plain names and so can be no paths."""
    name = TEMPLATE_FIELD.sub(lambda field_name: fields[field_name[1]], template)
    return "/".join(_short(part) for part in name.split("/"))


def _put(path: Path, data: bytes) -> None:
    files.make_folder(path.parent)
    write_atomic(path, data)


def _short(part: str) -> str:
    encoded = part.encode()
    if len(encoded) <= _LONGEST:
        return part
    kept = encoded[: _LONGEST - 20].decode(errors="ignore")
    return f"{kept}-{digest_bytes(encoded)[:8]}{Path(part).suffix[:10]}"


def _moment(timestamp: str) -> str:
    """Return *timestamp* for a file name, fine enough to tell two results of a second apart."""
    try:
        return datetime.fromisoformat(timestamp).strftime("%Y%m%d-%H%M%S-%f")
    except ValueError:
        return timestamp


class ProgressBoard:
    """Counts what is started and finished."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._clear(0)

    def begin(self, total: int) -> None:
        """Start counting an execution of *total* tests."""
        with self._lock:
            self._clear(total)

    def started(self, test_id: str) -> None:
        """Count a test that starts."""
        with self._lock:
            self._under_way[test_id] = None

    def ended(self, result: TestResult) -> None:
        """Count a test that is finished."""
        with self._lock:
            self._under_way.pop(result.test_id, None)
            self._completed += 1
            self._successful += result.success
            self._test_s += result.execution_time

    def end(self) -> None:
        """End the execution."""
        with self._lock:
            self._under_way.clear()
            self._over = True

    def now(self) -> ExecutionProgress:
        """Return the progress so far; `current_test` is the test that was started last."""
        with self._lock:
            done = self._completed
            left = 0 if self._over else self._total - done
            # by the clock on the wall: it knows of pauses and of tests that run side by side
            pace_s = (monotonic() - self._began) / done if done else 0.0
            return ExecutionProgress(
                total_tests=self._total,
                completed_tests=done,
                successful_tests=self._successful,
                failed_tests=done - self._successful,
                current_test=next(reversed(self._under_way), None),
                estimated_remaining_time=left * pace_s,
                average_execution_time=self._test_s / done if done else 0.0,
            )

    def _clear(self, total: int) -> None:
        self._total = total
        self._completed = 0
        self._successful = 0
        self._test_s = 0.0
        self._under_way: dict[str, None] = {}
        self._over = False
        self._began = monotonic()
