"""A recorded trial as plain data in the rollouts format: results, metrics, evaluation."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from bakeoff.core.candidate import Candidate
from bakeoff.core.plan import Trial
from bakeoff.core.record import Attempt, Score, Status, pass_rule
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.core.workspace import repository_patch
from bakeoff.stats.by_task import weighted_mean

LAUNCHED = "launched"
STATUSES = ("passed", "failed", "limited", "faulted", "cancelled", LAUNCHED)
UNVERIFIED = " (unverified)"  # behind the name of a metric that the solution may have told
_NO_SCORE = Score(scorer="rubrics", value=0.0)


@dataclass(frozen=True, kw_only=True)
class RunOfTask:
    """One trial under its run id; without an attempt it is only launched."""

    run_id: str
    run_dir: str
    trial: Trial
    attempt: Attempt | None = None

    @property
    def task(self) -> Task:
        """What was to be solved."""
        return self.trial.task

    @property
    def task_dir(self) -> str:
        """The prepared folder, as the config names it."""
        return str(self.task.metadata.get("task_dir", self.task.id))

    @property
    def model(self) -> str:
        """The model as a person names it."""
        return model_name(self.trial.candidate)

    @property
    def status(self) -> str:
        """The status of the run: launched, passed, failed, limited, faulted or cancelled."""
        return LAUNCHED if self.attempt is None else status_of(self.attempt)

    @property
    def launch_rc(self) -> int:
        """0 where it could be run."""
        return {"faulted": 1, "cancelled": 130}.get(self.status, 0)

    @property
    def graded(self) -> Score | None:
        """The verdict with its rubrics; None where there is none."""
        scores = self.attempt.scores if self.attempt else ()
        return next((s for s in scores if "rubrics" in s.details), scores[0] if scores else None)

    @property
    def patch(self) -> str | None:
        """What the agent changed, from the top of the repository; None where nothing was taken."""
        whole = self.whole_patch
        return None if whole is None else repository_patch(self.task.workspace, whole).inside

    @property
    def whole_patch(self) -> str | None:
        """What the agent changed, from the root of the box; None where nothing was taken."""
        outcome = self.attempt.outcome if self.attempt else None
        return outcome.change.patch if outcome and outcome.change else None

    @property
    def rubrics(self) -> Mapping[str, Mapping[str, Json]]:
        """Each rubric of the verdict by its id."""
        return _entries(self._details("rubrics"))

    @property
    def test_results(self) -> Mapping[str, Mapping[str, Json]]:
        """Each test script of the verdict by its path."""
        return _entries(self._details("test_results"))

    @property
    def custom_metrics(self) -> Mapping[str, Json]:
        """What the task's own evaluation measured."""
        return self._details("custom_metrics")

    @property
    def unverified_metrics(self) -> tuple[str, ...]:
        """The custom metrics that the solution itself may have printed."""
        names = (self.graded or _NO_SCORE).details.get("custom_metrics_unverified")
        return tuple(map(str, names)) if isinstance(names, list) else ()

    def _details(self, name: str) -> Mapping[str, Json]:
        details = (self.graded or _NO_SCORE).details.get(name)
        return details if isinstance(details, Mapping) else {}

    @property
    def unit(self) -> float | None:
        """The share of the score that tests gave."""
        return self._share(tested=True)

    @property
    def lm(self) -> float | None:
        """The share of the score that a judge gave."""
        return self._share(tested=False)

    def _share(self, *, tested: bool) -> float | None:
        return weighted_mean(
            (as_number(entry.get("score")), as_number(entry.get("weight")) or 0.0)
            for entry in self.rubrics.values()
            if bool(entry.get("test_count")) is tested
        )

    @property
    def tokens(self) -> int | None:
        """Tokens in and out; None where the endpoint did not tell."""
        usage = self.attempt.spent.usage if self.attempt else None
        if usage is None or usage.input_tokens is None or usage.output_tokens is None:
            return None
        return usage.input_tokens + usage.output_tokens

    @property
    def tool_calls(self) -> int | None:
        """How often the agent called a tool, as far as its model asked for it."""
        outcome = self.attempt.outcome if self.attempt else None
        if outcome is None or not outcome.transcript:
            return None
        return sum(len(message.tool_calls) for message in outcome.transcript)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutLine:
    """A run in one line of a table."""

    task: str
    candidate: str
    run_id: str
    status: str
    score: float | None
    unit: float | None
    lm: float | None
    tokens: int | None
    tool_calls: int | None
    custom_metrics: Mapping[str, Json]
    unverified_metrics: tuple[str, ...] = ()


def line_of(run: RunOfTask) -> RolloutLine:
    """Return *run* without its bulk."""
    return RolloutLine(
        task=run.task.id,
        candidate=run.trial.candidate.id,
        run_id=run.run_id,
        status=run.status,
        score=run.attempt.score if run.attempt else None,
        unit=run.unit,
        lm=run.lm,
        tokens=run.tokens,
        tool_calls=run.tool_calls,
        custom_metrics=run.custom_metrics,
        unverified_metrics=run.unverified_metrics,
    )


def status_of(attempt: Attempt) -> str:
    """Return how an attempt went, in one word."""
    if attempt.status is not Status.COMPLETED:
        return attempt.status.value
    return "passed" if attempt.passed else "failed"


def as_number(value: Json) -> float | None:
    """Return a detail of a verdict as a number, where it is one."""
    return float(value) if isinstance(value, int | float) else None


def _entries(details: Mapping[str, Json]) -> dict[str, Mapping[str, Json]]:
    return {name: entry for name, entry in details.items() if isinstance(entry, Mapping)}


