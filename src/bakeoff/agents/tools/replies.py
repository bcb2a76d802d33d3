"""What answers the tool calls of one attempt: rules, fixed replies, Python functions, a server."""

import inspect
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.sanitize import well_formed
from bakeoff._lib.threads import run_in_thread
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import AgentError, boundary
from bakeoff.core.outcome import Tool
from bakeoff.core.task import ToolCall
from bakeoff.core.tools import ToolRule, ToolSpec
from bakeoff.core.values import Json, includes_json, same_json

Functions = Mapping[str, Callable[..., object]]
"""The Python functions that tools name, by `module:attr`."""


@value_object
class ToolReply:
    """The answer to a call; with `error`, that it could not be answered."""

    text: str
    error: bool = False


def refusal(why: str) -> ToolReply:
    """Return a reply that says why a call has no answer."""
    return ToolReply(text=json.dumps({"error": why}, ensure_ascii=False), error=True)


class LiveTool(Protocol):
    """A tool that is offered in one attempt; one that is not `answered` ends the answer."""

    tool: Tool
    answered: bool

    async def answer(self, arguments: Mapping[str, Json]) -> ToolReply:
        """Return the reply to a call with *arguments*."""


class OpenTools:
    """The tools of one attempt."""

    def __init__(self, live: Sequence[LiveTool]) -> None:
        self._live = {entry.tool.name: entry for entry in live}
        if len(self._live) < len(live):
            twice = [name for name, n in Counter(e.tool.name for e in live).items() if n > 1]
            raise AgentError(
                f"two tools are called {twice[0]!r}; rename one, or choose some with `only`"
            )
        self.offered = tuple(entry.tool for entry in live)

    def answers(self, calls: Sequence[ToolCall]) -> bool:
        """Whether *calls* can be answered; a tool that does not exist is answered with an error."""
        known = [self._live[call.name] for call in calls if call.name in self._live]
        return bool(self._live) and all(entry.answered for entry in known)

    async def answer(self, call: ToolCall) -> ToolReply:
        """Return the reply to *call*, an error where the model got the name or the arguments wrong."""
        entry = self._live.get(call.name)
        if entry is None:
            return refusal(f"there is no tool {call.name!r}: {did_you_mean(call.name, self._live)}")
        arguments = call.parsed
        if not isinstance(arguments, Mapping):
            return refusal("the arguments are not a JSON object")
        return await entry.answer(arguments)


class ScriptedTool:
    """A tool that answers by the rules, the function or the fixed replies of its spec."""

    def __init__(self, spec: ToolSpec, functions: Functions) -> None:
        self.tool = Tool(
            name=spec.name, description=spec.description, parameters=dict(spec.parameters)
        )
        self.answered = spec.answered
        self._spec = spec
        self._function = None if spec.function is None else functions[spec.function]
        self._used: Counter[int | None] = Counter()  # replies given, by the number of their rule

    async def answer(self, arguments: Mapping[str, Json]) -> ToolReply:
        """Return the reply of the first fitting rule, else of the function, else the next fixed one."""
        for number, rule in enumerate(self._spec.rules):
            if _fits(rule, arguments):
                return self._next(rule.replies, number)
        if self._function is not None:
            return await _call_function(self._function, arguments, self._spec)
        if self._spec.replies:
            return self._next(self._spec.replies, None)
        return refusal("there is no reply for these arguments")

    def _next(self, replies: Sequence[Json], rule: int | None) -> ToolReply:
        number = min(self._used[rule], len(replies) - 1)
        self._used[rule] += 1
        return ToolReply(text=_text(replies[number]))


def _fits(rule: ToolRule, arguments: Mapping[str, Json]) -> bool:
    return same_json(arguments, rule.when) if rule.exact else includes_json(arguments, rule.when)


def _text(reply: Json) -> str:
    return reply if isinstance(reply, str) else json.dumps(reply, ensure_ascii=False)


async def _call_function(
    function: Callable[..., object], arguments: Mapping[str, Json], spec: ToolSpec
) -> ToolReply:
    """Call a function of the user's; only arguments that it does not take are the model's mistake."""
    what = f"tool {spec.name!r} ({spec.function})"
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        return refusal(str(error))
    call = partial(function, **arguments)
    with boundary(AgentError, what):
        result = call() if inspect.iscoroutinefunction(function) else await run_in_thread(call)
        if inspect.isawaitable(result):
            result = await result
        if isinstance(result, str):
            return ToolReply(text=well_formed(result))
        try:
            return ToolReply(text=json.dumps(result, ensure_ascii=False, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise AgentError(
                f"{what} returned what is no plain data: {error}; return a text, a number, a list "
                "or a mapping"
            ) from error
