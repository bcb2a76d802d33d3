"""The scorer `rubrics`: weighted criteria, each decided by its tests or else by the judge."""

import json
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from bakeoff._lib.sanitize import well_formed
from bakeoff._lib.tracebacks import imports_module
from bakeoff.core.errors import ScorerError, UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.sandbox import Box, Command, GradingSpec
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.scorers.grading_box import (
    CheckError,
    check_change,
    is_inside,
    last_lines,
    open_grading_workspace,
    path_from_root,
    workspace_of,
)
from bakeoff.scorers.json_answer import NoJsonError, read_json
from bakeoff.scorers.judge import Judge
from bakeoff.scorers.testing.preflight import brought_mounts, check_programs, check_python
from bakeoff.scorers.testing.scorer import Runner, Tests

METRICS_FILE = "custom_metrics.json"
_KEY = "custom_metrics"
_PROGRAMS = {".sh": "bash", ".bash": "bash", ".js": "node", ".mjs": "node", ".rb": "ruby"}
_PROGRAMS |= {".pl": "perl", ".php": "php"}
_TEST = re.compile(r"^\s*(?:async\s+)?def\s+test\w*\s*\(", re.MULTILINE)


def check_for_script(
    path: str, content: str, *, time_s: float, environment: Mapping[str, str]
) -> Tests:
    """Return the scorer for the script at *path*, by its suffix and, for Python, its content.

    A file of test functions that is only executed would pass without running any of them.
    """
    if not is_python(path):
        return Tests(command=_command(path), time_s=time_s, environment=environment)
    runner: Runner = "pytest"
    if not _TEST.search(content):
        runner = "python"
    elif imports_module(content, "unittest") and not imports_module(content, "pytest"):
        runner = "unittest"
    return Tests(runner=runner, paths=(path,), time_s=time_s, environment=environment)


def is_python(path: str) -> bool:
    """Whether the script at *path* is a Python file."""
    return PurePosixPath(path).suffix == ".py"


def program_of(path: str) -> str | None:
    """Return the program that a box needs for the script at *path*; None for the shell."""
    program = _PROGRAMS.get(PurePosixPath(path).suffix)
    return None if program == "bash" else program


def _command(path: str) -> str:
    quoted = shlex.quote(f"./{path}")
    program = _PROGRAMS.get(PurePosixPath(path).suffix)
    if program == "bash":  # small images have only sh
        return f"if command -v bash >/dev/null; then exec bash {quoted}; else exec sh {quoted}; fi"
    return f"exec {program} {quoted}" if program else f"exec {quoted}"


def metrics_in(output: str) -> dict[str, Json]:
    """Return the custom metrics in *output*: the whole text as JSON, or single lines of it."""
    metrics: dict[str, Json] = {}
    for text in (output.strip(), *output.splitlines()):
        if not text.startswith("{") or _KEY not in text:
            continue
        try:
            value = read_json(well_formed(json.dumps(read_json(text), ensure_ascii=False)))
        except NoJsonError:
            continue
        custom = value.get(_KEY) if isinstance(value, dict) else None
        if isinstance(custom, dict):
            metrics |= custom
    return metrics


_MAX_SCRIPT_OUTPUT = 50_000


@dataclass(frozen=True, kw_only=True)
class Rubric:
    """One criterion; `evaluation_criteria` has more details for the judge."""

    id: str
    criterion: str = ""
    weight: float = 1.0
    evaluation_criteria: Json = None


