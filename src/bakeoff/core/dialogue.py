"""A task that is told bit by bit: what the instructor wants, what it knows, and who watches it."""

from typing import Literal

from bakeoff._lib.value_object import value_object
from bakeoff.core.values import Json

Mode = Literal["user", "shard_user"]

INSTRUCTOR, SUPERVISOR, AGENT = "instructor", "supervisor", "agent"
"""The three parties of a dialogue; the first two are roles of the conditions."""


@value_object
class Dialogue:
    """What the people around the agent know; the agent is told none of it, only what they say.

    The instructor plays the user who wants the work done: it has an `objective`, its own `knowledge` and
    a `reference`, which it may be guided by and must not give away. The supervisor holds every
    message of the instructor against `supervision`, or else against the reference. In the mode
    `shard_user` there is no supervisor, and the instructor has `shards`, of which it reveals a few a turn.

    An `opening` is the first message as it stands. The answer that is scored is the last thing the
    agent says, or `all` that it said: a conversation may well end with a farewell. The prompts take
    the place of our own words on how to play a role.
    """

    objective: str
    knowledge: str = ""
    reference: str = ""
    supervision: str = ""
    shards: tuple[str, ...] = ()
    opening: str | None = None
    max_turns: int = 20
    mode: Mode = "user"
    answer: Literal["last", "all"] = "last"
    instructor_prompt: str | None = None
    supervisor_prompt: str | None = None

    def identity(self) -> dict[str, Json]:
        """Return all of it: every word may change how a conversation goes."""
        return {
            "objective": self.objective,
            "knowledge": self.knowledge,
            "reference": self.reference,
            "supervision": self.supervision,
            "shards": list(self.shards),
            "opening": self.opening,
            "max_turns": self.max_turns,
            "mode": self.mode,
            "answer": self.answer,
            "instructor_prompt": self.instructor_prompt,
            "supervisor_prompt": self.supervisor_prompt,
        }


@value_object
class DialogueTurn:
    """One message to the agent, and what came of it.

    `speaker` is who said it: the instructor, the supervisor in its place, or the `opening` of the
    task, or the `wrap-up` when all shards are told. A `contradictory` one mostly has a `follow_up`
    that is said next. `marks` say where a role did not play its part.
    """

    number: int
    speaker: str
    message: str
    reply: str = ""
    end: bool = False
    shards: tuple[int, ...] = ()
    contradictory: bool = False
    follow_up: str | None = None
    marks: tuple[str, ...] = ()
