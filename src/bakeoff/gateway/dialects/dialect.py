"""What the dialects share: a question in our own nouns, JSON and events, and what a dialect is.

Only parameters that every adapter understands are forwarded. A program guesses the rest from a
model's name, and the model that answers here is another one; the candidate's own parameters say
how it is to be asked.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import msgspec

from bakeoff._lib.sanitize import one_line, well_formed
from bakeoff.core.attachment import AttachedBytes, Attachment
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Completion, Request, Tool, Usage
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.values import Json

_OF_A_PICTURE = 1_000  # tokens, roughly
_LETTERS_PER_TOKEN = 4  # of English text and code, roughly; no tokenizer here knows the model
_TEXT_ONLY = "the gateway carries text there; send the content as text, or leave it out"


class NotUnderstoodError(ValueError):
    """A request that cannot be forwarded; the message says why."""


def text_only(kind: str, where: str) -> NotUnderstoodError:
    """Return the error for content that is not text."""
    return NotUnderstoodError(f"{where} holds {kind!r}: {_TEXT_ONLY}")


def attached(uri: Json, kind: str, where: str, *, name: str | None = None) -> AttachedBytes:
    """Return the picture or file in a data URI; nothing is fetched, whatever a program sends."""
    if not isinstance(uri, str) or not uri.startswith("data:"):
        raise NotUnderstoodError(
            f"{where} holds {kind!r} without its content: the gateway fetches nothing; send it in base 64"
        )
    try:
        return AttachedBytes.of_uri(uri, name=name)
    except UsageError as error:
        raise NotUnderstoodError(f"{where} holds {kind!r}: {error}") from error


def user_message(role: str, parts: Iterable[str | AttachedBytes]) -> Message:
    """Return a message of texts, which become lines, and of pictures and files between them."""
    lines: list[str] = []
    attachments: list[AttachedBytes] = []
    for part in parts:
        if isinstance(part, str):
            lines.append(part)
        else:
            attachments.append(replace(part, at=len("\n".join(lines))))
    return Message(role=role, content="\n".join(lines), attachments=tuple(attachments))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A parsed request; `notes` say which parts of it are not forwarded.

    `model` is the program's name for the model, which the answer repeats. `system` are the prompts that
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
        """Return it as a `Request`, with *messages* as the conversation."""
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
        """Return about how many tokens the request has."""
        contents = [m.content for m in self.messages]
        called = [call.name + call.arguments for m in self.messages for call in m.tool_calls]
        tools = [f"{t.name}{t.description}{t.parameters}" for t in self.tools]
        letters = sum(len(text) for text in (*self.system, *contents, *called, *tools))
        shown = sum(_attached_tokens(a) for m in self.messages for a in m.attachments)
        return max(1, -(-letters // _LETTERS_PER_TOKEN) + shown)


def _attached_tokens(attachment: Attachment) -> int:
    return _OF_A_PICTURE if attachment.is_image else attachment.size // _LETTERS_PER_TOKEN


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
    """Return a note for each given parameter that is not forwarded."""
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


# --- JSON and server-sent events ------------------------------------------------------------------


T = TypeVar("T")

_NO_OBJECT = "INVALID_JSON"
_encoder = msgspec.json.Encoder()


def decode(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Return a request's body as the decoder's type; raise if it is invalid."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise NotUnderstoodError(f"the request has the wrong shape: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_leniently(body, decoder)


def _decode_leniently(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Parse what strict JSON refuses but programs send: lone surrogates, NaN, a BOM."""
    try:
        return msgspec.convert(_well_formed(json.loads(body.decode("utf-8-sig"))), decoder.type)
    except msgspec.ValidationError as error:
        raise NotUnderstoodError(f"the request has the wrong shape: {error}") from error
    except RecursionError as error:
        raise NotUnderstoodError("the request is nested too deeply") from error
    except ValueError as error:
        start = one_line(body[:200].decode("utf-8", "replace"), width=60)
        raise NotUnderstoodError(
            f"the request is not JSON ({error}): it begins {start!r}"
        ) from error


def _well_formed(value: Json) -> Json:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [_well_formed(item) for item in value]
    if isinstance(value, Mapping):
        return {well_formed(key): _well_formed(item) for key, item in value.items()}
    return value


def encode(data: Json) -> bytes:
    """Return *data* as JSON; lone surrogates that a model wrote are replaced."""
    try:
        return _encoder.encode(data)
    except UnicodeEncodeError:
        return _encoder.encode(_well_formed(data))


def event(data: Mapping[str, Json]) -> bytes:
    """Return an event without a name."""
    return b"data: " + encode(data) + b"\n\n"


def named_event(data: Mapping[str, Json]) -> bytes:
    """Return an event whose name is the `type` of its data."""
    return b"event: " + str(data["type"]).encode() + b"\n" + event(data)


def written(value: Json) -> str:
    """Return *value* as JSON text; a string is returned as it is."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError as error:
        raise NotUnderstoodError("the request is nested too deeply") from error


def arguments_object(call: ToolCall) -> Mapping[str, Json]:
    """Return the arguments of a call as an object; anything else is wrapped in one."""
    try:
        value = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {_NO_OBJECT: call.arguments}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why there is no answer; `code` is for programs."""

    status: int
    message: str
    code: str


class UnansweredError(Exception):
    """A request gets no answer; `problem` is sent to the program instead."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class DialectAnswer(Protocol):
    """The answer to one request in a dialect: whole, or as a stream of events."""

    def whole(self, completion: Completion) -> Mapping[str, Json]:
        """Return the answer in one piece."""

    def opening(self) -> bytes:
        """Return the first events of a stream, sent before there is an answer."""

    def ping(self) -> bytes:
        """Return a keep-alive for a client that waits."""

    def events(self, completion: Completion) -> bytes:
        """Return the rest of the stream."""

    def broken(self, problem: Problem) -> bytes:
        """Return the last events of a stream that fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayDialect:
    """How requests are parsed, and how answers and errors are written.

    `answer` takes the question and a number that no other answer of the trial has.
    """

    read: Callable[[bytes], ModelRequest]
    answer: Callable[[ModelRequest, int], DialectAnswer]
    error: Callable[[Problem], Mapping[str, Json]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Token counts for programs; unknown ones are 0."""

    input: int
    output: int
    cached: int
    reasoning: int

    @classmethod
    def of(cls, usage: Usage) -> "TokenCounts":
        """Return the known counts of *usage*."""
        return cls(
            input=usage.input_tokens or 0,
            output=usage.output_tokens or 0,
            cached=usage.cached_tokens or 0,
            reasoning=usage.reasoning_tokens or 0,
        )


def ending(completion: Completion) -> str:
    """Return why an answer ended; some servers say `stop` although they call tools."""
    reason = completion.stop_reason or "stop"
    return "tool_calls" if completion.tool_calls and reason == "stop" else reason
