"""The scorers `calls` and `trajectory`: which tools were called, how, and in which order."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.task import Task, ToolCall
from bakeoff.core.values import Json, includes_json, same_json
from bakeoff.scorers.json_answer import check_schema, schema_fault
from bakeoff.scorers.judge import Judge

_KEYS = frozenset({"name", "arguments", "exact", "schema", "judge"})
_EXAMPLE = '{"name": "TOOL", "arguments": {"KEY": "VALUE"}}'


@dataclass(frozen=True, kw_only=True)
class ToolCalls:
    """1 where the model called the expected tools, no more and no fewer, in this order.

    A call is expected as the name of a tool, or as an object with `name` and any of: `arguments`,
    which must be there and equal (further ones are free unless `exact`, here or for all calls);
    `schema`, a JSON Schema of the arguments; `judge`, what they must be like, which the role `judge`
    decides. What is expected is `calls`, else the task's target; an empty list expects no call. With
    `any_order` the order is free, with `extra` further calls are, except of `forbidden` tools. With
    `partial` the value is the share of calls that match, of the expected or made ones, whichever are
    more.
    """

    calls: list[Json] | None = None
    any_order: bool = False
    exact: bool = False
    extra: bool = False
    forbidden: tuple[str, ...] = ()
    partial: bool = False

    def __post_init__(self) -> None:
        if self.calls is not None:
            _check_calls(self.calls, "scorer 'calls': `calls`")

    def needs_roles(self, task: Task) -> tuple[str, ...]:
        """Return the judge, where it reads some arguments of *task*."""
        expected = _listed(task.target) if self.calls is None else self.calls
        judged = any(isinstance(call, Mapping) and "judge" in call for call in expected)
        return ("judge",) if judged else ()

    def check(self, task: Task) -> None:
        """Refuse a task that does not say which calls are expected."""
        if self.calls is not None:
            return
        if task.target is None:
            raise UsageError(
                f"task {task.id!r}: scorer 'calls' needs `expected`, or the setting `calls`; "
                'write [{"name": "TOOL", "arguments": {}}], or [] where no tool should be called',
                task=task.id,
            )
        _check_calls(_listed(task.target), f"task {task.id!r}: `expected`", task=task.id)

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:
        """Compare the calls with the expected ones."""
        expected = _listed(task.target) if self.calls is None else self.calls
        made = outcome.tool_calls
        fits = [
            [await self._fits(call, wanted, task, outcome, context) for call in made]
            for wanted in expected
        ]
        matched = self._matched(fits)
        most = len(expected) if self.extra else max(len(expected), len(made))
        share = matched / most if most else 1.0
        banned = sorted({call.name for call in made} & set(self.forbidden))
        if banned:
            share = 0.0
        return Score(
            scorer="calls",
            value=share if self.partial else float(share == 1),
            explanation=_explanation(made, matched, len(expected), banned) if share < 1 else None,
            details={"expected": len(expected), "made": len(made), "matched": matched},
        )

    def _matched(self, fits: Sequence[Sequence[bool]]) -> int:
        """Return how many expected calls were made; *fits* has a row for each of them."""
        if self.any_order:
            return _most_pairs(fits)
        if self.extra:
            return _longest_in_order(fits)
        return sum(row[n] for n, row in enumerate(fits) if n < len(row))

    async def _fits(
        self, call: ToolCall, expected: Json, task: Task, outcome: Outcome, context: Context
    ) -> bool:
        if not isinstance(expected, Mapping):
            return call.name == expected
        if call.name != expected["name"] or not self._has_arguments(call, expected):
            return False
        schema, rubric = expected.get("schema"), expected.get("judge")
        if isinstance(schema, Mapping) and schema_fault(call.parsed, dict(schema)) is not None:
            return False
        if not isinstance(rubric, str):
            return True
        verdict = await Judge(rubric=rubric, scale=2).score(
            task, replace(outcome, answer=f"{call.name} {call.arguments}", transcript=()), context
        )
        return verdict.value >= 0.5

    def _has_arguments(self, call: ToolCall, expected: Mapping[str, Json]) -> bool:
        arguments, given = expected.get("arguments", {}), call.parsed
        exact = bool(expected.get("exact", self.exact)) and "arguments" in expected
        if not isinstance(arguments, Mapping):
            return False
        if not isinstance(given, Mapping):
            return not arguments and not exact
        return same_json(given, arguments) if exact else includes_json(given, arguments)


def _explanation(made: Sequence[ToolCall], matched: int, expected: int, banned: list[str]) -> str:
    if banned:
        return f"it called {', '.join(banned)}, which is forbidden"
    names = ", ".join(call.name for call in made) or "no tool"
    return f"{matched} of {expected} expected calls match; it called {names}"


def _listed(target: Json) -> list[Json]:
    return list(target) if isinstance(target, list | tuple) else [target]


def _check_calls(calls: Sequence[Json], what: str, *, task: str | None = None) -> None:
    for call in calls:
        if isinstance(call, str):
            continue
        if not _is_call(call):
            raise UsageError(
                f"{what}: {call!r} is no tool call; write the name of a tool, or {_EXAMPLE}",
                task=task,
            )
        if isinstance(call, Mapping) and isinstance(schema := call.get("schema"), Mapping):
            check_schema(dict(schema))


def _is_call(call: Json) -> bool:
    return (
        isinstance(call, Mapping)
        and isinstance(call.get("name"), str)
        and isinstance(call.get("arguments", {}), Mapping)
        and isinstance(call.get("schema", {}), Mapping)
        and isinstance(call.get("judge", ""), str)
        and isinstance(call.get("exact", False), bool)
        and set(call) <= _KEYS
    )


def _most_pairs(fits: Sequence[Sequence[bool]]) -> int:
    """Return the size of a maximum matching of rows and fitting columns (augmenting paths)."""
    row_of: dict[int, int] = {}

    def pair(row: int, tried: set[int]) -> bool:
        for column, fit in enumerate(fits[row]):
            if fit and column not in tried:
                tried.add(column)
                if column not in row_of or pair(row_of[column], tried):
                    row_of[column] = row
                    return True
        return False

    return sum(pair(row, set()) for row in range(len(fits)))


def _longest_in_order(fits: Sequence[Sequence[bool]]) -> int:
    """Return how many rows at most have a fitting column each, in the order of both."""
    best = [0] * (len(fits[0]) + 1) if fits else [0]
    for row in fits:
        above = best[:]
        for column, fit in enumerate(row, 1):
            best[column] = max(above[column], best[column - 1], above[column - 1] + fit)
    return best[-1]


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """1 where all tool calls of the transcript, of any agent, keep to every rule.

    `before` are pairs of tools: the second is never called before the first. `required` tools are
    called at least once, `forbidden` ones never, and with `only` no tool outside that list. At most
    `most_calls` are made in all, and of a tool as many as `most` says. With `partial` the value is the
    share of rules that are kept.
    """

    before: tuple[tuple[str, str], ...] = ()
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    most_calls: int | None = None
    most: Mapping[str, int] | None = None
    partial: bool = False

    def __post_init__(self) -> None:
        if not list(self._verdicts(())):
            raise UsageError(
                "scorer 'trajectory' has no rule: set before, required, forbidden, only, most_calls or most"
            )

    def check(self, task: Task) -> None:
        """Accept any task: the rules are the settings."""

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Check every rule."""
        names = [call.name for call in outcome.tool_calls]
        verdicts = list(self._verdicts(names))
        broken = [why for why in verdicts if why is not None]
        share = 1 - len(broken) / len(verdicts)
        return Score(
            scorer="trajectory",
            value=share if self.partial else float(not broken),
            explanation="; ".join(broken) or None,
            details={"calls": len(names), "rules": len(verdicts), "broken": len(broken)},
        )

    def _verdicts(self, names: Sequence[str]) -> Iterator[str | None]:
        """Yield for each rule how *names* break it, or None."""
        made = Counter(names)
        for first, second in self.before:
            early = second in made and first not in names[: names.index(second)]
            yield f"{second} was called before {first}" if early else None
        for name in self.required:
            yield None if name in made else f"{name} was never called"
        for name in self.forbidden:
            yield f"{name} was called" if name in made else None
        if self.only is not None:
            outside = [name for name in made if name not in self.only]
            yield f"called outside the list: {', '.join(outside)}" if outside else None
        if self.most_calls is not None:
            many = len(names)
            yield f"{many} calls, at most {self.most_calls}" if many > self.most_calls else None
        for name, most in (self.most or {}).items():
            yield f"{name}: {made[name]} calls, at most {most}" if made[name] > most else None
