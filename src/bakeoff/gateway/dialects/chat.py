"""OpenAI's chat API, as programs speak it to the gateway."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from bakeoff._lib.clock import timestamp
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
    attached,
    decode,
    ending,
    event,
    given,
    left_out,
    opening_system,
    text_only,
    user_message,
    written,
)

_TEXTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})


class ContentPart(msgspec.Struct):
    """A piece of content."""

    type: str = "text"
    text: str | None = None
    refusal: str | None = None
    image_url: Json = None
    file: Json = None
    file_data: Json = None
    filename: str | None = None


Content = str | list[ContentPart | str] | None


def text_in(content: Content, where: str) -> str:
    """Return the text of *content*; its parts become lines."""
    parts = content if isinstance(content, list) else [content or ""]
    return "\n".join(part if isinstance(part, str) else _text(part, where) for part in parts)


def said_by_user(role: str, content: Content) -> Message:
    """Return a message whose parts may be pictures and files, in OpenAI's chat or Responses API."""
    where = f"a message of the {role}"
    parts = content if isinstance(content, list) else [content or ""]
    return user_message(role, (_said(part, where) for part in parts))


def _said(part: ContentPart | str, where: str) -> str | AttachedBytes:
    if isinstance(part, str):
        return part
    match part.type:
        case "image_url" | "input_image":
            url = (
                part.image_url.get("url") if isinstance(part.image_url, Mapping) else part.image_url
            )
            return attached(url, part.type, where)
        case "file":
            file = part.file if isinstance(part.file, Mapping) else {}
            name = file.get("filename")
            named = name if isinstance(name, str) else None
            return attached(file.get("file_data"), part.type, where, name=named)
        case "input_file":
            return attached(part.file_data, part.type, where, name=part.filename)
    return _text(part, where)


def _text(part: ContentPart, where: str) -> str:
    if part.type == "refusal":
        return part.refusal or ""
    if part.type not in _TEXTS:
        raise text_only(part.type, where)
    return part.text or ""


def arguments_text(arguments: Json) -> str:
    """Return the arguments of a call as JSON; some programs send them as data, or not at all."""
    return "{}" if arguments in (None, "") else written(arguments)


def tool_choice(wish: Json) -> ToolChoice:
    """Return which tools may be called; the name of one stands in `function`, or right here."""
    if not isinstance(wish, Mapping):
        return ToolChoice(mode=wish if isinstance(wish, str) else "auto")
    function = wish.get("function", wish)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise NotUnderstoodError(f"tool_choice {wish.get('type')!r} names no function")
    return ToolChoice(name=name)


def error(problem: Problem) -> dict[str, Json]:
    """Return an error in OpenAI's format."""
    kind = "invalid_request_error" if problem.status < 500 else "server_error"
    entry: dict[str, Json] = {
        "message": problem.message,
        "type": kind,
        "param": None,
        "code": problem.code,
    }
    return {"error": entry}


_ROLES = {"developer": "system", "function": "tool"}
_FINISHES = frozenset({"stop", "length", "tool_calls", "content_filter"})


class ChatFunction(msgspec.Struct):
    """The name and the arguments of a call."""

    name: str = ""
    arguments: Json = ""


class ChatCall(msgspec.Struct):
    """A call of a tool."""

    id: str | None = None
    function: ChatFunction | None = None


