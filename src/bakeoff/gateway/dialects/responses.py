"""OpenAI's Responses API, as programs speak it to the gateway."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from bakeoff._lib.clock import timestamp
from bakeoff.core.outcome import Completion, Tool
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.values import Json
from bakeoff.gateway.dialects.chat import (
    Content,
    ContentPart,
    arguments_text,
    error,
    said_by_user,
    text_in,
    tool_choice,
)
from bakeoff.gateway.dialects.dialect import (
    GatewayDialect,
    ModelRequest,
    NotUnderstoodError,
    Problem,
    TokenCounts,
    arguments_object,
    decode,
    ending,
    given,
    named_event,
    opening_system,
    written,
)

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
    summary: list[ContentPart | str] | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Json = None
    input: Json = None
    action: Json = None
    output: Content = None


class ResponsesTool(msgspec.Struct):
    """A tool; `format` is the grammar of one that takes free text."""

    type: str = "function"
    name: str = ""
    description: str | None = None
    parameters: dict[str, Json] | None = None
    format: dict[str, Json] | None = None


class ReasoningItem(msgspec.Struct):
    """How much to think."""

    effort: str | None = None


class Form(msgspec.Struct):
    """The form of an answer."""

    format: dict[str, Json] | None = None


class ResponsesRequest(msgspec.Struct):
    """The body of a request."""

    input: str | list[Item] = ""
    model: str = ""
    instructions: str | None = None
    stream: bool | None = None
    tools: list[ResponsesTool] | None = None
    tool_choice: Json = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    reasoning: ReasoningItem | None = None
    text: Form | None = None
    previous_response_id: str | None = None
    conversation: Json = None


_questions = msgspec.json.Decoder(ResponsesRequest)


def read(body: bytes) -> ModelRequest:
    """Return the request in *body*."""
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
    return ModelRequest(
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
    """The conversation so far; the items of one answer are joined."""

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
        if role == "user":
            self.messages.append(said_by_user(role, item.content))
            return
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


def _tools(offered: Sequence[ResponsesTool], heard: _Heard) -> list[Tool]:
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


_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}

# In a stream that has begun only these codes keep codex from asking again.
_FAILURES = {"limit_reached": "insufficient_quota", "provider_refused": "invalid_prompt"}

Event = dict[str, Json]


class ResponsesAnswer:
    """A response, whole or as events, which are numbered."""

    def __init__(self, asked: ModelRequest, number: int) -> None:
        self._free_form = asked.free_form
        self._number = number
        self._events = 0
        self._head: dict[str, Json] = {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": int(timestamp()),
            "model": asked.model,
            "error": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }

    def whole(self, completion: Completion) -> dict[str, Json]:
        """Return the answer in one piece."""
        return self._ended(completion, [item for item, _ in self._items(completion)])

    def opening(self) -> bytes:
        """Return the event that says the response exists."""
        return self._event({"type": "response.created", "response": self._unfinished()})

    def ping(self) -> bytes:
        """Return an event, not a comment: programs wait for events."""
        return self._event({"type": "response.in_progress", "response": self._unfinished()})

    def events(self, completion: Completion) -> bytes:
        """Return the output item by item, then the whole."""
        events, items = [self.ping()], []
        for index, (item, text) in enumerate(self._items(completion)):
            items.append(item)
            events += [self._event(data) for data in _item_events(index, item, text)]
        response = self._ended(completion, items)
        events.append(self._event({"type": f"response.{response['status']}", "response": response}))
        return b"".join(events)

    def broken(self, problem: Problem) -> bytes:
        """Return the event that says the response failed."""
        code = _FAILURES.get(problem.code, "server_error")
        failed: Json = {
            **self._unfinished(),
            "status": "failed",
            "error": {"code": code, "message": problem.message},
        }
        return self._event({"type": "response.failed", "response": failed})

    def _event(self, data: Event) -> bytes:
        data["sequence_number"] = self._events
        self._events += 1
        return named_event(data)

    def _unfinished(self) -> dict[str, Json]:
        rest: Event = {"incomplete_details": None, "output": [], "usage": None}
        return {**self._head, "status": "in_progress", **rest}

    def _ended(self, completion: Completion, items: list[Event]) -> dict[str, Json]:
        reason = _INCOMPLETE.get(ending(completion))
        counts = TokenCounts.of(completion.usage)
        usage: Json = {
            "input_tokens": counts.input,
            "input_tokens_details": {"cached_tokens": counts.cached},
            "output_tokens": counts.output,
            "output_tokens_details": {"reasoning_tokens": counts.reasoning},
            "total_tokens": counts.input + counts.output,
        }
        return {
            **self._head,
            "status": "incomplete" if reason else "completed",
            "incomplete_details": {"reason": reason} if reason else None,
            "output": items,
            "usage": usage,
        }

    def _items(self, completion: Completion) -> Iterator[tuple[Event, str]]:
        """Yield the items of the output, each with the text that it is about."""
        number = self._number
        if thought := completion.reasoning:
            summary: Json = [{"type": "summary_text", "text": thought}]
            yield {"id": f"rs_{number}", "type": "reasoning", "summary": summary}, thought
        if (text := completion.text) or not completion.tool_calls:
            part: Json = {"type": "output_text", "text": text, "annotations": []}
            message: Event = {"id": f"msg_{number}", "type": "message", "role": "assistant"}
            yield {**message, "status": "completed", "content": [part]}, text
        for position, call in enumerate(completion.tool_calls):
            yield self._call(call, f"{number}_{position}")

    def _call(self, call: ToolCall, key: str) -> tuple[Event, str]:
        head: Event = {"call_id": call.id, "name": call.name, "status": "completed"}
        if call.name in self._free_form:
            text = _plain_text(call)
            return {"id": f"ctc_{key}", "type": "custom_tool_call", **head, "input": text}, text
        arguments = call.arguments
        item: Event = {"id": f"fc_{key}", "type": "function_call", **head, "arguments": arguments}
        return item, arguments


def _plain_text(call: ToolCall) -> str:
    """Return the input of a free-text tool; a model may have left out the object around it."""
    text = arguments_object(call).get(FREE_FORM)
    return text if isinstance(text, str) else call.arguments


def _item_events(index: int, item: Event, text: str) -> Iterator[Event]:
    """Yield the events of one item; each event is a new dict."""
    kind = item["type"]
    at: Event = {"item_id": item["id"], "output_index": index}
    yield {"type": "response.output_item.added", "output_index": index, "item": _begun(item)}
    if kind == "message":
        yield from _text_events({**at, "content_index": 0}, text)
    elif kind == "reasoning":
        yield from _summary_events({**at, "summary_index": 0}, text)
    else:
        field = "input" if kind == "custom_tool_call" else "arguments"
        yield {"type": f"response.{kind}_{field}.delta", **at, "delta": text}
        yield {"type": f"response.{kind}_{field}.done", **at, field: text}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _begun(item: Event) -> Event:
    empty: Event = {
        "content": [],
        "summary": [],
        "arguments": "",
        "input": "",
        "status": "in_progress",
    }
    return {key: empty.get(key, value) for key, value in item.items()}


def _text_events(at: Event, text: str) -> Iterator[Event]:
    part: Event = {"type": "output_text", "text": "", "annotations": []}
    yield {"type": "response.content_part.added", **at, "part": part}
    yield {"type": "response.output_text.delta", **at, "delta": text, "logprobs": []}
    yield {"type": "response.output_text.done", **at, "text": text, "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": {**part, "text": text}}


def _summary_events(at: Event, text: str) -> Iterator[Event]:
    part: Event = {"type": "summary_text", "text": ""}
    yield {"type": "response.reasoning_summary_part.added", **at, "part": part}
    yield {"type": "response.reasoning_summary_text.delta", **at, "delta": text}
    yield {"type": "response.reasoning_summary_text.done", **at, "text": text}
    yield {"type": "response.reasoning_summary_part.done", **at, "part": {**part, "text": text}}


RESPONSES = GatewayDialect(read=read, answer=ResponsesAnswer, error=error)
