"""An agent with somebody at its side: the instructor stands in for the person who would help.

Where the agent stops and asks, or stops while the task's visible check fails, the instructor
answers, and the agent goes on. Each such message is one intervention. The instructor is told what
the agent was told, never what is hidden: it has nothing to give away.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from bakeoff._lib.sanitize import well_formed
from bakeoff.agents.programs.output import instruction_of
from bakeoff.core.outcome import Outcome, Request
from bakeoff.core.ports import Agent, Context
from bakeoff.core.sandbox import Command
from bakeoff.core.task import Message, Task

_CHECK_S = 300.0
_MAX_OUTPUT = 8_000
_SYSTEM = """\
You are the person who gave a coding agent the task below. It stopped before the task was done: it \
asks something, or the check fails. Answer it in a few sentences: what you want, what you see, what to \
do next. You cannot write the code for it. Decide what the task leaves open; do not ask back."""


@runtime_checkable
class ResumableAgent(Protocol):
    """An agent that can be told something after it stopped."""

    async def solve(self, task: Task, context: Context) -> Outcome:
        """Work from the start."""

    async def resume(self, task: Task, context: Context, message: str) -> Outcome:
        """Work on in the same room, with what was said."""


@dataclass(frozen=True, kw_only=True)
class WithInterventions:
    """Lets *agent* work, and has the instructor step in, at most `interventions` times."""

    agent: ResumableAgent
    interventions: int

    async def solve(self, task: Task, context: Context) -> Outcome:
        """Work until the agent is done or nobody steps in any more."""
        outcome = await self.agent.solve(task, context)
        for _ in range(self.interventions):
            why = await _intervention_reason(task, context, outcome)
            if why is None:
                break
            message = await _advice(task, context, outcome, why)
            if context.journal is not None:
                context.journal.interventions += 1
            outcome = await self.agent.resume(task, context, message)
        return outcome


def add_interventions(agent: Agent, interventions: int) -> Agent:
    """Return *agent* with the instructor at its side, if it is one that can be told something."""
    if interventions and isinstance(agent, ResumableAgent):
        return WithInterventions(agent=agent, interventions=interventions)
    return agent


async def _intervention_reason(task: Task, context: Context, outcome: Outcome) -> str | None:
    """Return what the instructor is told of the stop; None where the agent seems to be done."""
    workspace = task.workspace
    if workspace is not None and workspace.check is not None and context.workspace is not None:
        ran = await context.workspace.box.run(
            Command(
                argv=("sh", "-c", workspace.check),
                cwd=workspace.start,
                time_s=_CHECK_S,
                most_output=_MAX_OUTPUT,
            )
        )
        if ran.code != 0:
            how = f"exit code {ran.code}" if ran.stopped is None else ran.stopped
            return f"The check `{workspace.check}` fails ({how}):\n{ran.output}"
    return "The agent asks you something." if outcome.answer.rstrip().endswith("?") else None


async def _advice(task: Task, context: Context, outcome: Outcome, why: str) -> str:
    instruction = instruction_of(task)
    question = f"The task:\n{instruction}\n\nWhat the agent said last:\n{outcome.answer}\n\n{why}"
    answer = await context.roles["instructor"].complete(
        Request(
            messages=(
                Message(role="system", content=_SYSTEM),
                Message(role="user", content=well_formed(question)),
            ),
            rollout=context.rollout,
        )
    )
    return well_formed(answer.text)
