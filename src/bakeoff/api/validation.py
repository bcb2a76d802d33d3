"""Coding tasks proven before they measure anybody: the reference passes, and nothing else does."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bakeoff._lib.loops import run_sync
from bakeoff.agents.cheat_tricks import TRICKS
from bakeoff.api import run_async
from bakeoff.api.loop import new_event_loop
from bakeoff.core.brief import Brief
from bakeoff.core.candidate import AgentSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Listener, ignore
from bakeoff.core.record import Attempt
from bakeoff.core.stop import Stop
from bakeoff.core.task import Task
from bakeoff.suites.task_folder import read_tasks

_ORACLE, _NOP, _CHEAT = "oracle", "nop", "cheat"
_NEED_A_MODEL = frozenset({"judge"})
_IN_MEMORY = f"{_CHEAT}-patch"  # no grader can see it that runs the solution in its own process
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
    """How tasks are validated: which of them, in which sandbox, and where the run is kept."""

    sandbox: str | None = None
    tests: Sequence[str] = ()
    parallel: int | None = None
    output: Path | None = None
    listener: Listener = ignore
    stop: Stop | None = None


def validate_tasks(path: Path, how: How | None = None) -> list[Finding]:
    """Run the reference, nobody and the cheater on the tasks at *path*, and judge the tasks by it."""
    return run_sync(validate_tasks_async(path, how), loop_factory=new_event_loop)


async def validate_tasks_async(path: Path, how: How | None = None) -> list[Finding]:
    """Validate as `validate_tasks` does, in the event loop that is running."""
    how = how or How()
    brief = _without_models(read_tasks(path))
    with TemporaryDirectory(prefix="bakeoff-validate-") as scratch:
        witness = Path(scratch) / "witness"
        run = await run_async(
            brief,
            agents=_agents(witness),
            tests=how.tests,
            sandbox=how.sandbox,
            parallel=how.parallel,
            output=how.output or Path(scratch) / "runs",
            listener=how.listener,
            stop=how.stop or Stop(),
        )
        attempts: dict[str, dict[str, Attempt]] = {}
        for record in run.trials():
            attempts.setdefault(record.task_id, {})[record.candidate_id] = record.attempt
        escaped = witness.exists()
    findings = [_finding(task, attempts[task.id]) for task in brief.tasks if task.id in attempts]
    return [_outbreak(finding) for finding in findings] if escaped else findings


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
    tried = {name: attempt for name, attempt in attempts.items() if name.startswith(_CHEAT)}
    cheats = {name: attempt for name, attempt in tried.items() if name != _IN_MEMORY}
    nothing = _score(attempts, _NOP)
    return Finding(
        task=task.id,
        oracle=_score(attempts, _ORACLE) if solvable else None,
        nop=nothing,
        cheat=max((a.score for a in cheats.values() if a.score is not None), default=None),
        problems=tuple(_problems(task, attempts, cheats, solvable=solvable)),
        notes=tuple(_notes(tried.get(_IN_MEMORY), nothing)),
        has_reference=solvable,
    )


def _score(attempts: Mapping[str, Attempt], name: str) -> float | None:
    return attempts[name].score if name in attempts else None


def _problems(
    task: Task,
    attempts: Mapping[str, Attempt],
    cheats: Mapping[str, Attempt],
    *,
    solvable: bool,
) -> Iterator[str]:
    expected = (*((_ORACLE,) if solvable else ()), _NOP, *cheats)
    yield from _unscored(attempts, expected)
    oracle = _score(attempts, _ORACLE)
    if solvable and oracle is not None and oracle < 1 - _ROUNDING:
        yield f"the reference scores {oracle:.2f}, not 1: {_why(attempts[_ORACLE])}"
    nothing = _score(attempts, _NOP)
    if nothing is not None and nothing >= task.pass_threshold - _ROUNDING:
        yield f"doing nothing passes with {nothing:.2f}: the tests do not need the work"
    for name, attempt in cheats.items():
        if attempt.score is not None and attempt.score > (nothing or 0.0) + _ROUNDING:
            yield f"{name} scores {attempt.score:.2f}: {_HINTS.get(name, _HINT)}"


def _notes(patched: Attempt | None, nothing: float | None) -> Iterator[str]:
    if patched and patched.score is not None and patched.score > (nothing or 0.0) + _ROUNDING:
        yield (
            "the tests run the solution in their own process, where it can rewrite the test "
            f"framework ({_IN_MEMORY} scores {patched.score:.2f}); let them call it as a program"
        )


def _unscored(attempts: Mapping[str, Attempt], expected: Iterable[str]) -> Iterator[str]:
    for name in expected:
        attempt = attempts.get(name)
        if attempt is None:
            yield f"{name} was not run"
        elif attempt.score is None:
            why = attempt.fault.message if attempt.fault else f"it is {attempt.status}"
            yield f"{name} has no score: {why}"


def _why(attempt: Attempt) -> str:
    told = (score.explanation for score in attempt.scores if score.explanation)
    return "; ".join(told) or "no reason is given"


def _outbreak(finding: Finding) -> Finding:
    """Return *finding* with the worst that can be said; which task it was nobody can tell."""
    told = "the cheater got the host to run its program: do not use this sandbox"
    return replace(finding, problems=(*finding.problems, told))
