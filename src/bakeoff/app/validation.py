"""Coding tasks proven before they are used: the reference passes, and nothing else does.

The cheater plays its tricks in groups first, one box for each group. Where a group scores, its tricks
are played one by one, so that each that scores is told by its name.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.threads import run_sync
from bakeoff.agents.cheating import GROUPS, TRICKS
from bakeoff.app import read, run_async
from bakeoff.app.run import new_event_loop
from bakeoff.core.candidate import AgentSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Event, Listener, TrialEnded, ignore
from bakeoff.core.record import Attempt
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.stop import Stop
from bakeoff.core.task import Task
from bakeoff.formats.markdown_task import read_markdown_task

_ORACLE, _NOP, _CHEAT = "oracle", "nop", "cheat"
_ROUNDING = 1e-9
_MOST_NAMED = 6

TESTS_IMPORT_SOLUTION = "tests-import-solution"
"""The limit of tasks whose tests load the solution into their own process."""
_LIMIT = (
    "the tests import the solution into their own process, so an agent that knows how this harness "
    "grades can pass without the work ({tricks} {score:.2f}); to exclude that, let the tests call the "
    "solution as a program and compare what it prints"
)

Play = tuple[str, ...]
"""The names of the tricks that are played in one box."""

Attempts = Mapping[str, Attempt]
"""What came of one task: an attempt for each candidate that tried it, by its name."""


class Verdict(StrEnum):
    """What a validation says of a task; only `NOT_SOUND` is a failure unless limits are too."""

    SOUND = "sound"
    SOUND_WITH_LIMIT = "sound-with-limit"
    NOT_SOUND = "not-sound"


@dataclass(frozen=True, kw_only=True)
class Limit:
    """What a task cannot exclude although no generic trick scores on it."""

    name: str
    explanation: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What came of one task: the scores of the three, and what is wrong with it, if anything.

    A score is None where there is none: no reference, or a fault, which is then told as a problem.
    `cheat` is the highest score of a generic trick. `scored` names every trick that scores, also
    those that are written against this harness: where only these score, the task has a `limit`.
    """

    task: str
    oracle: float | None
    nop: float | None
    cheat: float | None
    problems: tuple[str, ...] = ()
    scored: tuple[str, ...] = ()
    limit: Limit | None = None
    has_reference: bool = True

    @property
    def verdict(self) -> Verdict:
        """The verdict; without a reference nobody knows whether the task can be solved."""
        if self.problems:
            return Verdict.NOT_SOUND
        return Verdict.SOUND_WITH_LIMIT if self.limit else Verdict.SOUND

    def passes(self, *, strict: bool = False) -> bool:
        """Whether the task can be used; with `strict` not with a limit."""
        if strict:
            return self.verdict is Verdict.SOUND
        return self.verdict is not Verdict.NOT_SOUND

    def lines(self) -> list[str]:
        """Return the finding for people: one line, and one more for each problem."""
        oracle = f"oracle {_shown(self.oracle)}" if self.has_reference else "no reference solution"
        scores = f"{oracle}, nop {_shown(self.nop)}, cheat {_shown(self.cheat)}"
        below = list(self.problems)
        verdict = "NOT SOUND" if self.problems else "SOUND"
        if self.limit is not None:
            verdict += "" if self.problems else f", with a limit: {self.limit.name}"
            below.append(f"{self.limit.name}: {self.limit.explanation}")
        return [f"{self.task}: {scores}  {verdict}", *(f"  {line}" for line in below)]

    def as_json(self) -> dict[str, object]:
        """Return the finding for programs."""
        return {
            "task": self.task,
            "verdict": self.verdict,
            "limit": self.limit
            and {"name": self.limit.name, "explanation": self.limit.explanation},
            "oracle": self.oracle,
            "nop": self.nop,
            "cheat": self.cheat,
            "scored": list(self.scored),
            "problems": list(self.problems),
            "has_reference": self.has_reference,
        }


def _shown(score: float | None) -> str:
    return "-" if score is None else f"{score:.2f}"


@dataclass(frozen=True, kw_only=True)
class How:
    """How tasks are validated: which of them, in which sandbox, and where the runs are kept.

    All of the cheater's `tricks` are played, or those that are named; with `alone`, each in a box of
    its own from the start. `on_finding` is called with each finding as soon as it is known.
    """

    sandbox: str | None = None
    trust: bool = False
    tests: Sequence[str] = ()
    parallel: int | None = None
    output: Path | None = None
    listener: Listener = ignore
    stop: Stop | None = None
    on_finding: Callable[[Finding], None] | None = None
    tricks: Collection[str] = ()
    alone: bool = False


def validate_tasks(path: Path, how: How | None = None) -> list[Finding]:
    """Run the reference, an idle agent and the cheater on the tasks at *path*, and judge the tasks by it."""
    return run_sync(validate_tasks_async(path, how), loop_factory=new_event_loop)


