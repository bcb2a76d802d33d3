"""A custom agent: asks its model once, and writes the reply into answer.txt in its box."""

from bakeoff import Command, Context, Message, Outcome, Request, Task


class Scribe:
    """So small that any model can do something with it."""

    async def solve(self, task: Task, context: Context) -> Outcome:
        asked = Request(
            messages=task.messages, parameters={"max_tokens": 48}, rollout=context.rollout
        )
        said = await context.model.complete(asked)
        if context.workspace is not None:
            write = Command(argv=("sh", "-c", "cat > answer.txt"), stdin=said.text.encode())
            await context.workspace.box.run(write)
        return Outcome(answer=said.text, transcript=(Message(role="assistant", content=said.text),))
