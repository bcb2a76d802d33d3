"""A model whose code runs in the box: it thinks, runs Python in a session that lasts, and answers."""

import re
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from bakeoff.agents.code_session import CodeSession, SessionSettings
from bakeoff.agents.one_tool import OneTool
from bakeoff.agents.task_fit import workspace_of
from bakeoff.core.errors import SandboxError
from bakeoff.core.journal import Journal
from bakeoff.core.outcome import Outcome, Tool
from bakeoff.core.ports import Context
from bakeoff.core.task import Message, Task

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
_CODE = OneTool(system=_SYSTEM, tool=_RUN_CODE, argument="code", fenced=_FENCED)


@dataclass(frozen=True, kw_only=True)
class CodeSessionAgent:
    """Answers after running as much Python as it wants, at most `steps` pieces for each message."""

    steps: int = 20
    cell_s: float = 120.0
    most_output: int = 12_000
    python: str = "python3"
    system_prompt: str | None = None
    _sessions: WeakKeyDictionary[Journal, CodeSession] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def check(self, task: Task) -> None:
        """Refuse a task without files to work on."""
        workspace_of(task, "code-session")

    async def solve(self, task: Task, kit: Context) -> Outcome:
        """Answer the first message."""
        return await self._answer(task, kit)

    async def go_on(self, task: Task, kit: Context, message: str) -> Outcome:
        """Answer another message, in the same session."""
        if kit.journal is not None:
            kit.journal.say(Message(role="user", content=message))
        return await self._answer(task, kit)

    async def leave(self, kit: Context) -> None:
        """End the session."""
        session = self._sessions.pop(kit.journal, None) if kit.journal is not None else None
        if session is not None:
            await session.close()

    async def _answer(self, task: Task, kit: Context) -> Outcome:
        session, journal = self._session(task, kit)

        async def look(code: str) -> str:
            return (await session.run(code)).shown()

        ended = await _CODE.prompted(self.system_prompt).use(
            task, kit, journal, look, steps=self.steps
        )
        return Outcome(
            answer=ended.last.text if ended.last else "",
            transcript=tuple(journal.messages),
            stop_reason=ended.why,
            model=ended.last.model if ended.last else None,
            notes={"code_cells": session.cells},
        )

    def _session(self, task: Task, kit: Context) -> tuple[CodeSession, Journal]:
        workspace = workspace_of(task, "code-session")
        if kit.room is None or kit.journal is None:
            raise SandboxError("agent 'code-session' was given no box to work in")
        session = self._sessions.get(kit.journal)
        if session is None:
            settings = SessionSettings(
                cell_s=self.cell_s, most_output=self.most_output, python=self.python
            )
            session = CodeSession(kit.room.box, workspace.start, settings)
            self._sessions[kit.journal] = session
        return session, kit.journal