async def validate_tasks_async(path: Path, how: How | None = None) -> list[Finding]:
    """Validate as `validate_tasks` does, in the event loop that is running."""
    how = how or How()
    run_spec = _without_models(_read(path))
    with TemporaryDirectory(prefix="bakeoff-validate-") as scratch:
        validation = _Validation(how, run_spec, Path(scratch))
        await validation.play_in_groups()
        await validation.play_alone()
        escaped = validation.witness.exists()
    findings = validation.findings()
    return [_outbreak(finding) for finding in findings] if escaped else findings


def _read(path: Path) -> RunSpec:
    """Return the tasks at *path*, which may be a folder of tasks in Markdown."""
    files = sorted(path.rglob("*.md")) if path.is_dir() else []
    checked = [file for file in files if (file.with_suffix("") / "tests").is_dir()]
    if not checked:
        return read(path, {})
    run_specs = [read_markdown_task(file) for file in checked]
    tasks = tuple(task for run_spec in run_specs for task in run_spec.tasks)
    return replace(run_specs[0], name=path.name, tasks=tasks)


def _without_models(run_spec: RunSpec) -> RunSpec:
    """Return *run_spec* without the scorers that would ask a model: no role is named here."""
    tasks = []
    for task in run_spec.tasks:
        scorers = tuple(spec for spec in task.scorers if not spec.asks_judge)
        if not any(spec.weight for spec in scorers):
            raise UsageError(
                f"task {task.id!r} is scored by a judge alone, which cannot be validated; add tests"
            )
        tasks.append(replace(task, scorers=scorers))
    return replace(run_spec, tasks=tuple(tasks))


def _plays(how: How, tasks: Iterable[Task]) -> list[Play]:
    """Return which tricks are played together."""
    for name in how.tricks:
        if name not in TRICKS:
            raise UsageError(f"no trick is called {name!r}: {did_you_mean(name, TRICKS)}")
    whole_box = any(task.workspace is not None and task.workspace.whole_box for task in tasks)
    names = [
        name
        for name in how.tricks or TRICKS
        if how.tricks or whole_box or not TRICKS[name].whole_box
    ]
    if how.alone:
        return [(name,) for name in names]
    groups = (tuple(name for name in group if name in names) for group in GROUPS.values())
    return [group for group in groups if group]


def _label(play: Play) -> str:
    """Return the name of the candidate that makes a play: that of its trick, or of its group."""
    return f"{_CHEAT}-{play[0] if len(play) == 1 else TRICKS[play[0]].group}"


class _Validation:
    """What is known so far of the tasks of one validation."""

    def __init__(self, how: How, run_spec: RunSpec, scratch: Path) -> None:
        self._how = how
        self._run_spec = run_spec
        self._tasks = {task.id: task for task in run_spec.tasks}
        self._plays = _plays(how, run_spec.tasks)
        self._attempts: dict[str, dict[str, Attempt]] = {}
        self._output = how.output or scratch / "runs"
        self.witness = scratch / "witness"

    async def play_in_groups(self) -> None:
        """Let the reference, an idle agent and the cheater with each group of tricks try every task."""
        cheaters = [self._cheater(play) for play in self._plays]
        agents = [AgentSpec(name=_ORACLE), AgentSpec(name=_NOP), *cheaters]
        await self._run(agents, self._how.tests)

    async def play_alone(self) -> None:
        """Let the cheater play each trick of a group that scored in a box of its own."""
        for task in [task for task in self._tasks if self._open_groups(task)]:
            tricks = [(name,) for play in self._open_groups(task) for name in play]
            await self._run([self._cheater(play) for play in tricks], [task])
            self._tell(task)

    def findings(self) -> list[Finding]:
        """Return what came of each task, in their order."""
        return [self._finding(task) for task in self._tasks if task in self._attempts]

    async def _run(self, agents: Sequence[AgentSpec], tests: Sequence[str]) -> None:
        run = await run_async(
            self._run_spec,
            agents=agents,
            tests=tests,
            sandbox=self._how.sandbox,
            trust=self._how.trust,
            parallel=self._how.parallel,
            output=self._output,
            listener=self._hear,
            stop=self._how.stop or Stop(),
        )
        for task in run.plan.tasks:
            self._attempts.setdefault(task.id, {})
        for record in run.trials():
            self._attempts[record.task_id][record.candidate_id] = record.attempt

    def _hear(self, event: Event) -> None:
        self._how.listener(event)
        if not isinstance(event, TrialEnded) or not event.last:
            return
        task = event.trial.task.id
        tried = self._attempts.setdefault(task, {})
        tried[event.trial.candidate.id] = event.attempt
        if len(tried) == len(self._plays) + 2 and not self._open_groups(task):
            self._tell(task)

    def _tell(self, task: str) -> None:
        if self._how.on_finding is not None:
            self._how.on_finding(self._finding(task))

    def _cheater(self, play: Play) -> AgentSpec:
        settings = {"witness": str(self.witness), "tricks": list(play)}
        return AgentSpec(name=_CHEAT, settings=settings, label=_label(play))

    def _open_groups(self, task: str) -> list[Play]:
        """Return the groups that scored on a task, and whose tricks are to be played one by one."""
        attempts = self._attempts.get(task, {})
        return [play for play in self._plays if len(play) > 1 and _gains(attempts, _label(play))]

    def _finding(self, task: str) -> Finding:
        attempts = self._attempts[task]
        cheaters = []
        for play in self._plays:
            alone = [_label((name,)) for name in play]
            gained = [label for label in alone if _gains(attempts, label)]
            cheaters += gained or [_label(play)]
        return _finding(self._tasks[task], attempts, cheaters)


