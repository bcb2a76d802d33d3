"""A plain Python function as an agent."""

import inspect
from collections.abc import Callable, Mapping

from bakeoff.core.errors import AgentError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Kit
from bakeoff.core.task import Message, Task
from bakeoff.core.values import Json


class FunctionAgent:
    """Calls `function(task, model, **settings)`; it returns the answer or an Outcome."""

    def __init__(self, function: Callable[..., object], settings: Mapping[str, Json]) -> None:
        self._function = function
        self._settings = settings

    async def solve(self, task: Task, kit: Kit) -> Outcome:
        """Let the function solve the task."""
        answer = self._function(task, kit.model, **self._settings)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, Outcome):
            return answer
        if isinstance(answer, str):
            return Outcome(answer=answer, transcript=(Message(role="assistant", content=answer),))
        raise AgentError(f"it returned {type(answer).__name__}; return a str or an Outcome")
