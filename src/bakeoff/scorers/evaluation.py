"""The scorer `evaluation`: a task's own metric on the agent's prediction file, as a skill score."""

import json
import secrets
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.sandbox import Command
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.scorers.grading_box import (
    CheckError,
    check_change,
    is_inside,
    last_lines,
    open_grading_workspace,
    run_check,
    truncate,
    workspace_of,
)

_PROCESS = Path(__file__).with_name("evaluation_process.py")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How much better than a baseline the agent's prediction is, from 0 (not) to 1 (the best).

    `module` is a Python file in the clean room with `evaluate(y_true_path, y_pred_path) -> float`,
    `truth` the file with the true values there, `prediction` the file that the agent was to write,
    from where it started. The value is the skill, (score - baseline) / (best - baseline), within 0
    and 1; details hold the skill as it is and the score. Without a `baseline` the value is the
    score itself, which must then be from 0 to 1.

    A prediction that is missing, or that the metric cannot read though it can read the truth in its
    place, scores 0; so does one with which the metric never ends, breaks down or leaves its range. A
    metric that cannot be loaded or cannot even read the truth is a fault.
    """

    module: str
    truth: str
    prediction: str = "submission.csv"
    baseline: float | None = None
    best: float | None = None
    higher_is_better: bool = True
    python: str = "python3"
    time_s: float = 600.0

    def __post_init__(self) -> None:
        if not is_inside(self.prediction):
            raise UsageError(
                f"scorer 'evaluation': {self.prediction!r} is not inside the workspace; give the "
                "`prediction` from where the agent starts"
            )
        if self.baseline is None:
            return
        span = self._best - self.baseline if self.higher_is_better else self.baseline - self._best
        if span <= 0:
            than = "higher" if self.higher_is_better else "lower"
            raise UsageError(
                f"scorer 'evaluation': with a baseline of {self.baseline:g} and {self._best:g} as the "
                f"best there is, no prediction can have any skill, for {than} is better"
            )

    @property
    def _best(self) -> float:
        if self.best is not None:
            return self.best
        return 1.0 if self.higher_is_better else 0.0

    def check(self, task: Task) -> None:
        """Refuse a task without a workspace."""
        workspace_of(task, "evaluation")

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:
        """Evaluate the prediction in the outcome's change."""
        workspace = workspace_of(task, "evaluation")
        prediction = str(PurePosixPath(workspace.start, self.prediction))

        async def check(outcome: Outcome) -> Score:
            return await self._evaluate(prediction, task, outcome, context)

        async def control() -> Score:
            return await self._evaluate(self.truth, task, replace(outcome, change=None), context)

        return await check_change(check, outcome, scorer="evaluation", control=control)

    async def _evaluate(
        self, prediction: str, task: Task, outcome: Outcome, context: Context
    ) -> Score:
        token = secrets.token_hex(16)
        source = _PROCESS.read_text(encoding="utf-8")
        command = Command(
            argv=(self.python, "-I", "-c", source, self.module, self.truth, prediction),
            environment={"PYTHONDONTWRITEBYTECODE": "1"},
            time_s=self.time_s,
            stdin=token.encode(),
        )
        opened = open_grading_workspace(task, outcome, context, scorer="evaluation")
        async with opened as grading:
            ran = await run_check(grading, command, scorer="evaluation")
        before, separator, record = ran.output.rpartition(f"\n{token}")
        if not separator:
            how = ran.stopped or f"exit {ran.code}"
            raise CheckError(
                f"scorer 'evaluation': the evaluation ended without a result ({how}); "
                f"{last_lines(ran.output)}"
            )
        return self._to_score(json.loads(record), truncate(before))

    def _to_score(self, record: dict[str, Json], output: str) -> Score:
        details: dict[str, Json] = {"output": output, "baseline": self.baseline}
        details |= {"best": self._best, "higher_is_better": self.higher_is_better}
        details |= {"score": None, "skill": None}
        if broken := record.get("broken"):
            raise CheckError(f"scorer 'evaluation': {self.module} cannot be loaded: {broken}")
        if record.get("missing"):
            why = f"there is no {self.prediction}"
            return Score(scorer="evaluation", value=0.0, explanation=why, details=details)
        if error := record.get("error"):
            why = f"{self.prediction} cannot be evaluated: {one_line(str(error))}"
            if not record.get("own") and record.get("control") is not None:
                raise CheckError(f"scorer 'evaluation': {why}; nor can the truth in its place")
            return Score(scorer="evaluation", value=0.0, explanation=why, details=details)
        score = record["score"]
        if not isinstance(score, int | float):
            raise CheckError(f"scorer 'evaluation': its score is {score!r}, not a number")
        value, skill = self._value(float(score))
        details |= {"score": score, "skill": skill}
        return Score(scorer="evaluation", value=value, details=details)

    def _value(self, score: float) -> tuple[float, float | None]:
        """Return the value from 0 to 1, and the skill as it is."""
        if self.baseline is None:
            if not self.higher_is_better or not 0 <= score <= 1:
                raise CheckError(
                    f"scorer 'evaluation': {score:g} says nothing without a `baseline`; give one"
                )
            return score, None
        skill = (score - self.baseline) / (self._best - self.baseline)
        return min(max(skill, 0.0), 1.0), skill
