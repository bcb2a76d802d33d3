"""What Ollama's own chat API is told, and what it says, whole or line by line.

As with every server, nothing here trusts a number or a text; an answer that does not say `done`
is none, whatever its status.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from bakeoff._lib.untrusted import one_line, well_formed
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import Completion, Request, Tool, Usage
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.values import Json
from bakeoff.models.retry import TryAgain

_LARGEST_COUNT = 2**53
_NANO = 1e-9

# Beside `options`, not in it.
_TOP_LEVEL = frozenset(
    {"format", "keep_alive", "logprobs", "shift", "think", "top_logprobs", "truncate"}
)
_RENAMED = {
    "max_tokens": "num_predict",
    "max_completion_tokens": "num_predict",
    "effort": "think",
    "reasoning_effort": "think",
}


def payload(name: str, request: Request, parameters: Mapping[str, Json]) -> dict[str, Json]:
    """Return the body of a chat request; what it does not know as its own is an option."""
    options: dict[str, Json] = {}
    body: dict[str, Json] = {"model": name, "messages": _messages(request.messages)}
    for key, value in {**request.parameters, **parameters}.items():
        _place(_RENAMED.get(key, key), value, body, options)
    if options:
        body["options"] = options
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.schema is not None:
        body["format"] = request.schema
    return body


def _place(key: str, value: Json, body: dict[str, Json], options: dict[str, Json]) -> None:
    if value is None:
        return
    if key == "options" and isinstance(value, Mapping):
        options.update(value)
    elif key == "response_format":
        body["format"] = _format(value)
    elif key == "stop":
        options["stop"] = [value] if isinstance(value, str) else value
    elif key == "n":
        if value != 1:
            raise ProviderError("Ollama gives one choice a request: leave `n` out, use rollouts")
    elif key in _TOP_LEVEL:
        body[key] = value
    elif key != "stream":
        options[key] = value


def _format(wish: Json) -> Json:
    """Return OpenAI's `response_format` as Ollama's `format`."""
    inner = wish.get("json_schema") if isinstance(wish, Mapping) else None
    return inner.get("schema", "json") if isinstance(inner, Mapping) else "json"


def _tool(tool: Tool) -> dict[str, Json]:
    function: dict[str, Json] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}


def _messages(messages: Sequence[Message]) -> list[Json]:
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return [_message(message, names) for message in messages]


def _message(message: Message, names: Mapping[str, str]) -> dict[str, Json]:
    wire: dict[str, Json] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        wire["tool_calls"] = [_call(call) for call in message.tool_calls]
        if message.reasoning:  # models that think between calls want to see what they thought
            wire["thinking"] = message.reasoning
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
        if name := names.get(message.tool_call_id):
            wire["tool_name"] = name
    return wire


def _call(call: ToolCall) -> dict[str, Json]:
    try:
        arguments: Json = json.loads(call.arguments or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):  # Ollama takes an object and nothing else
        arguments = {"arguments": call.arguments}
    return {"id": call.id, "function": {"name": call.name, "arguments": arguments}}


class Function(msgspec.Struct):
    """A call as the model wrote it; the server has parsed the arguments."""

    name: str = ""
    arguments: Json = None


class Call(msgspec.Struct):
    """A call; servers before 0.12 give it no id."""

    function: Function
    id: str | None = None


class Said(msgspec.Struct):
    """A message, or a piece of one."""

    content: str | None = None
    thinking: str | None = None
    tool_calls: list[Call] | None = None


class Reply(msgspec.Struct):
    """A whole answer, or one line of a stream; durations are in nanoseconds."""

    model: str | None = None
    message: Said | None = None
    done: bool = False
    done_reason: str | None = None
    load_duration: float | None = None
    prompt_eval_count: float | None = None
    prompt_eval_cached_count: float | None = None
    eval_count: float | None = None
    error: Json = None

    @property
    def usage(self) -> Usage:
        """The counts as ours."""
        return Usage(
            input_tokens=_count(self.prompt_eval_count),
            output_tokens=_count(self.eval_count),
            reasoning_tokens=None,
            cached_tokens=_count(self.prompt_eval_cached_count),
        )

    @property
    def load_s(self) -> float | None:
        """What loading the model took, where the server says so."""
        load = _count(self.load_duration)
        return None if load is None else load * _NANO


def _written(arguments: Json) -> str:
    """Return the arguments of a call as the JSON they were."""
    if isinstance(arguments, str):
        return well_formed(arguments)
    try:
        return json.dumps(arguments or {}, ensure_ascii=False)
    except RecursionError as error:
        raise ProviderError("the arguments of a tool call are nested too deeply") from error


def _count(value: float | None) -> int | None:
    return int(value) if value is not None and 0 <= value <= _LARGEST_COUNT else None


_decoder = msgspec.json.Decoder(Reply)


def decode(data: bytes) -> Reply:
    """Return *data* as a reply; anything that is not one is a fault that shows how it begins."""
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError as error:
        raise ProviderError(f"an answer of the wrong shape: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        start = one_line(data[:200].decode("utf-8", "replace"), width=80)
        if not start:
            raise TryAgain("the answer is empty") from error
        if start.startswith("{"):
            raise TryAgain(f"the answer is broken JSON, perhaps cut: {start!r}") from error
        raise ProviderError(f"the answer is not JSON: {start!r}; is this an Ollama?") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When an answer came, seen from here: seconds after the request went out."""

    elapsed_s: float
    first_token_s: float | None = None


