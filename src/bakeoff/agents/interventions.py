"""Interventions: the instructor plays the person who helps an agent that stopped too early.

When the agent stops with a question, or while the task's visible check fails, the instructor
answers, and the agent resumes. Each such message is one intervention. The instructor knows what the
agent was told and nothing hidden, so it cannot leak anything.
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
    """An agent that can continue with a new message after it stopped."""

    async def solve(self, task: Task, context: Context) -> Outcome:
        """Work on *task* from the start."""

    async def resume(self, task: Task, context: Context, message: str) -> Outcome:
        """Continue in the same workspace with *message*."""


@dataclass(frozen=True, kw_only=True)
class WithInterventions:
    """Runs *agent* with at most `interventions` messages of the instructor."""

    agent: ResumableAgent
    interventions: int

    async def solve(self, task: Task, context: Context) -> Outcome:
        """Work until the agent is done or the interventions are used up."""
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
    """Return *agent* with interventions, if it is resumable."""
    if interventions and isinstance(agent, ResumableAgent):
        return WithInterventions(agent=agent, interventions=interventions)
    return agent


async def _intervention_reason(task: Task, context: Context, outcome: Outcome) -> str | None:
    """Return why the instructor should intervene; None where the agent seems to be done."""
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
