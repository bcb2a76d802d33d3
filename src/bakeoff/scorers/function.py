"""A plain Python function as a scorer."""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from numbers import Real

from bakeoff._lib.sanitize import one_line
from bakeoff._lib.threads import run_in_thread
from bakeoff.core.errors import ScorerError, UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context, Scorer
from bakeoff.core.record import Score
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.core.values import Json
from bakeoff.workers.process import WorkerPool
from bakeoff.workers.wire import Broke, Grade, Graded

_OFFERED = ("answer", "target", "task", "outcome", "tool_calls")
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_POSITIONAL_KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class FunctionScorer:
    """Calls *function* with those of answer, target, task, outcome and tool_calls that it names.

    A function that names none of them gets the answer and, where it takes two, the target. The
    settings are passed by name. With `in_thread`, one that blocks is called beside the loop. It may be async, and returns a bool, a number from 0 to 1, a
    `Score`, or a mapping with "score" or "value", maybe "explanation", and details.
    """

    def __init__(
        self,
        function: Callable[..., object],
        *,
        settings: Mapping[str, Json] | None = None,
        in_thread: bool = False,
    ) -> None:
        self._function = function
        self._in_thread = in_thread and not inspect.iscoroutinefunction(function)
        self._settings = dict(settings or {})
        self._name = str(getattr(function, "__name__", "function"))
        self._named, self._positional = _parameters(function, self._name, self._settings)

    def check(self, task: Task) -> None:
        """Accept any task: the function decides what it needs."""

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Call the function and convert its result."""
        offered = {
            "answer": outcome.answer,
            "target": task.target,
            "task": task,
            "outcome": outcome,
            "tool_calls": outcome.tool_calls,
        }
        if self._in_thread:
            result = await run_in_thread(partial(self.call, offered))
        else:
            result = self.call(offered)
        if inspect.isawaitable(result):
            result = await result
        return self.to_score(result)

    @property
    def wants(self) -> frozenset[str]:
        """The names of what the function is called with."""
        return frozenset((*self._positional, *self._named))

    def call(self, offered: Mapping[str, object]) -> object:
        """Call the function with what it takes of *offered*."""
        positional = [offered[name] for name in self._positional]
        named = {name: offered[name] for name in self._named}
        return self._function(*positional, **named, **self._settings)

    def to_score(self, result: object) -> Score:
        """Convert the function's result to a score."""
        return _score(self._name, result)


