"""The bare model: one prompt, one completion."""

from dataclasses import replace

from bakeoff._lib.value_object import value_object
from bakeoff.agents.task_fit import refuse_files_only
from bakeoff.core.outcome import Outcome, Request
from bakeoff.core.ports import Context
from bakeoff.core.task import Message, Task

SYSTEM = "system"


def with_system_prompt(
    messages: tuple[Message, ...], system_prompt: str | None
) -> tuple[Message, ...]:
    """Return *messages* with *system_prompt* first; some endpoints take one system message only."""
    if not system_prompt:
        return messages
    if messages and messages[0].role == SYSTEM:
        first = replace(messages[0], content=f"{system_prompt}\n\n{messages[0].content}")
        return (first, *messages[1:])
    return (Message(role=SYSTEM, content=system_prompt), *messages)


@value_object
class Direct:
    """Sends the task's messages unchanged and returns the model's answer.

    Tool calls are not run: they are part of the answer. A `system_prompt` comes first.
    """

    system_prompt: str | None = None

    def check(self, task: Task) -> None:
        """Refuse a task that is graded by its files alone."""
        refuse_files_only(task, "direct")

    async def solve(self, task: Task, context: Context) -> Outcome:
        """Ask once."""
        completion = await context.model.complete(
            Request(
                messages=with_system_prompt(task.messages, self.system_prompt),
                parameters=task.parameters,
                api_type=task.api_type,
                rollout=context.rollout,
                prompt=None if self.system_prompt else task.prompt,
            )
        )
        reply = Message(
            role="assistant",
            content=completion.text,
            reasoning=completion.reasoning,
            tool_calls=completion.tool_calls,
        )
        return Outcome(
            answer=completion.answer,
            transcript=(reply,),
            stop_reason=completion.stop_reason,
            model=completion.model,
            raw=completion.raw,
        )
