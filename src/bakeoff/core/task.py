"""What is asked: tasks and suites."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from bakeoff._lib.digest import digest
from bakeoff._lib.value_object import value_object
from bakeoff.core.attachment import TEXT, Attachment
from bakeoff.core.dialogue import Dialogue
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.tools import TaskTools
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
    """One turn of a conversation; `tool_call_id` says which call a tool's message answers.

    `content` is its text; pictures and files stand in it where their `at` says.
    """

    role: str
    content: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    attachments: tuple[Attachment, ...] = ()

    def with_text(self, text: str) -> "Message":
        """Return the message with another *text*, which its attachments then stand before."""
        before = tuple(replace(a, at=0) for a in self.attachments)
        return replace(self, content=text, attachments=before)

    def with_attachments(self, change: Callable[[Attachment], Attachment]) -> "Message":
        """Return the message with each attachment as *change* makes it."""
        return replace(self, attachments=tuple(map(change, self.attachments)))

    def parts(self) -> Iterator[str | Attachment]:
        """Yield texts, pictures and documents in their order; a text file is a text."""
        text, taken = "", 0
        for attachment in sorted(self.attachments, key=lambda each: each.at):
            text += self.content[taken : attachment.at]
            taken = max(taken, attachment.at)
            if attachment.media_type == TEXT:
                text += attachment.text()
                continue
            if text:
                yield text
            yield attachment
            text = ""
        if rest := text + self.content[taken:]:
            yield rest

    def rewritten(self, change: Callable[[str], str]) -> "Message":
        """Return the message with each stretch of text between its attachments as *change* makes it."""
        text, taken, moved = "", 0, []
        for attachment in sorted(self.attachments, key=lambda each: each.at):
            if attachment.at > taken:
                text += change(self.content[taken : attachment.at])
                taken = attachment.at
            moved.append(replace(attachment, at=len(text)))
        rest = self.content[taken:]
        return replace(
            self, content=text + change(rest) if rest else text, attachments=tuple(moved)
        )

    @property
    def described(self) -> str:
        """The text, with what each attachment is in brackets."""
        text = self.content
        for attachment in sorted(self.attachments, key=lambda each: each.at, reverse=True):
            before, after = text[: attachment.at], text[attachment.at :]
            gap = "" if not after or after[0].isspace() else " "
            text = f"{before}[{attachment.label}]{gap}{after}"
        return text

    def identity(self) -> dict[str, Json]:
        """Return what the message is: what a model reads of it."""
        wire = self.wire()
        if self.attachments:
            wire["attachments"] = [attachment.identity() for attachment in self.attachments]
        return wire

    def wire(self) -> dict[str, Json]:
        """Return the message as OpenAI's chat API takes it, without its attachments."""
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
    suite, which may not run Python by itself. With a `turn`, counted from 1, it scores that turn of a
    scripted conversation alone.
    """

    name: str
    settings: Mapping[str, Json] = field(default_factory=dict)
    weight: float = 1.0
    origin: SourceLocation | None = field(default=None, compare=False, repr=False)
    trusted: bool = field(default=True, compare=False, repr=False)
    turn: int | None = None

    def identity(self) -> dict[str, Json]:
        """Return what the scorer is and how much it counts."""
        turn = {} if self.turn is None else {"turn": self.turn}
        return {
            "name": self.name,
            "settings": dict(self.settings),
            "weight": float(self.weight),
            **turn,
        }

    @property
    def asks_judge(self) -> bool:
        """Whether it needs the role `judge`."""
        by_judge = self.name == "refusal" and self.settings.get("by") == "judge"
        return self.name == "judge" or by_judge


@value_object
class Turn:
    """One turn of a scripted conversation: what is said and shown, and the target of its answer.

    With `stop_on_failure`, the conversation ends here unless every scorer of the turn is satisfied.
    """

    say: str
    expect: Json = None
    stop_on_failure: bool = False
    attachments: tuple[Attachment, ...] = ()

    def message(self) -> Message:
        """Return the turn as what the user says."""
        return Message(role="user", content=self.say, attachments=self.attachments)

    def identity(self) -> dict[str, Json]:
        """Return what the turn asks; what it expects is part of the scoring."""
        shown = [attachment.identity() for attachment in self.attachments]
        return {
            "say": self.say,
            "stop_on_failure": self.stop_on_failure,
            **({"attachments": shown} if shown else {}),
        }


@dataclass(frozen=True, kw_only=True)
class Task:
    """One problem: messages, how they are to be asked, and how the answer is checked.

    With a `workspace` it is to be solved there: what counts is what was changed in it. With a
    `dialogue`, the messages are only how it begins: an instructor goes on from there.
    Where there is `trouble`, it cannot be tried at all: each of its trials is that fault.
    `prompt` is what a completions API is sent instead of the messages; None is their own text.
    `vars` are values that the template of a prompt may insert; without messages it needs one.
    `group` names the cluster that similar tasks form, such as the questions about one text.
    `tools` are offered to the model. With `turns` it is a scripted conversation: the messages end with
    what the first turn says.
    `name`, `category`, `group` and `metadata` describe; everything else is identity.
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
    vars: Mapping[str, Json] = field(default_factory=dict)
    group: str | None = None
    tools: TaskTools | None = None
    turns: tuple[Turn, ...] = ()

    def identity(self) -> dict[str, Json]:
        """Return what makes this task this task and no other."""
        where = {} if self.workspace is None else {"workspace": self.workspace.identity()}
        trouble = {} if self.trouble is None else {"trouble": self.trouble}
        dialogue = {} if self.dialogue is None else {"dialogue": self.dialogue.identity()}
        prompt = {} if self.prompt is None else {"prompt": self.prompt}
        values = {"vars": dict(self.vars)} if self.vars else {}
        tools = {} if self.tools is None else {"tools": self.tools.identity()}
        turns: dict[str, Json] = {}
        if self.turns:
            turns["turns"] = [turn.identity() for turn in self.turns]
            turns["turn_targets"] = [turn.expect for turn in self.turns]
        return {
            **where,
            **trouble,
            **dialogue,
            **prompt,
            **values,
            **tools,
            **turns,
            "id": self.id,
            "messages": [m.identity() for m in self.messages],
            "parameters": dict(self.parameters),
            "target": self.target,
            "scorers": [scorer.identity() for scorer in self.scorers],
            "pass_threshold": float(self.pass_threshold),
            "time_s": None if self.time_s is None else float(self.time_s),
            "api_type": self.api_type,
        }

    @property
    def attachments(self) -> Iterator[Attachment]:
        """Every picture and file of its messages and turns."""
        for message in self.messages:
            yield from message.attachments
        for turn in self.turns:
            yield from turn.attachments

    def with_attachments(self, change: Callable[[Attachment], Attachment]) -> "Task":
        """Return the task with each attachment as *change* makes it: the same content elsewhere."""
        return replace(
            self,
            messages=tuple(message.with_attachments(change) for message in self.messages),
            turns=tuple(
                replace(t, attachments=tuple(map(change, t.attachments))) for t in self.turns
            ),
        )

    @cached_property
    def digest(self) -> str:
        """The digest of the task's content."""
        return digest(self.identity())


@value_object
class Suite:
    """A named, versioned collection of tasks."""

    name: str
    tasks: tuple[Task, ...]
    version: str | None = None
    description: str | None = None


def task_of_turn(task: Task, number: int, history: Sequence[Message] = ()) -> Task:
    """Return turn *number* of *task*, from 1, as a task of its own.

    *history* is what was said between the first message and this turn's own, which it ends with.
    """
    turn = task.turns[number - 1]
    own = tuple(replace(s, turn=None) for s in task.scorers if s.turn == number)
    messages = (*task.messages, *history)
    return replace(task, messages=messages, target=turn.expect, scorers=own, turns=())


def scored_task(task: Task, spec: ScorerSpec) -> Task:
    """Return what *spec* scores: the whole of *task*, or the turn that it is for."""
    return task if spec.turn is None else task_of_turn(task, spec.turn)