def model_name(candidate: Candidate) -> str:
    """Return the model of *candidate* as a person names it."""
    return candidate.model.label or candidate.model.full_name


def manifest_entry(run: RunOfTask) -> dict[str, Json]:
    """Return what the manifest says of a run."""
    attempt = run.attempt
    entry: dict[str, Json] = {
        "task_dir": run.task_dir,
        "run_dir": run.run_dir,
        "run_id": run.run_id,
        "status": run.status,
        "launch_rc": run.launch_rc,
        "task_id": run.task.id,
        "model": run.model,
        "agent": run.trial.candidate.agent.name,
        "candidate": run.trial.candidate.id,
        "rollout": run.trial.rollout,
        "score": attempt.score if attempt else None,
        "trial": run.trial.name,
    }
    if attempt is not None:
        entry["attempts"] = attempt.number
        entry["started_at"] = _moment(attempt.started_at)
        entry["seconds"] = attempt.elapsed_s
    if attempt is not None and attempt.fault is not None:
        entry["fault"] = {"boundary": attempt.fault.boundary, "message": attempt.fault.message}
    return entry


def metadata(run: RunOfTask, *, rollout_dir: str, config: str | None) -> dict[str, Json]:
    """Return what is known before the run: task, model, settings."""
    agent, about = run.trial.candidate.agent, run.task.metadata
    return {
        "run_id": run.run_id,
        "rollout_dir": rollout_dir,
        "config": config,
        "task_id": run.task.id,
        "task_dir": run.task_dir,
        "title": run.task.name,
        "tags": about.get("tags", []),
        "overrides": about.get("overrides", False),
        "model": run.model,
        "agent": {"name": agent.name, "version": agent.version, "settings": dict(agent.settings)},
        "environment_variables": dict(agent.environment),
        "rollout": run.trial.rollout,
        "trial": run.trial.name,
    }


def repo_info(run: RunOfTask) -> dict[str, Json]:
    """Return the origin of the files that the agent gets."""
    repo = run.task.metadata.get("repo")
    return dict(repo) if isinstance(repo, Mapping) else {}


def results(run: RunOfTask) -> dict[str, Json]:
    """Return the results of a run."""
    return {**manifest_entry(run), "metrics": metrics(run), "agent_metrics": agent_metrics(run)}


def evaluation_results(run: RunOfTask) -> dict[str, Json]:
    """Return the verdict of a run in full; *run* must have one."""
    attempt, score = run.attempt, run.graded or _NO_SCORE
    total = attempt.score if attempt else None
    results: dict[str, Json] = {
        "task_id": run.task.id,
        "run_id": run.run_id,
        "total_score": total,
        "evaluation": {
            "rubrics": {name: dict(entry) for name, entry in run.rubrics.items()},
            "total_score": total,
            "max_score": 1.0,
        },
        "test_results": {path: dict(entry) for path, entry in run.test_results.items()},
        "diff_lines": None if run.patch is None else len(run.patch.splitlines()),
        "standard_metrics": metrics(run),
        "custom_metrics": dict(run.custom_metrics),
        "agent_metrics": agent_metrics(run),
    }
    if run.unverified_metrics:
        results["custom_metrics_unverified"] = list(run.unverified_metrics)
    judged = {n: dict(e) for n, e in run.rubrics.items() if not e.get("test_count")}
    if judged:
        results["lm_evaluation"] = _lm_evaluation(run, judged)
    if score.explanation:
        results["explanation"] = score.explanation
    return results


def _lm_evaluation(run: RunOfTask, judged: Mapping[str, Mapping[str, Json]]) -> dict[str, Json]:
    """Return the judge's verdict; readers of the format look for the last two keys, and for numbers."""
    evaluation: dict[str, Json] = {
        "score": run.lm,
        "rubrics": {n: dict(e) for n, e in judged.items()},
    }
    if run.lm is not None:
        evaluation["weighted_score"] = run.lm
        evaluation["rubric_scores"] = [
            {
                "rubric_id": name,
                "score": entry["score"],
                "weight": entry.get("weight"),
                "reasoning": entry.get("explanation") or "",
            }
            for name, entry in judged.items()
            if entry.get("score") is not None
        ]
    return evaluation


def metrics(run: RunOfTask) -> dict[str, Json]:
    """Return the standard metrics of a run."""
    attempt = run.attempt
    change = attempt.outcome.change if attempt and attempt.outcome else None
    tests = run.test_results.values()
    return {
        "status": run.status,
        "passed": attempt.passed if attempt else None,
        "pass_rule": pass_rule([run.task]),
        "unit_score": run.unit,
        "lm_score": run.lm,
        "tests": len(tests),
        "tests_passed": sum(1 for test in tests if test.get("success")),
        "files_changed": change.files if change else None,
        "lines_added": change.added if change else None,
        "lines_removed": change.removed if change else None,
        "seconds": dict(attempt.phases) if attempt else {},
    }


def agent_metrics(run: RunOfTask) -> dict[str, Json]:
    """Return the metrics of the agent."""
    attempt = run.attempt
    if attempt is None:
        return {}
    usage = attempt.spent.usage
    return {
        "tokens_total": run.tokens,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "tool_calls_total": run.tool_calls,
        "requests_total": attempt.spent.sent,
        "time_taken_seconds": attempt.phases.get("agent", attempt.elapsed_s),
        "money_spent_usd": usage.cost_usd,
        "interventions": attempt.outcome.interventions if attempt.outcome else 0,
        "stop_reason": attempt.outcome.stop_reason if attempt.outcome else None,
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