def _parameters(
    function: Callable[..., object], name: str, settings: Mapping[str, Json]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what to pass by name and what by position; UsageError where it cannot be called."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # some built-ins do not say
        return (), ("answer", "target")
    _check_settings(parameters, name, settings)
    free = [p for p in parameters if p.name not in settings]
    by_name = tuple(p.name for p in free if p.name in _OFFERED and p.kind in _NAMED)
    required = [p for p in free if p.name not in by_name and p.default is p.empty]
    required = [p for p in required if p.kind not in _REST]
    if by_name and not required:
        return by_name, ()
    places = sum(p.kind in _POSITIONAL_KINDS for p in required) or _optional_positionals(free)
    if by_name or not 1 <= places <= 2 or places < len(required):
        wants = ", ".join(p.name for p in required) or "nothing"
        raise UsageError(
            f"scorer function {name!r} wants {wants}; "
            f"there are: {', '.join(_OFFERED)}, and the scorer's settings"
        )
    return (), ("answer", "target")[:places]


def _optional_positionals(free: list[inspect.Parameter]) -> int:
    if any(p.kind is p.VAR_POSITIONAL for p in free):
        return 2
    return min(2, sum(p.kind in _POSITIONAL_KINDS for p in free))


def _check_settings(
    parameters: list[inspect.Parameter], name: str, settings: Mapping[str, Json]
) -> None:
    known = {p.name for p in parameters if p.kind in _NAMED} - set(_OFFERED)
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for key in settings:
        if key in _OFFERED or (key not in known and not takes_all):
            there_are = ", ".join(sorted(known)) or "none"
            raise UsageError(
                f"scorer function {name!r} has no setting {key!r}; there are: {there_are}"
            )


def _score(name: str, result: object) -> Score:
    if isinstance(result, Score):
        return replace(result, details=_plain(name, result.details))
    if isinstance(result, Real):
        return Score(scorer=name, value=float(result))
    if isinstance(result, Mapping):
        rest = dict(result)
        value = rest.pop("value", None) if "value" in rest else rest.pop("score", None)
        explanation = rest.pop("explanation", None)
        if isinstance(value, Real):
            return Score(
                scorer=name,
                value=float(value),
                explanation=None if explanation is None else str(explanation),
                details=_plain(name, rest),
            )
    raise ScorerError(
        f"scorer function {name!r} returned {one_line(repr(result))}; return a bool, a number from "
        '0 to 1, a Score, or a mapping with "score"'
    )


def _plain(name: str, details: Mapping[str, object]) -> dict[str, Json]:
    """Return *details* as plain data, since they are stored with the score."""
    try:
        plain: dict[str, Json] = json.loads(json.dumps(dict(details), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ScorerError(
            f"scorer function {name!r} returned details that are not plain data: {error}; "
            "keep to texts, finite numbers, lists and mappings"
        ) from error
    return plain


_MAX_OUTPUT = 20_000
_LIGHT = frozenset({"answer", "target"})


class ScorerInProcess:
    """Grades in a worker process with the scorer that *spec* names; *scorer* is the same, built here.

    In a worker process it has only the models and roles of the context. An async scorer that grades
    files needs the workspaces, and runs in this process.
    """

    def __init__(self, spec: ScorerSpec, scorer: Scorer, pool: WorkerPool) -> None:
        self._spec = spec
        self._scorer = scorer
        self._pool = pool
        self._is_function = isinstance(scorer, FunctionScorer)
        self._light = isinstance(scorer, FunctionScorer) and scorer.wants <= _LIGHT

    def check(self, task: Task) -> None:
        """Let the scorer check the task, if it can."""
        if (check := getattr(self._scorer, "check", None)) is not None:
            check(task)

    def asks_roles(self, task: Task) -> tuple[str, ...]:
        """Return the roles that the scorer may ask, if it says so."""
        asks = getattr(self._scorer, "asks_roles", None)
        return tuple(asks(task)) if asks else ()

    def needs_roles(self, task: Task) -> tuple[str, ...]:
        """Return the roles that the scorer cannot do without, if it says so."""
        needs = getattr(self._scorer, "needs_roles", None)
        return tuple(needs(task)) if needs else ()

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:
        """Grade in a worker process."""
        needs_workspaces = context.workspaces is not None and not self._is_function
        if needs_workspaces and inspect.iscoroutinefunction(self._scorer.score):
            return await self._scorer.score(task, outcome, context)
        printed: list[str] = []
        reply = await self._pool.work(
            self._order(task, outcome, context), context, on_output=printed.append
        )
        if isinstance(reply, Graded):
            return _with_output(reply.score, "".join(printed)) if printed else reply.score
        what = f"scorer {self._spec.name!r}"
        if isinstance(reply, Broke):
            raise ScorerError(f"{what}: {reply.message}", traceback=reply.traceback)
        raise ScorerError(f"{what}: it solved instead of grading")

    def _order(self, task: Task, outcome: Outcome, context: Context) -> Grade:
        name, settings = self._spec.name, dict(self._spec.settings)
        if self._light:
            given = {"answer": outcome.answer, "target": task.target}
            return Grade(scorer=name, settings=settings, given=given)
        return Grade(
            scorer=name,
            settings=settings,
            task=task,
            outcome=outcome,
            rollout=context.rollout,
            roles=tuple(context.roles),
        )


def _with_output(score: Score, output: str) -> Score:
    """Return *score* with the scorer's output, which reports show, unless it has its own."""
    details = {"output": output[-_MAX_OUTPUT:], **score.details}
    return replace(score, details=details)