def _finding(task: Task, attempts: Attempts, cheaters: Sequence[str]) -> Finding:
    solvable = task.workspace is not None and task.workspace.reference is not None
    expected = (*((_ORACLE,) if solvable else ()), _NOP, *cheaters)
    generic = [name for name in cheaters if not _knows_harness(name)]
    scores = [score for name in generic if (score := _score(attempts, name)) is not None]
    scored = [name for name in cheaters if _gains(attempts, name)]
    return Finding(
        task=task.id,
        oracle=_score(attempts, _ORACLE) if solvable else None,
        nop=_score(attempts, _NOP),
        cheat=max(scores, default=None),
        problems=(
            *_unscored(attempts, expected),
            *_wrong(attempts, expected),
            *_remedies(attempts, [name for name in scored if name in generic]),
        ),
        scored=tuple(name.removeprefix(f"{_CHEAT}-") for name in scored),
        limit=_limit(attempts, [name for name in scored if _knows_harness(name)]),
        has_reference=solvable,
    )


def _score(attempts: Attempts, name: str) -> float | None:
    return attempts[name].score if name in attempts else None


def _gains(attempts: Attempts, name: str) -> bool:
    """Whether a cheater got more than the idle agent."""
    score = _score(attempts, name)
    return score is not None and score > (_score(attempts, _NOP) or 0.0) + _ROUNDING


def _knows_harness(name: str) -> bool:
    """Whether a cheater plays a trick that is written against this harness."""
    trick = TRICKS.get(name.removeprefix(f"{_CHEAT}-"))
    return trick is not None and trick.knows_harness


def _limit(attempts: Attempts, scored: Sequence[str]) -> Limit | None:
    """Return the limit that the tricks written against this harness have shown, if they scored."""
    if not scored:
        return None
    best = max(attempts[name].score or 0.0 for name in scored)
    tricks = f"{_listed(scored)} {'scores' if len(scored) == 1 else 'score'}"
    return Limit(name=TESTS_IMPORT_SOLUTION, explanation=_LIMIT.format(tricks=tricks, score=best))


def _wrong(attempts: Attempts, expected: Collection[str]) -> Iterator[str]:
    """Return each score of the reference and the idle agent that a sound task would not have given."""
    oracle, nothing = _score(attempts, _ORACLE), _score(attempts, _NOP)
    if _ORACLE in expected and oracle is not None and oracle < 1 - _ROUNDING:
        yield f"the reference scores {oracle:.2f}, not 1: {_why(attempts[_ORACLE])}"
    if nothing is not None and attempts[_NOP].passed:
        yield f"doing nothing passes with {nothing:.2f}: the tests do not need the work"


def _remedies(attempts: Attempts, scored: Iterable[str]) -> Iterator[str]:
    """Tell which tricks score, and what can be done; those with the same remedy together."""
    remedies: dict[str, list[str]] = {}
    for name in scored:
        remedies.setdefault(_remedy(name.removeprefix(f"{_CHEAT}-")), []).append(name)
    for remedy, names in remedies.items():
        best = max(attempts[name].score or 0.0 for name in names)
        yield f"{_listed(names)} {'scores' if len(names) == 1 else 'score'} {best:.2f}: {remedy}"


def _remedy(name: str) -> str:
    """Return what helps against a trick, or a group that scored although none of its tricks did alone."""
    trick = TRICKS.get(name) or TRICKS[GROUPS[name][0]]
    return trick.remedy


def _unscored(attempts: Attempts, expected: Iterable[str]) -> Iterator[str]:
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
        yield f"no score for {_listed(names)}: {why}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _why(attempt: Attempt) -> str:
    reasons = (score.explanation for score in attempt.scores if score.explanation)
    return "; ".join(reasons) or "no reason is given"


def _outbreak(finding: Finding) -> Finding:
    """Return *finding* with the problem that the cheater escaped; its task is unknown."""
    problem = "the cheater got the host to run its program: do not use this sandbox"
    return replace(finding, problems=(*finding.problems, problem))
