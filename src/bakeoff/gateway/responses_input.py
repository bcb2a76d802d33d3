"""What programs ask in OpenAI's Responses API."""

from collections.abc import Mapping, Sequence

import msgspec

from bakeoff.core.outcome import Tool
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.values import Json
from bakeoff.gateway.asked import Asked, NotUnderstoodError, given, opening_system
from bakeoff.gateway.openai import Content, Part, arguments_text, text_in, tool_choice
from bakeoff.gateway.wire import decode, written

FREE_FORM = "input"  # the one argument of a tool that takes plain text

_ROLES = {"developer": "system", "system": "system", "user": "user", "assistant": "assistant"}
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})
_STATEFUL = "the gateway keeps no conversation; send the whole of it as `input`"


class Item(msgspec.Struct):
    """An item of the input, of whichever kind."""

    type: str = "message"
    role: str = "user"
    content: Content = None
    summary: list[Part | str] | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Json = None
    input: Json = None
    action: Json = None
    output: Content = None


class Offered(msgspec.Struct):
    """A tool; `format` is the grammar of one that takes free text."""

    type: str = "function"
    name: str = ""
    description: str | None = None
    parameters: dict[str, Json] | None = None
    format: dict[str, Json] | None = None


class Reasoning(msgspec.Struct):
    """How much to think."""

    effort: str | None = None


class Form(msgspec.Struct):
    """The form of an answer."""

    format: dict[str, Json] | None = None


class Question(msgspec.Struct):
    """The body of a request."""

    input: str | list[Item] = ""
    model: str = ""
    instructions: str | None = None
    stream: bool | None = None
    tools: list[Offered] | None = None
    tool_choice: Json = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    reasoning: Reasoning | None = None
    text: Form | None = None
    previous_response_id: str | None = None
    conversation: Json = None


_questions = msgspec.json.Decoder(Question)


def read(body: bytes) -> Asked:
    """Return what was asked."""
    question = decode(body, _questions)
    if question.previous_response_id or question.conversation:
        raise NotUnderstoodError(f"previous_response_id and conversation: {_STATEFUL}")
    asked = question.input
    items = [Item(content=asked)] if isinstance(asked, str) else asked
    heard = _Heard()
    for item in items:
        heard.take(item)
    system, messages = opening_system(heard.messages)
    if question.instructions:
        system = (question.instructions, *system)
    tools, chosen = tool_choice(question.tool_choice).over(_tools(question.tools or (), heard))
    return Asked(
        model=question.model,
        system=system,
        messages=messages,
        tools=tools,
        schema=_schema(question.text, heard),
        stream=bool(question.stream),
        free_form=frozenset(t.name for t in question.tools or () if t.type == "custom"),
        parameters=given(
            max_tokens=question.max_output_tokens,
            temperature=question.temperature,
            top_p=question.top_p,
            reasoning_effort=question.reasoning.effort if question.reasoning else None,
            tool_choice=chosen,
        ),
        notes=tuple(heard.notes),
    )


class _Heard:
    """The conversation so far; what one answer held stands in several items, and is joined."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.notes: list[str] = []
        self._thought: str | None = None

    def take(self, item: Item) -> None:
        """Add one item."""
        if item.type == "message":
            self._say(item)
        elif item.type in _CALLS:
            self._call(_call(item))
        elif item.type in _OUTPUTS:
            output = text_in(item.output, "the output of a tool")
            key = item.call_id or item.id
            self.messages.append(Message(role="tool", content=output, tool_call_id=key))
        elif item.type == "reasoning":
            self._thought = text_in(item.content or item.summary, "the reasoning") or None
        elif item.type == "item_reference":
            raise NotUnderstoodError(f"an item of the type {item.type!r}: {_STATEFUL}")
        else:
            self.notes.append(f"an item of the type {item.type!r}")

    def _say(self, item: Item) -> None:
        role = _ROLES.get(item.role)
        if role is None:
            raise NotUnderstoodError(f"a message has the role {item.role!r}, which is not known")
        text = text_in(item.content, f"a message of the {role}")
        thought = self._take_thought() if role == "assistant" else None
        self.messages.append(Message(role=role, content=text, reasoning=thought))

    def _call(self, call: ToolCall) -> None:
        last = self.messages[-1] if self.messages else None
        if last is None or last.role != "assistant":
            last = Message(role="assistant", content="")
        else:
            self.messages.pop()
        self.messages.append(
            Message(
                role="assistant",
                content=last.content,
                reasoning=last.reasoning or self._take_thought(),
                tool_calls=(*last.tool_calls, call),
            )
        )

    def _take_thought(self) -> str | None:
        thought, self._thought = self._thought, None
        return thought


def _call(item: Item) -> ToolCall:
    key, name = item.call_id or item.id or "call", item.name or ""
    if item.type == "custom_tool_call":
        return ToolCall(id=key, name=name, arguments=written({FREE_FORM: item.input}))
    if item.type == "local_shell_call":
        return ToolCall(id=key, name="local_shell", arguments=written(item.action or {}))
    return ToolCall(id=key, name=name, arguments=arguments_text(item.arguments))


def _tools(offered: Sequence[Offered], heard: _Heard) -> list[Tool]:
    tools = []
    for tool in offered:
        if tool.type == "function":
            parameters: Mapping[str, Json] = tool.parameters or {}
        elif tool.type == "custom":
            parameters = _free_form(tool.format)
        else:
            heard.notes.append(f"a tool of the type {tool.type!r}")
            continue
        description = tool.description or ""
        tools.append(Tool(name=tool.name, description=description, parameters=parameters))
    return tools


def _free_form(form: Mapping[str, Json] | None) -> dict[str, Json]:
    """Return the parameters of a tool that takes plain text, for models that write JSON."""
    described = "The text that the tool takes, as it is."
    if form and isinstance(form.get("definition"), str):
        described += f" It follows this grammar ({form.get('syntax')}):\n{form['definition']}"
    text: dict[str, Json] = {"type": "string", "description": described}
    return {"type": "object", "properties": {FREE_FORM: text}, "required": [FREE_FORM]}


def _schema(text: Form | None, heard: _Heard) -> Mapping[str, Json] | None:
    form = text.format if text else None
    if form is None or form.get("type") in (None, "text"):
        return None
    schema = form.get("schema")
    if isinstance(schema, Mapping):
        return schema
    heard.notes.append(f"text.format {form.get('type')!r}")
    return None
