"""A model whose code runs in the box: it thinks, runs Python in a session that lasts, and answers."""

import json
import re
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from bakeoff._lib.untrusted import well_formed
from bakeoff.agents.code_session import CodeSession, SessionSettings
from bakeoff.core.errors import ProviderError, UsageError
from bakeoff.core.journal import Journal
from bakeoff.core.outcome import Completion, Outcome, Request, Tool
from bakeoff.core.ports import Kit
from bakeoff.core.task import Message, Task, ToolCall

_SYSTEM = """\
You can run Python. Call the tool `run_code`; if you cannot call tools, write the code in a block:
```python
the code
```
It runs in a session that lasts: variables and imports stay. You are told what it printed, and the \
value of its last line. When you have what you need, answer in plain words without code."""
_RUN_CODE = Tool(
    name="run_code",
    description="Run Python code in a session that lasts, and return what it printed.",
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string"}},
        "required": ["code"],
    },
)
_FENCED = re.compile(r"^```(?:python|py)[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class CodeSessionAgent:
    """Answers after running as much Python as it wants, at most `steps` pieces for each message."""

    steps: int = 20
    cell_s: float = 120.0
    most_output: int = 12_000
    python: str = "python3"
    _sessions: WeakKeyDictionary[Journal, CodeSession] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    async def solve(self, task: Task, kit: Kit) -> Outcome:
        """Answer the first message."""
        return await self._answer(task, kit)

    async def go_on(self, task: Task, kit: Kit, message: str) -> Outcome:
        """Answer another message, in the same session."""
        if kit.journal is not None:
            kit.journal.say(Message(role="user", content=message))
        return await self._answer(task, kit)

    async def leave(self, kit: Kit) -> None:
        """End the session."""
        session = self._sessions.pop(kit.journal, None) if kit.journal is not None else None
        if session is not None:
            await session.close()

    async def _answer(self, task: Task, kit: Kit) -> Outcome:
        session, journal = self._session(task, kit)
        last: Completion | None = None
        tools: tuple[Tool, ...] = (_RUN_CODE,)
        for _ in range(self.steps):
            try:
                last = await kit.model.complete(_request(task, journal, tools, kit.rollout))
            except ProviderError as error:
                if not tools or error.transient or "tool" not in str(error).lower():
                    raise
                tools = ()
                continue
            reply = Message(
                role="assistant",
                content=well_formed(last.text),
                reasoning=last.reasoning,
                tool_calls=last.tool_calls,
            )
            journal.say(reply)
            seen = await _obey(reply, session)
            if not seen:
                return _outcome(journal, last, session, last.stop_reason)
            journal.say(*seen)
        return _outcome(journal, last, session, f"{self.steps} steps are spent")

    def _session(self, task: Task, kit: Kit) -> tuple[CodeSession, Journal]:
        if kit.room is None or kit.journal is None or task.workspace is None:
            raise UsageError(
                f"agent 'code-session' needs a workspace, and task {task.id!r} has none"
            )
        session = self._sessions.get(kit.journal)
        if session is None:
            settings = SessionSettings(
                cell_s=self.cell_s, most_output=self.most_output, python=self.python
            )
            session = CodeSession(kit.room.box, task.workspace.start, settings)
            self._sessions[kit.journal] = session
        return session, kit.journal


async def _obey(reply: Message, session: CodeSession) -> list[Message]:
    """Return what came of all code in *reply*; nothing where there was none."""
    seen = []
    for call in reply.tool_calls:
        code = _code(call)
        told = "There is one tool, `run_code`, and it takes one text: `code`."
        if code is not None:
            told = (await session.run(code)).shown()
        seen.append(Message(role="tool", content=told, tool_call_id=call.id))
    if not seen:
        for code in _FENCED.findall(reply.content)[:1]:
            told = (await session.run(code)).shown()
            seen.append(Message(role="user", content=f"What it printed:\n{told}"))
    return seen


def _code(call: ToolCall) -> str | None:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return None
    code = arguments.get("code") if isinstance(arguments, dict) else None
    return code if call.name == _RUN_CODE.name and isinstance(code, str) else None


def _request(task: Task, journal: Journal, tools: tuple[Tool, ...], rollout: int) -> Request:
    system = Message(role="system", content=_SYSTEM)
    return Request(
        messages=(system, *task.messages, *journal.messages),
        parameters=task.parameters,
        tools=tools,
        rollout=rollout,
    )


def _outcome(
    journal: Journal, last: Completion | None, session: CodeSession, why: str | None
) -> Outcome:
    return Outcome(
        answer=last.text if last else "",
        transcript=tuple(journal.messages),
        stop_reason=why,
        model=last.model if last else None,
        notes={"code_cells": session.cells},
    )