@dataclass(frozen=True, kw_only=True)
class TestScript:
    """A test of a rubric: a file in the grading workspace, written there if `content` is given."""

    path: str
    rubric_id: str
    content: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Result:
    """The result of one script."""

    script: TestScript
    success: bool
    output: str
    duration_s: float
    metrics: Mapping[str, Json]
    unverified: tuple[str, ...]
    undone: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Rubrics:
    """The weighted mean over `rubrics` of the share of their tests that pass.

    Each of the `test_scripts` runs in a clean room of its own, from where the agent started: a
    Python file with tests is run by unittest or pytest, any other Python file must come to its
    end, a shell script or program must end with code 0. What that means in detail, and what is a
    fault, stands at the scorer `tests`; `time_s` is for one script.

    Tests decide whether it is a pass: all those of rubrics that count must. Where none has tests, or
    the task's `pass_threshold` is under 1, the total decides.

    A rubric without tests is decided by the run's role `judge`, which sees the change; where there
    is no judge its score is null, and it counts in neither sum. A script may print a line of JSON,
    or write it into custom_metrics.json where it starts: `{"custom_metrics": {...}}` is kept in
    the details and changes no score. Of a Python script, what `write_log` in its own file prints counts,
    and nothing that the solution prints. What other scripts print and what is in the file may be
    the solution's: these metrics are named under `custom_metrics_unverified`.
    """

    rubrics: tuple[Rubric, ...]
    test_scripts: tuple[TestScript, ...] = ()
    time_s: float = 600.0
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ids = [rubric.id for rubric in self.rubrics]
        if not ids:
            raise UsageError("scorer 'rubrics': there are no `rubrics`; write at least one")
        if twice := [name for name in ids if ids.count(name) > 1]:
            raise UsageError(f"scorer 'rubrics': rubric {twice[0]!r} is there twice")
        if any(rubric.weight < 0 or not math.isfinite(rubric.weight) for rubric in self.rubrics):
            raise UsageError("scorer 'rubrics': a `weight` must be 0 or more")
        if not any(rubric.weight for rubric in self.rubrics):
            raise UsageError("scorer 'rubrics': every `weight` is 0; nothing would count")
        for script in self.test_scripts:
            if script.rubric_id not in ids:
                raise UsageError(
                    f"scorer 'rubrics': {script.path!r} is a test of {script.rubric_id!r}; "
                    f"there are: {', '.join(ids)}"
                )
            if not is_inside(script.path):
                raise UsageError(
                    f"scorer 'rubrics': {script.path!r} is not inside the workspace; give the path "
                    "from where the agent starts"
                )

    def check(self, task: Task) -> None:
        """Refuse tests for a task without a workspace."""
        if self.test_scripts:
            workspace_of(task, "rubrics")

    def asks_roles(self, _task: Task, /) -> tuple[str, ...]:
        """Return the judge, where a rubric has no tests."""
        tested = {script.rubric_id for script in self.test_scripts}
        return () if tested >= {rubric.id for rubric in self.rubrics} else ("judge",)

    async def check_box(self, box: Box) -> None:
        """Raise where *box* cannot run one of the scripts; called before the agent starts."""
        runs = [
            self._tests_for(script, await _content(box, script)) for script in self.test_scripts
        ]
        if any(run.runner for run in runs):
            pytest = any(run.runner == "pytest" for run in runs)
            await check_python(box, scorer="rubrics", pytest=pytest, environment=self.environment)
        programs = (program_of(script.path) for script in self.test_scripts)
        await check_programs(box, filter(None, programs), scorer="rubrics")

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:
        """Run every script, ask the judge for what is left, and weigh it all."""
        results = [await self._run(script, task, outcome, context) for script in self.test_scripts]
        entries: dict[str, dict[str, Json]] = {}
        for rubric in self.rubrics:
            rubric_results = [result for result in results if result.script.rubric_id == rubric.id]
            entries[rubric.id] = (
                _tested_entry(rubric, rubric_results)
                if rubric_results
                else await _judged_entry(rubric, task, outcome, context)
            )
        total = _total(self.rubrics, entries)
        return Score(
            scorer="rubrics",
            value=total,
            explanation=_explanation(entries),
            passed=_all_tests_pass(self.rubrics, entries),
            details={
                "rubrics": dict(entries),
                "total_score": total,
                "max_score": 1.0,
                "test_results": {result.script.path: _result_details(result) for result in results},
                **_merge_metrics(results),
                "undone": sorted({name for result in results for name in result.undone}),
            },
        )

    async def _run(
        self, script: TestScript, task: Task, outcome: Outcome, context: Context
    ) -> _Result:
        workspace = workspace_of(task, "rubrics")
        protected = tuple(path_from_root(workspace, path) for path in (script.path, METRICS_FILE))
        mounts = await brought_mounts() if is_python(script.path) else ()
        texts = {} if script.content is None else {protected[0]: script.content}

        spec = GradingSpec(
            protected=protected,
            mounts=mounts,
            texts=texts,
            environment=self.environment,
            read_once=protected[:1] if is_python(script.path) else (),
        )

        async def check(outcome: Outcome) -> Score:
            opened = open_grading_workspace(task, outcome, context, scorer="rubrics", spec=spec)
            async with opened as grading:
                content = await _content(grading.box, script, required=True)
                score = await self._tests_for(script, content).score_in(grading, workspace)
                written = await grading.box.run(Command(argv=("cat", METRICS_FILE), time_s=30.0))
                doubtful = metrics_in(written.output) if written.code == 0 else {}
                if is_python(script.path):
                    metrics = _metrics_of(_texts(score.details.get("printed")))
                else:  # the output of a program and of those that it starts is one
                    metrics = {}
                    doubtful |= metrics_in(str(score.details.get("output", "")))
                details: dict[str, Json] = {
                    "custom_metrics": doubtful | metrics,
                    "unverified": [name for name in doubtful if name not in metrics],
                }
                return replace(score, details={**score.details, **details})

        return _result(script, await check_change(check, outcome, scorer="rubrics"))

    def _tests_for(self, script: TestScript, content: str) -> Tests:
        return check_for_script(
            script.path, content, time_s=self.time_s, environment=self.environment
        )