class Pieces:
    """A completion, from as many replies as the server needs for it.

    `calls_before` is how many calls the conversation already holds: a call without an id gets the
    next free number.
    """

    def __init__(self, *, calls_before: int = 0) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[ToolCall] = []
        self._calls_before = calls_before
        self._last: Reply | None = None
        self.first_token_s: float | None = None

    def take(self, reply: Reply, *, at_s: float) -> None:
        """Add a reply that came *at_s* after the request; after an error nothing else counts."""
        if reply.error is not None:
            raise TryAgain(f"Ollama broke off its answer: {one_line(str(reply.error), width=300)}")
        said = reply.message or Said()
        if said.content:
            self._text.append(said.content)
        if said.thinking:
            self._reasoning.append(said.thinking)
        for call in said.tool_calls or ():
            self._calls.append(self._call(call))
        if self.first_token_s is None and (said.content or said.thinking or said.tool_calls):
            self.first_token_s = at_s
        if reply.done:
            self._last = reply

    @property
    def done(self) -> bool:
        """Whether the server said that this is all."""
        return self._last is not None

    def _call(self, call: Call) -> ToolCall:
        number = self._calls_before + len(self._calls)
        return ToolCall(
            id=well_formed(call.id or f"call_{number}"),
            name=well_formed(call.function.name),
            arguments=_written(call.function.arguments),
        )

    def completion(self, timing: Timing, *, raw: Json = None) -> Completion:
        """Return the whole; an answer that never said `done` was cut.

        Times are those seen from here less `load_s`: what a model takes once it is there.
        """
        last = self._last
        if last is None:
            raise TryAgain("the answer is not complete: no `done` came")
        if last.done_reason == "load" and not self._text:
            raise TryAgain("Ollama loaded the model and gave no answer")
        load_s, first_s = last.load_s, timing.first_token_s
        return Completion(
            text=well_formed("".join(self._text)),
            reasoning=well_formed("".join(self._reasoning)) or None,
            tool_calls=tuple(self._calls),
            stop_reason=well_formed(last.done_reason) if last.done_reason else None,
            model=well_formed(last.model) if last.model else None,
            usage=last.usage,
            elapsed_s=max(timing.elapsed_s - (load_s or 0.0), 0.0),
            first_token_s=None if first_s is None else max(first_s - (load_s or 0.0), 0.0),
            load_s=load_s,
            raw=raw,
        )
