"""Anthropic's Messages API, as programs speak it to the gateway."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from bakeoff.core.attachment import AttachedBytes
from bakeoff.core.outcome import Completion, Tool
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.values import Json
from bakeoff.gateway.dialects.dialect import (
    GatewayDialect,
    ModelRequest,
    NotUnderstoodError,
    Problem,
    TokenCounts,
    ToolChoice,
    arguments_object,
    attached,
    decode,
    encode,
    ending,
    given,
    left_out,
    named_event,
    opening_system,
    text_only,
    user_message,
    written,
)

_ENDINGS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "refusal": "refusal",
    "content_filter": "refusal",
}
_MODES = {"any": "required", "auto": "auto", "none": "none"}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
_UNSPOKEN = frozenset({"redacted_thinking", "thinking"})


class MessagesBlock(msgspec.Struct):
    """A block of content, of whichever kind."""

    type: str = "text"
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Json = None
    tool_use_id: str | None = None
    content: "str | list[MessagesBlock] | None" = None
    source: dict[str, Json] | None = None
    title: str | None = None


class MessagesTurn(msgspec.Struct):
    """One turn of the conversation."""

    role: str
    content: str | list[MessagesBlock]


class MessagesTool(msgspec.Struct):
    """A tool; those that Anthropic runs itself have a type and no schema."""

    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Json] | None = None


class MessagesChoice(msgspec.Struct):
    """Which tools may be called."""

    type: str = "auto"
    name: str | None = None


class OutputConfig(msgspec.Struct):
    """How much effort goes into an answer, and its form."""

    effort: str | None = None
    format: dict[str, Json] | None = None


class MessagesRequest(msgspec.Struct):
    """The body of a request."""

    messages: list[MessagesTurn]
    model: str = ""
    system: str | list[MessagesBlock] | None = None
    stream: bool | None = None
    tools: list[MessagesTool] | None = None
    tool_choice: MessagesChoice | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    thinking: dict[str, Json] | None = None
    output_config: OutputConfig | None = None
    output_format: dict[str, Json] | None = None


_questions = msgspec.json.Decoder(MessagesRequest)


def read(body: bytes) -> ModelRequest:
    """Return the request in *body*."""
    question = decode(body, _questions)
    offered, notes = _tools(question.tools or ())
    tools, tool_choice = _choice(question.tool_choice).over(offered)
    config = question.output_config or OutputConfig()
    system, messages = opening_system(m for turn in question.messages for m in _messages(turn))
    thinks = (question.thinking or {}).get("type") not in (None, "disabled")
    unheard = left_out(top_k=question.top_k is not None, thinking=thinks)
    return ModelRequest(
        model=question.model,
        system=(*_system(question.system), *system),
        messages=messages,
        tools=tools,
        schema=_schema(config.format or question.output_format),
        stream=bool(question.stream),
        parameters=given(
            max_tokens=question.max_tokens,
            temperature=question.temperature,
            top_p=question.top_p,
            stop=question.stop_sequences or None,
            reasoning_effort=config.effort,
            tool_choice=tool_choice,
        ),
        notes=(*notes, *unheard),
    )


def _system(system: str | list[MessagesBlock] | None) -> tuple[str, ...]:
    texts = _texts(_blocks(system), "the system prompt")
    return tuple(text for text in texts if text)


def _messages(turn: MessagesTurn) -> Iterator[Message]:
    blocks = _blocks(turn.content)
    if turn.role == "assistant":
        yield _said(blocks)
        return
    if turn.role not in {"user", "system"}:
        raise NotUnderstoodError(
            f"a message has the role {turn.role!r}; there are: user, assistant"
        )
    results = [block for block in blocks if block.type == "tool_result"]
    for block in results:
        given_back = "\n".join(_texts(_blocks(block.content), "the result of a tool"))
        yield Message(role="tool", content=given_back, tool_call_id=block.tool_use_id)
    parts = [_part(block) for block in blocks if block.type != "tool_result"]
    if parts or not results:
        yield user_message(turn.role, parts)


def _part(block: MessagesBlock) -> str | AttachedBytes:
    where = "a message of the user"
    if block.type not in {"image", "document"}:
        return "".join(_texts([block], where))
    source = block.source or {}
    if source.get("type") == "text":
        return str(source.get("data", ""))
    uri = f"data:;base64,{source.get('data')}" if source.get("type") == "base64" else None
    return attached(uri, block.type, where, name=block.title)


def _said(blocks: Sequence[MessagesBlock]) -> Message:
    calls = [b for b in blocks if b.type == "tool_use"]
    spoken = [b for b in blocks if b.type not in _UNSPOKEN and b.type != "tool_use"]
    thoughts = "".join(b.thinking or "" for b in blocks if b.type == "thinking")
    return Message(
        role="assistant",
        content="".join(_texts(spoken, "a message of the assistant")),
        reasoning=thoughts or None,
        tool_calls=tuple(
            ToolCall(id=b.id or f"call_{n}", name=b.name or "", arguments=written(b.input or {}))
            for n, b in enumerate(calls)
        ),
    )


def _blocks(content: str | list[MessagesBlock] | None) -> list[MessagesBlock]:
    return content if isinstance(content, list) else [MessagesBlock(text=content)]


def _texts(blocks: Iterable[MessagesBlock], where: str) -> list[str]:
    texts = []
    for block in blocks:
        if block.type != "text":
            raise text_only(block.type, where)
        texts.append(block.text or "")
    return texts


def _tools(offered: Sequence[MessagesTool]) -> tuple[list[Tool], list[str]]:
    tools, notes = [], []
    for tool in offered:
        if tool.input_schema is None:
            notes.append(f"a tool of the type {tool.type!r}")
            continue
        description = tool.description or ""
        tools.append(Tool(name=tool.name, description=description, parameters=tool.input_schema))
    return tools, notes


def _choice(choice: MessagesChoice | None) -> ToolChoice:
    if choice is None:
        return ToolChoice()
    if choice.type == "tool":
        return ToolChoice(name=choice.name or "")
    if choice.type not in _MODES:
        raise NotUnderstoodError(
            f"tool_choice has the type {choice.type!r}; there are: auto, any, none, tool"
        )
    return ToolChoice(mode=_MODES[choice.type])


def _schema(wish: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
    schema = wish.get("schema") if wish else None
    return schema if isinstance(schema, Mapping) else None


class MessagesAnswer:
    """A message, whole or as events."""

    def __init__(self, asked: ModelRequest, number: int) -> None:
        self._head: dict[str, Json] = {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": asked.model,
        }

    def whole(self, completion: Completion) -> dict[str, Json]:
        """Return the answer in one piece."""
        return self._message(
            list(_written(completion)), _stop_reason(completion), _usage(completion)
        )

    def opening(self) -> bytes:
        """Return nothing: the first event has the token count of the request."""
        return b""

    def ping(self) -> bytes:
        """Return a ping."""
        return named_event({"type": "ping"})

    def events(self, completion: Completion) -> bytes:
        """Return the message block by block."""
        usage = _usage(completion)
        start = self._message([], None, {**usage, "output_tokens": 0})
        events = [named_event({"type": "message_start", "message": start})]
        for index, block in enumerate(_written(completion)):
            events += map(named_event, _block_events(index, block))
        reason: Json = {"stop_reason": _stop_reason(completion), "stop_sequence": None}
        events.append(named_event({"type": "message_delta", "delta": reason, "usage": usage}))
        events.append(named_event({"type": "message_stop"}))
        return b"".join(events)

    def broken(self, problem: Problem) -> bytes:
        """Return the error as the last event."""
        return named_event(error(problem))

    def _message(
        self, content: Json, stop_reason: str | None, usage: Mapping[str, Json]
    ) -> dict[str, Json]:
        return {
            **self._head,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": usage,
        }


def _written(completion: Completion) -> Iterator[dict[str, Json]]:
    if completion.reasoning:
        yield {"type": "thinking", "thinking": completion.reasoning, "signature": ""}
    if completion.text or not completion.tool_calls:
        yield {"type": "text", "text": completion.text}
    for call in completion.tool_calls:
        arguments = arguments_object(call)
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


def _block_events(index: int, block: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
    delta: dict[str, Json]
    if block["type"] == "tool_use":
        empty = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": encode(block["input"]).decode()}
    elif block["type"] == "thinking":
        empty = {**block, "thinking": ""}
        delta = {"type": "thinking_delta", "thinking": block["thinking"]}
    else:
        empty = {**block, "text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    yield {"type": "content_block_start", "index": index, "content_block": empty}
    yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _stop_reason(completion: Completion) -> str:
    return _ENDINGS.get(ending(completion), "end_turn")


def _usage(completion: Completion) -> dict[str, Json]:
    """Return the token counts; cached tokens are counted separately here."""
    counts = TokenCounts.of(completion.usage)
    return {
        "input_tokens": max(counts.input - counts.cached, 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counts.cached,
        "output_tokens": counts.output,
    }


def error(problem: Problem) -> dict[str, Json]:
    """Return an error in Anthropic's format."""
    kind = _ERRORS.get(problem.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": problem.message}}


MESSAGES = GatewayDialect(read=read, answer=MessagesAnswer, error=error)
