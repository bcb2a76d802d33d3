"""The candidate of a dialogue: an ordinary agent that is told one message after another.

It is given the task without the dialogue, and a kit without the roles: it cannot know what they do.
"""

from dataclasses import replace
from typing import Protocol, runtime_checkable

from bakeoff._lib.untrusted import well_formed
from bakeoff.agents.attended import GoesOn
from bakeoff.agents.dialogue_tape import Tape
from bakeoff.core.dialogue import AGENT
from bakeoff.core.journal import Journal
from bakeoff.core.outcome import Completion, Outcome, Request
from bakeoff.core.ports import Agent, Context, Model
from bakeoff.core.task import Message, Task


@runtime_checkable
class Leaves(Protocol):
    """An agent that holds something in its room for as long as the conversation goes on."""

    async def leave(self, kit: Context) -> None:
        """Give it back."""


class _Taped:
    """The candidate's model in one turn; what it answers is saved."""

    def __init__(self, tape: Tape, model: Model, turn: int) -> None:
        self._tape = tape
        self._model = model
        self._turn = turn

    async def complete(self, request: Request) -> Completion:
        """Answer from the tape, else ask."""
        return await self._tape.ask(AGENT, self._turn, self._model, request)


class Candidate:
    """Tells an agent what the instructor says, and knows what was said until now.

    An agent that can go on is told each message; any other is given the whole conversation anew.
    """

    def __init__(self, agent: Agent, task: Task, kit: Context, tape: Tape) -> None:
        self._agent = agent
        self._task = _shown(task)
        self._journal = kit.journal or Journal()
        self._model = kit.model
        self._kit = replace(kit, roles={}, bench=None, checkpoint=None, journal=self._journal)
        self._tape = tape
        self._talk: list[Message] = []
        self._begun: Task | None = None
        self.left: Outcome | None = None

    async def answer(self, message: str, turn: int) -> str:
        """Return what the agent says to *message*."""
        said = Message(role="user", content=well_formed(message))
        self._talk.append(said)
        kit = replace(self._kit, model=_Taped(self._tape, self._model, turn))
        if not isinstance(self._agent, GoesOn):
            self.left = await self._anew(said.content, kit, turn)
        elif self._begun is None:
            self._begun = replace(self._task, messages=(*self._task.messages, said))
            self.left = await self._agent.solve(self._begun, kit)
        else:
            self.left = await self._agent.go_on(self._begun, kit, said.content)
        reply = well_formed(self.left.answer)
        self._talk.append(Message(role="assistant", content=reply))
        return reply

    async def _anew(self, message: str, kit: Context, turn: int) -> Outcome:
        """Return what an agent leaves that is given the whole conversation; once without a room."""
        if kit.room is None and (before := self._tape.replied(turn, message)) is not None:
            return before
        whole = replace(self._task, messages=(*self._task.messages, *self._talk))
        left = await self._agent.solve(whole, kit)
        if kit.room is None:
            await self._tape.save_reply(turn, message, left)
        return left

    def transcript(self) -> tuple[Message, ...]:
        """Return what was said to the agent, by it, and by its tools where it told them."""
        own = self._journal.messages
        if self._begun is None or self._kit.door is not None or not own:
            return tuple(self._talk)
        return (self._talk[0], *own)

    async def leave(self) -> None:
        """Let the agent give back what it holds."""
        if isinstance(self._agent, Leaves):
            await self._agent.leave(self._kit)


def _shown(task: Task) -> Task:
    """Return *task* as the candidate may know it: nothing of the roles, nothing of its grade."""
    workspace = task.workspace
    if workspace is not None:
        workspace = replace(workspace, hidden=(), protected=(), reference=None)
    return replace(task, dialogue=None, target=None, scorers=(), metadata={}, workspace=workspace)
