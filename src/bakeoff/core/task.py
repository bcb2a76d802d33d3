"""What is asked: tasks and suites."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from bakeoff._lib.digest import digest
from bakeoff._lib.value_object import value_object
from bakeoff.core.dialogue import Dialogue
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.values import Json
from bakeoff.core.workspace import Workspace


@value_object
class ToolCall:
    """A tool that a model wants to be run; `arguments` is the JSON it wrote, as it wrote it."""

    id: str
    name: str
    arguments: str

    @property
    def parsed(self) -> Json:
        """The arguments as data; None where the model wrote no JSON."""
        try:
            value: Json = json.loads(self.arguments)
        except (ValueError, RecursionError):
            return None
        return value


def calls_as_json(calls: Sequence[ToolCall]) -> str:
    """Return *calls* as a JSON list of `name` and `arguments`; broken arguments as their text."""
    listed = [
        {"name": c.name, "arguments": c.arguments if c.parsed is None else c.parsed} for c in calls
    ]
    return json.dumps(listed, ensure_ascii=False)


@value_object
class Message:
    """One turn of a conversation; `tool_call_id` says which call a tool's message answers."""

    role: str
    content: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None

    def wire(self) -> dict[str, Json]:
        """Return the message as OpenAI's chat API takes it."""
        wire: dict[str, Json] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            wire["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.tool_calls
            ]
        if self.tool_call_id is not None:
            wire["tool_call_id"] = self.tool_call_id
        return wire


@value_object
class ScorerSpec:
    """A scorer by name, with its settings and its share of the task's score.

    `origin` is where it was written, for messages alone. One that is not `trusted` was named by a
    suite, which may not run Python by itself.
    """

    name: str
    settings: Mapping[str, Json] = field(default_factory=dict)
    weight: float = 1.0
    origin: SourceLocation | None = field(default=None, compare=False, repr=False)
    trusted: bool = field(default=True, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One problem: messages, how they are to be asked, and how the answer is checked.

    With a `workspace` it is to be solved there: what counts is what was changed in it. With a
    `dialogue`, the messages are only how it begins: an instructor goes on from there.
    Where there is `trouble`, it cannot be tried at all: each of its trials is that fault.
    `prompt` is what a completions API is sent instead of the messages; None is their own text.
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
    workspace: Workspace | None = None
    trouble: str | None = None
    dialogue: Dialogue | None = None
    prompt: str | None = None

    def identity(self) -> dict[str, Json]:
        """Return what makes this task this task and no other."""
        where = {} if self.workspace is None else {"workspace": self.workspace.identity()}
        trouble = {} if self.trouble is None else {"trouble": self.trouble}
        dialogue = {} if self.dialogue is None else {"dialogue": self.dialogue.identity()}
        prompt = {} if self.prompt is None else {"prompt": self.prompt}
        return {
            **where,
            **trouble,
            **dialogue,
            **prompt,
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
