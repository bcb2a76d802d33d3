"""What is asked: tasks and suites."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from bakeoff._lib.digest import digest
from bakeoff.core.values import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str
    reasoning: str | None = None

    def wire(self) -> dict[str, Json]:
        """Return the message as chat APIs take it."""
        return {"role": self.role, "content": self.content}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerSpec:
    """A scorer by name, with its settings and its share of the task's score."""

    name: str
    settings: Mapping[str, Json] = field(default_factory=dict)
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Task:
    """One problem: messages, how they are to be asked, and how the answer is checked.

    `name`, `category` and `metadata` describe; everything else is identity.
    """

    id: str
    messages: tuple[Message, ...]
    parameters: Mapping[str, Json] = field(default_factory=dict)
    target: Json = None
    scorers: tuple[ScorerSpec, ...] = ()
    pass_threshold: float = 1.0
    time_s: float | None = None
    api_type: str | None = None
    name: str | None = None
    category: str | None = None
    metadata: Mapping[str, Json] = field(default_factory=dict)

    def identity(self) -> dict[str, Json]:
        """Return what makes this task this task and no other."""
        return {
            "id": self.id,
            "messages": [m.wire() for m in self.messages],
            "parameters": dict(self.parameters),
            "target": self.target,
            "scorers": [
                {"name": s.name, "settings": dict(s.settings), "weight": float(s.weight)}
                for s in self.scorers
            ],
            "pass_threshold": float(self.pass_threshold),
            "time_s": None if self.time_s is None else float(self.time_s),
            "api_type": self.api_type,
        }

    @cached_property
    def digest(self) -> str:
        """The digest of the task's content."""
        return digest(self.identity())


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A named, versioned collection of tasks."""

    name: str
    tasks: tuple[Task, ...]
    version: str | None = None
    description: str | None = None