async def _content(box: Box, script: TestScript, *, required: bool = False) -> str:
    """Return the content of the script; empty where it is missing and not *required*."""
    if script.content is not None:
        return script.content
    ran = await box.run(Command(argv=("cat", "--", script.path), time_s=60.0))
    if ran.code == 0:
        return ran.output
    if required:
        raise CheckError(
            f"scorer 'rubrics': test script {script.path} is not there; give its `content`, or its "
            f"path from where the agent starts. {last_lines(ran.output)}"
        )
    return ""


def _result(script: TestScript, score: Score) -> _Result:
    elapsed, metrics = score.details.get("duration_s"), score.details.get("custom_metrics")
    printed = str(score.details.get("output") or score.explanation or "")
    return _Result(
        script=script,
        success=score.value >= 1.0,
        output=printed[-_MAX_SCRIPT_OUTPUT:],
        duration_s=elapsed if isinstance(elapsed, float) else 0.0,
        metrics=metrics if isinstance(metrics, dict) else {},
        unverified=_texts(score.details.get("unverified")),
        undone=_texts(score.details.get("undone")),
    )


def _metrics_of(printed: tuple[str, ...]) -> dict[str, Json]:
    metrics: dict[str, Json] = {}
    for text in printed:
        metrics |= metrics_in(text)
    return metrics


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _tested_entry(rubric: Rubric, results: list[_Result]) -> dict[str, Json]:
    passed = sum(result.success for result in results)
    return _entry(rubric, passed / len(results), len(results), passed)


async def _judged_entry(
    rubric: Rubric, task: Task, outcome: Outcome, context: Context
) -> dict[str, Json]:
    if "judge" not in context.roles:
        why = "it has no tests, and there is no judge; it does not count"
        return _entry(rubric, None) | {"explanation": why}
    more = rubric.evaluation_criteria
    parts = [rubric.criterion or rubric.id]
    if more is not None:
        parts.append(more if isinstance(more, str) else json.dumps(more, ensure_ascii=False))
    verdict = await Judge(rubric="\n\n".join(parts)).score(task, outcome, context)
    judge = verdict.details.get("judge")
    return _entry(rubric, verdict.value) | {"explanation": verdict.explanation, "judge": judge}


def _entry(
    rubric: Rubric, score: float | None, test_count: int = 0, tests_passed: int = 0
) -> dict[str, Json]:
    return {
        "criterion": rubric.criterion,
        "weight": rubric.weight,
        "score": score,
        "max_score": 1.0,
        "weighted_score": None if score is None else score * rubric.weight,
        "test_count": test_count,
        "tests_passed": tests_passed,
    }


def _total(rubrics: tuple[Rubric, ...], entries: Mapping[str, Mapping[str, Json]]) -> float:
    """Return the weighted mean over the rubrics with a score."""
    got = weight = 0.0
    for rubric in rubrics:
        score = entries[rubric.id]["score"]
        if isinstance(score, int | float):
            got += score * rubric.weight
            weight += rubric.weight
    if weight <= 0:
        raise ScorerError(
            "scorer 'rubrics': no rubric that counts has a test or a judge; write tests, or "
            "configure `[roles.judge]`"
        )
    return min(got / weight, 1.0)


def _all_tests_pass(
    rubrics: tuple[Rubric, ...], entries: Mapping[str, Mapping[str, Json]]
) -> bool | None:
    """Return whether the tests of every rubric that counts pass; None where none has any."""
    tested = [entries[r.id] for r in rubrics if r.weight and entries[r.id]["test_count"]]
    return all(e["tests_passed"] == e["test_count"] for e in tested) if tested else None


def _result_details(result: _Result) -> dict[str, Json]:
    return {
        "success": result.success,
        "output": result.output,
        "duration_sec": round(result.duration_s, 3),
    }


def _merge_metrics(results: list[_Result]) -> dict[str, Json]:
    """Return the metrics of all scripts; verified ones override those the solution may have set."""
    sure: dict[str, Json] = {}
    doubtful: dict[str, Json] = {}
    for result in results:
        for name, value in result.metrics.items():
            (doubtful if name in result.unverified else sure)[name] = value
    unverified = sorted(name for name in doubtful if name not in sure)
    more: dict[str, Json] = {"custom_metrics_unverified": unverified} if unverified else {}
    return {"custom_metrics": doubtful | sure, **more}


def _explanation(entries: Mapping[str, Mapping[str, Json]]) -> str:
    parts = []
    for name, entry in entries.items():
        score, count = entry["score"], entry["test_count"]
        if score is None:
            parts.append(f"{name}: not scored, there is no judge")
        elif count:
            parts.append(f"{name}: {entry['tests_passed']} of {count} tests passed")
        else:
            parts.append(f"{name}: judged {score:.2f}")
    return "; ".join(parts)
