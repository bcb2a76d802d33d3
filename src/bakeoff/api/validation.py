"""Coding tasks proven before they measure anybody: the reference passes, and nothing else does."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bakeoff._lib.loops import run_sync
from bakeoff.agents.cheat_tricks import TRICKS
from bakeoff.api import read, run_async
from bakeoff.api.loop import new_event_loop
from bakeoff.core.brief import Brief
from bakeoff.core.candidate import AgentSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Event, Listener, TrialEnded, ignore
from bakeoff.core.record import Attempt
from bakeoff.core.stop import Stop
from bakeoff.core.task import Task

_ORACLE, _NOP, _CHEAT = "oracle", "nop", "cheat"
_NEED_A_MODEL = frozenset({"judge"})
_IN_MEMORY = f"{_CHEAT}-patch"  # no grader can see it that runs the solution in its own process
# what a whole box brings to its grade are its programs too; that is the format, not the task
_IN_THE_BOX = frozenset({_CHEAT, f"{_CHEAT}-runner", f"{_CHEAT}-profile"})
_CHEATS = (_CHEAT, *(f"{_CHEAT}-{name}" for name in TRICKS))
_EVERYBODY = (_ORACLE, _NOP, *_CHEATS)
_HINT = "what it left decides its own grade"
_HINTS = {
    f"{_CHEAT}-exit": "code that ends its process with 0 passes; let the tests look at what the "
    "solution prints, not only at an exit code",
    f"{_CHEAT}-tests": "what the agent writes is taken for the tests; keep all of them in tests/",
}
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What came of one task: the scores of the three, and what is wrong with it, if anything.

    A score is None where there is none: no reference, or a fault, which is then told as a problem.
    `notes` say what could be better, and are no reason not to use the task.
    """

    task: str
    oracle: float | None
    nop: float | None
    cheat: float | None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    has_reference: bool = True

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; without a reference nobody knows whether it can be solved."""
        return not self.problems

    def lines(self) -> list[str]:
        """Return the finding for people: one line, and one more for each problem and note."""
        oracle = f"oracle {_shown(self.oracle)}" if self.has_reference else "no reference solution"
        scores = f"{oracle}, nop {_shown(self.nop)}, cheat {_shown(self.cheat)}"
        verdict = "ok" if self.ok else "NOT SOUND"
        more = [*self.problems, *(f"note: {line}" for line in self.notes)]
        return [f"{self.task}: {scores}  {verdict}", *(f"  {line}" for line in more)]


def _shown(score: float | None) -> str:
    return "-" if score is None else f"{score:.2f}"


@dataclass(frozen=True, kw_only=True)
class How:
    """How tasks are validated: which of them, in which sandbox, and where the run is kept.

    Whoever is told what was *found* hears of each task as soon as all have tried it.
    """

    sandbox: str | None = None
    trust: bool = False
    tests: Sequence[str] = ()
    parallel: int | None = None
    output: Path | None = None
    listener: Listener = ignore
    stop: Stop | None = None
    found: Callable[[Finding], None] | None = None


def validate_tasks(path: Path, how: How | None = None) -> list[Finding]:
    """Run the reference, nobody and the cheater on the tasks at *path*, and judge the tasks by it."""
    return run_sync(validate_tasks_async(path, how), loop_factory=new_event_loop)


async def validate_tasks_async(path: Path, how: How | None = None) -> list[Finding]:
    """Validate as `validate_tasks` does, in the event loop that is running."""
    how = how or How()
    brief = _without_models(read(path, {}))
    with TemporaryDirectory(prefix="bakeoff-validate-") as scratch:
        witness = Path(scratch) / "witness"
        run = await run_async(
            brief,
            agents=_agents(witness),
            tests=how.tests,
            sandbox=how.sandbox,
            trust=how.trust,
            parallel=how.parallel,
            output=how.output or Path(scratch) / "runs",
            listener=_Watch(how, brief.tasks),
            stop=how.stop or Stop(),
        )
        attempts: dict[str, dict[str, Attempt]] = {task.id: {} for task in run.plan.tasks}
        for record in run.trials():
            attempts[record.task_id][record.candidate_id] = record.attempt
        escaped = witness.exists()
    findings = [_finding(task, attempts[task.id]) for task in brief.tasks if task.id in attempts]
    return [_outbreak(finding) for finding in findings] if escaped else findings


class _Watch:
    """Hears a validation, and tells what came of a task when the last one has tried it."""

    def __init__(self, how: How, tasks: Iterable[Task]) -> None:
        self._how = how
        self._tasks = {task.id: task for task in tasks}
        self._tried: dict[str, dict[str, Attempt]] = {task: {} for task in self._tasks}

    def __call__(self, event: Event) -> None:
        self._how.listener(event)
        if self._how.found is None or not isinstance(event, TrialEnded) or not event.last:
            return
        task = event.trial.task.id
        self._tried[task][event.trial.candidate.id] = event.attempt
        if len(self._tried[task]) == len(_EVERYBODY):
            self._how.found(_finding(self._tasks[task], self._tried[task]))


def _without_models(brief: Brief) -> Brief:
    """Return *brief* without the scorers that would ask a model: nobody is named here for that."""
    tasks = []
    for task in brief.tasks:
        scorers = tuple(spec for spec in task.scorers if spec.name not in _NEED_A_MODEL)
        if not any(spec.weight for spec in scorers):
            raise UsageError(
                f"task {task.id!r} is scored by a judge alone, which cannot be validated; add tests"
            )
        tasks.append(replace(task, scorers=scorers))
    return replace(brief, tasks=tuple(tasks))


def _agents(witness: Path) -> list[AgentSpec]:
    """Return who is to try: the cheater with all its tricks, and with each alone.

    Tricks hinder each other: one that ends the grader's program leaves nothing for the next.
    """
    seen = {"witness": str(witness)}
    return [
        AgentSpec(name=_ORACLE),
        AgentSpec(name=_NOP),
        AgentSpec(name=_CHEAT, settings=seen),
        *(
            AgentSpec(name=_CHEAT, settings={**seen, "tricks": [name]}, label=f"{_CHEAT}-{name}")
            for name in TRICKS
        ),
    ]


def _finding(task: Task, attempts: Mapping[str, Attempt]) -> Finding:
    solvable = task.workspace is not None and task.workspace.reference is not None
    whole_box = task.workspace is not None and task.workspace.whole_box
    beyond = {_IN_MEMORY, *(_IN_THE_BOX if whole_box else ())}
    cheats = [name for name in _CHEATS if name not in beyond]
    scores = [score for name in cheats if (score := _score(attempts, name)) is not None]
    expected = (*((_ORACLE,) if solvable else ()), _NOP, *cheats)
    nothing = _score(attempts, _NOP)
    return Finding(
        task=task.id,
        oracle=_score(attempts, _ORACLE) if solvable else None,
        nop=nothing,
        cheat=max(scores, default=None),
        problems=(*_unscored(attempts, expected), *_wrong(attempts, expected)),
        notes=tuple(_notes({n: a for n, a in attempts.items() if n in beyond}, nothing)),
        has_reference=solvable,
    )


def _score(attempts: Mapping[str, Attempt], name: str) -> float | None:
    return attempts[name].score if name in attempts else None


def _wrong(attempts: Mapping[str, Attempt], expected: Iterable[str]) -> Iterator[str]:
    """Tell of each score that a sound task would not have given."""
    nothing = _score(attempts, _NOP) or 0.0
    for name in expected:
        score = _score(attempts, name)
        if score is None:
            continue
        if name == _ORACLE and score < 1 - _ROUNDING:
            yield f"the reference scores {score:.2f}, not 1: {_why(attempts[name])}"
        if name == _NOP and attempts[name].passed:
            yield f"doing nothing passes with {score:.2f}: the tests do not need the work"
        if name in _CHEATS and score > nothing + _ROUNDING:
            yield f"{name} scores {score:.2f}: {_HINTS.get(name, _HINT)}"


def _notes(tried: Mapping[str, Attempt], nothing: float | None) -> Iterator[str]:
    for name, attempt in tried.items():
        told = f"{name} scores {_shown(attempt.score)}"
        if attempt.score is None and name in _IN_THE_BOX:
            yield f"an agent can keep the verifier from running: that is a fault, no 0 ({name})"
        if attempt.score is None or attempt.score <= (nothing or 0.0) + _ROUNDING:
            continue
        if name == _IN_MEMORY:
            yield (
                "the tests run the solution in their own process, where it can rewrite the test "
                f"framework ({told}); let them call it as a program"
            )
        else:
            yield f"the verifier runs programs of the box that an agent can replace ({told})"


def _unscored(attempts: Mapping[str, Attempt], expected: Iterable[str]) -> Iterator[str]:
    """Tell who has no score, and why; those with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for name in expected:
        attempt = attempts.get(name)
        if attempt is None:
            reasons.setdefault("not run", []).append(name)
        elif attempt.score is None:
            why = attempt.fault.message if attempt.fault else str(attempt.status)
            reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        yield f"no score for {', '.join(names)}: {why}"


def _why(attempt: Attempt) -> str:
    told = (score.explanation for score in attempt.scores if score.explanation)
    return "; ".join(told) or "no reason is given"


def _outbreak(finding: Finding) -> Finding:
    """Return *finding* with the worst that can be said; which task it was nobody can tell."""
    told = "the cheater got the host to run its program: do not use this sandbox"
    return replace(finding, problems=(*finding.problems, told))
