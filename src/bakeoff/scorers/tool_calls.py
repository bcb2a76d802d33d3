"""The scorer `tool-calls`: which tools a model called, and with which arguments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.task import Task, ToolCall
from bakeoff.core.values import Json
from bakeoff.scorers.json_answer import same

_KEYS = frozenset({"name", "arguments"})


@dataclass(frozen=True, kw_only=True)
class ToolCalls:
    """1 where the model called the expected tools, no more and no fewer, in this order.

    A call is expected as the name of a tool, or as an object with `name` and `arguments`: those must
    be there and equal, further arguments are free unless `exact`. What is expected is `calls`, else
    the task's target; an empty list expects no call. With `any_order` the order is free. With
    `partial` the value is the share of calls that match, of the expected or made ones, whichever are
    more.
    """

    calls: list[Json] | None = None
    any_order: bool = False
    exact: bool = False
    partial: bool = False

    def __post_init__(self) -> None:
        if self.calls is not None:
            _check_calls(self.calls, "scorer 'tool-calls': `calls`")

    def check(self, task: Task) -> None:
        """Refuse a task that does not say which calls are expected."""
        if self.calls is not None:
            return
        if task.target is None:
            raise UsageError(
                f"task {task.id!r}: scorer 'tool-calls' needs `expected`, or the setting `calls`; "
                'write [{"name": "TOOL", "arguments": {}}], or [] where no tool should be called',
                task=task.id,
            )
        _check_calls(_listed(task.target), f"task {task.id!r}: `expected`", task=task.id)

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Compare the calls with the expected ones."""
        expected = _listed(task.target) if self.calls is None else self.calls
        made = outcome.tool_calls
        fits = [[self._fits(call, wanted) for call in made] for wanted in expected]
        in_order = sum(row[n] for n, row in enumerate(fits) if n < len(made))
        matched = _most_pairs(fits) if self.any_order else in_order
        most = max(len(expected), len(made))
        share = matched / most if most else 1.0
        names = ", ".join(call.name for call in made) or "no tool"
        return Score(
            scorer="tool-calls",
            value=share if self.partial else float(share == 1),
            explanation=None
            if share == 1
            else f"{matched} of {len(expected)} expected calls match; it called {names}",
            details={"expected": len(expected), "made": len(made), "matched": matched},
        )

    def _fits(self, call: ToolCall, expected: Json) -> bool:
        if not isinstance(expected, Mapping):
            return call.name == expected
        arguments = expected.get("arguments", {})
        given = call.parsed
        if call.name != expected["name"] or not isinstance(arguments, Mapping):
            return False
        if not isinstance(given, Mapping):
            return not arguments and not self.exact
        if self.exact and "arguments" in expected:
            return same(given, arguments)
        return all(key in given and same(given[key], arguments[key]) for key in arguments)


def _listed(target: Json) -> list[Json]:
    return list(target) if isinstance(target, list | tuple) else [target]


def _check_calls(calls: Sequence[Json], what: str, *, task: str | None = None) -> None:
    for call in calls:
        plain = isinstance(call, str)
        full = (
            isinstance(call, Mapping)
            and isinstance(call.get("name"), str)
            and isinstance(call.get("arguments", {}), Mapping)
            and set(call) <= _KEYS
        )
        if not plain and not full:
            raise UsageError(
                f"{what}: {call!r} is no tool call; write the name of a tool, or "
                '{"name": "TOOL", "arguments": {"KEY": "VALUE"}}',
                task=task,
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
