"""An agent of one's own: asks its model once, and writes what it says into answer.txt in its box."""

from bakeoff import Message, Outcome, Request
from bakeoff.core.boxes import Command
from bakeoff.core.ports import Kit
from bakeoff.core.task import Task


class Scribe:
    """So small that any model can do something with it."""

    async def solve(self, task: Task, kit: Kit) -> Outcome:
        asked = Request(messages=task.messages, parameters={"max_tokens": 48}, rollout=kit.rollout)
        said = await kit.model.complete(asked)
        if kit.room is not None:
            write = Command(argv=("sh", "-c", "cat > answer.txt"), stdin=said.text.encode())
            await kit.room.box.run(write)
        return Outcome(answer=said.text, transcript=(Message(role="assistant", content=said.text),))