class ChatMessage(msgspec.Struct):
    """A message."""

    role: str
    content: Content = None
    tool_calls: list[ChatCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: Json = None


class ChatDeclared(msgspec.Struct):
    """The name and the parameters of a tool."""

    name: str
    description: str | None = None
    parameters: dict[str, Json] | None = None


class ChatTool(msgspec.Struct):
    """A tool."""

    type: str = "function"
    function: ChatDeclared | None = None


class StreamOptions(msgspec.Struct):
    """The options of a stream."""

    include_usage: bool | None = None


class ChatRequest(msgspec.Struct):
    """The body of a request."""

    messages: list[ChatMessage]
    model: str = ""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[ChatTool] | None = None
    tool_choice: Json = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    response_format: dict[str, Json] | None = None
    n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


_questions = msgspec.json.Decoder(ChatRequest)


def read(body: bytes) -> ModelRequest:
    """Return the request in *body*."""
    question = decode(body, _questions)
    if (question.n or 1) != 1:
        raise NotUnderstoodError("`n`: the gateway gives one choice a request; leave it out")
    system, messages = opening_system(_message(message) for message in question.messages)
    offered, notes = _tools(question.tools or ())
    tools, chosen = tool_choice(question.tool_choice).over(offered)
    schema, unformatted = _schema(question.response_format)
    unheard = left_out(
        presence_penalty=question.presence_penalty, frequency_penalty=question.frequency_penalty
    )
    return ModelRequest(
        model=question.model,
        system=system,
        messages=messages,
        tools=tools,
        schema=schema,
        stream=bool(question.stream),
        with_usage=bool(question.stream_options and question.stream_options.include_usage),
        parameters=given(
            temperature=question.temperature,
            top_p=question.top_p,
            max_tokens=question.max_tokens,
            max_completion_tokens=question.max_completion_tokens,
            stop=question.stop,
            seed=question.seed,
            reasoning_effort=question.reasoning_effort,
            tool_choice=chosen,
        ),
        notes=(*notes, *unformatted, *unheard),
    )


def _message(message: ChatMessage) -> Message:
    role = _ROLES.get(message.role, message.role)
    if role not in {"system", "user", "assistant", "tool"}:
        raise NotUnderstoodError(f"a message has the role {message.role!r}, which is not known")
    if role == "user":
        return said_by_user(role, message.content)
    thought = message.reasoning_content or message.reasoning
    return Message(
        role=role,
        content=text_in(message.content, f"a message of the {role}"),
        reasoning=thought if isinstance(thought, str) and thought else None,
        tool_calls=tuple(_call(call, n) for n, call in enumerate(message.tool_calls or ())),
        tool_call_id=message.tool_call_id if role == "tool" else None,
    )


def _call(call: ChatCall, position: int) -> ToolCall:
    function = call.function or ChatFunction()
    arguments = arguments_text(function.arguments)
    return ToolCall(id=call.id or f"call_{position}", name=function.name, arguments=arguments)


def _tools(offered: Sequence[ChatTool]) -> tuple[list[Tool], list[str]]:
    tools, notes = [], []
    for tool in offered:
        declared = tool.function
        if tool.type != "function" or declared is None:
            notes.append(f"a tool of the type {tool.type!r}")
            continue
        parameters = declared.parameters or {}
        description = declared.description or ""
        tools.append(Tool(name=declared.name, description=description, parameters=parameters))
    return tools, notes


def _schema(wish: Mapping[str, Json] | None) -> tuple[Mapping[str, Json] | None, list[str]]:
    """Return the schema that an answer must have, and a note where only JSON was asked for."""
    if wish is None or wish.get("type") == "text":
        return None, []
    inner = wish.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, Mapping) else None
    if isinstance(schema, Mapping):
        return schema, []
    return None, [f"response_format {wish.get('type')!r}"]


def usage_of(completion: Completion) -> dict[str, Json]:
    """Return the token counts."""
    counts = TokenCounts.of(completion.usage)
    return {
        "prompt_tokens": counts.input,
        "completion_tokens": counts.output,
        "total_tokens": counts.input + counts.output,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning},
    }


class ChatAnswer:
    """A chat completion, whole or in chunks."""

    def __init__(self, asked: ModelRequest, number: int) -> None:
        self._with_usage = asked.with_usage
        self._head: dict[str, Json] = {
            "id": f"chatcmpl-{number}",
            "created": int(timestamp()),
            "model": asked.model,
        }

    def whole(self, completion: Completion) -> dict[str, Json]:
        """Return the answer in one piece."""
        message: dict[str, Json] = {"role": "assistant", "content": completion.text}
        if completion.reasoning:
            message["reasoning_content"] = completion.reasoning
        if completion.tool_calls:
            message["content"] = completion.text or None
            message["tool_calls"] = [
                {"id": c.id, "type": "function", "function": _function(c.name, c.arguments)}
                for c in completion.tool_calls
            ]
        choice: dict[str, Json] = {
            "index": 0,
            "message": message,
            "finish_reason": _finish(completion),
        }
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": usage_of(completion),
        }

    def opening(self) -> bytes:
        """Return nothing: there is no chunk without content."""
        return b""

    def ping(self) -> bytes:
        """Return a comment."""
        return b": waiting for the model\n\n"

    def events(self, completion: Completion) -> bytes:
        """Return the chunks, in the order and the pieces that OpenAI has."""
        chunks = [self._chunk(delta) for delta in _deltas(completion)]
        chunks.append(self._chunk({}, finish=_finish(completion)))
        if self._with_usage:
            usage = usage_of(completion)
            last: dict[str, Json] = {**self._head, "object": "chat.completion.chunk"}
            chunks.append(event({**last, "choices": [], "usage": usage}))
        return b"".join([*chunks, b"data: [DONE]\n\n"])

    def broken(self, problem: Problem) -> bytes:
        """Return the error as the last event."""
        return event(error(problem))

    def _chunk(self, delta: Mapping[str, Json], finish: str | None = None) -> bytes:
        choice: dict[str, Json] = {"index": 0, "delta": delta, "finish_reason": finish}
        return event({**self._head, "object": "chat.completion.chunk", "choices": [choice]})


def _deltas(completion: Completion) -> Iterator[dict[str, Json]]:
    yield {"role": "assistant", "content": ""}
    if completion.reasoning:
        yield {"reasoning_content": completion.reasoning}
    if completion.text:
        yield {"content": completion.text}
    for index, call in enumerate(completion.tool_calls):
        named = _function(call.name, "")
        begun: dict[str, Json] = {"index": index, "id": call.id, "type": "function"}
        yield {"tool_calls": [{**begun, "function": named}]}
        yield {"tool_calls": [{"index": index, "function": {"arguments": call.arguments}}]}


def _function(name: str, arguments: str) -> dict[str, Json]:
    return {"name": name, "arguments": arguments}


def _finish(completion: Completion) -> str:
    reason = ending(completion)
    return reason if reason in _FINISHES else "stop"


CHAT = GatewayDialect(read=read, answer=ChatAnswer, error=error)
