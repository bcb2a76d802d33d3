"""What a program asked, whatever it speaks: one question in our own nouns.

Only parameters that every adapter understands are carried on. A program guesses the rest from a
model's name, and the model that answers here is another one; the candidate's own parameters say
how it is to be asked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bakeoff.core.outcome import Request, Tool
from bakeoff.core.task import Message
from bakeoff.core.values import Json

_LETTERS_PER_TOKEN = 4  # of English text and code, roughly; no tokenizer here knows the model
_TEXT_ONLY = "the gateway carries text only; send the content as text, or leave it out"


class NotUnderstoodError(ValueError):
    """A request that cannot be carried on; the message says why."""


def text_only(kind: str, where: str) -> NotUnderstoodError:
    """Return the refusal of content that is no text."""
    return NotUnderstoodError(f"{where} holds {kind!r}: {_TEXT_ONLY}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A question as it was understood; `notes` say what of it is not carried on.

    `model` is what the program calls the model, and is told again. `system` are the prompts that
    stand before the conversation. `free_form` names tools whose argument is one plain text.
    """

    model: str
    messages: tuple[Message, ...]
    system: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    parameters: Mapping[str, Json] = field(default_factory=dict)
    schema: Mapping[str, Json] | None = None
    stream: bool = False
    with_usage: bool = True
    free_form: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    def request(self, messages: Sequence[Message], *, rollout: int) -> Request:
        """Return the question as a model takes it, with *messages* as the conversation."""
        # one: the templates of many local models refuse a second
        system = Message(role="system", content="\n\n".join(self.system))
        return Request(
            messages=(system, *messages) if self.system else tuple(messages),
            parameters=self.parameters,
            schema=self.schema,
            tools=self.tools,
            rollout=rollout,
        )

    def estimated_tokens(self) -> int:
        """Return about how many tokens the question has."""
        contents = [m.content for m in self.messages]
        called = [call.name + call.arguments for m in self.messages for call in m.tool_calls]
        tools = [f"{t.name}{t.description}{t.parameters}" for t in self.tools]
        letters = sum(len(text) for text in (*self.system, *contents, *called, *tools))
        return max(1, -(-letters // _LETTERS_PER_TOKEN))


def opening_system(messages: Iterable[Message]) -> tuple[tuple[str, ...], tuple[Message, ...]]:
    """Return the system prompts that stand before the first answer, and the rest.

    Programs put some of them behind the first question, where many local models refuse them.
    """
    whole = tuple(messages)
    answers = (place for place, message in enumerate(whole) if message.role == "assistant")
    first = next(answers, len(whole))
    system = tuple(m.content for m in whole[:first] if m.role == "system" and m.content)
    return system, (*(m for m in whole[:first] if m.role != "system"), *whole[first:])


def given(**parameters: Json) -> dict[str, Json]:
    """Return the parameters that were given."""
    return {name: value for name, value in parameters.items() if value is not None}


def left_out(**parameters: object) -> list[str]:
    """Return a note for each parameter that was asked for and is not carried on."""
    return [f"the parameter {name!r}" for name, wish in parameters.items() if wish]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """Which tools the model may or must call: `auto`, `none`, `required`, or one by its name."""

    mode: str = "auto"
    name: str | None = None

    def over(self, tools: Sequence[Tool]) -> tuple[tuple[Tool, ...], Json]:
        """Return the tools to offer, and the parameter that says how they may be used.

        No adapter knows how each API forces one tool; being the only one, it is forced by
        `required`.
        """
        if not tools or (self.mode == "auto" and self.name is None):
            return tuple(tools), None
        if self.name is None:
            return tuple(tools), self.mode
        only = tuple(tool for tool in tools if tool.name == self.name)
        if not only:
            raise NotUnderstoodError(f"tool_choice names {self.name!r}, which is not in `tools`")
        return only, "required"
