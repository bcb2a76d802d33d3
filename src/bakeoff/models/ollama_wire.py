"""What Ollama's own chat API is told, and what it says, whole or line by line.

As with every server, nothing here trusts a number or a text; an answer that does not say `done`
is none, whatever its status.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from bakeoff._lib.untrusted import well_formed
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import Completion, Request, Tool, Usage
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.values import Json
from bakeoff.models import json_wire
from bakeoff.models.faults import error_text
from bakeoff.models.json_wire import Counts, count
from bakeoff.models.parameters import (
    parameters_of,
    take_limit,
    take_stops,
    take_thinking,
    take_tools,
)
from bakeoff.models.retry import TryAgain
from bakeoff.models.tool_calls import arguments_of, tool_call

_NANO = 1e-9

# Beside `options`, not in it.
_TOP_LEVEL = ("format", "keep_alive", "logprobs", "shift", "think", "top_logprobs", "truncate")


def payload(
    name: str,
    request: Request,
    own: Mapping[str, Json],
    *,
    stream: bool,
    omit: Collection[str] = (),
) -> dict[str, Json]:
    """Return the body of a chat request; a parameter that it has no place for is an option."""
    parameters = parameters_of(request, own, omit=omit)
    if parameters.pop("n", 1) not in {1, None}:
        raise ProviderError("Ollama gives one choice a request: leave `n` out and use rollouts")
    body: dict[str, Json] = {
        "model": name,
        "messages": _messages(request.messages),
        "stream": bool(parameters.pop("stream", stream)),
        "think": take_thinking(parameters).effort,
        "tools": [_tool(tool) for tool in take_tools(request, parameters)] or None,
    }
    if "response_format" in parameters:
        body["format"] = _format(parameters.pop("response_format"))
    body |= {key: parameters.pop(key) for key in _TOP_LEVEL if key in parameters}
    if request.schema is not None:
        body["format"] = request.schema
    body["options"] = _options(parameters) or None
    return {key: value for key, value in body.items() if value is not None}


def _options(parameters: dict[str, Json]) -> dict[str, Json]:
    given = parameters.pop("options", None)
    options: dict[str, Json] = dict(given) if isinstance(given, Mapping) else {}
    named = {"num_predict": take_limit(parameters), "stop": take_stops(parameters)}
    options |= {key: value for key, value in named.items() if value is not None}
    return options | {key: value for key, value in parameters.items() if value is not None}


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
    return {"id": call.id, "function": {"name": call.name, "arguments": arguments_of(call)}}


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


class Reply(Counts):
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
            input_tokens=count(self.prompt_eval_count),
            output_tokens=count(self.eval_count),
            reasoning_tokens=None,
            cached_tokens=count(self.prompt_eval_cached_count),
        )

    @property
    def load_s(self) -> float | None:
        """What loading the model took, where the server says so."""
        load = count(self.load_duration)
        return None if load is None else load * _NANO


_decoder = msgspec.json.Decoder(Reply)


def decode(data: bytes, *, content_type: str = "") -> Reply:
    """Return *data* as a reply; anything else is a fault."""
    return json_wire.decode(data, _decoder, content_type=content_type)


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
            raise TryAgain(f"Ollama broke off its answer: {error_text(reply.error)}")
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
        return tool_call(call.id or f"call_{number}", call.function.name, call.function.arguments)

    def completion(
        self, *, elapsed_s: float, first_token_s: float | None = None, raw: Json = None
    ) -> Completion:
        """Return the whole; an answer that never said `done` was cut.

        Times are those seen from here less `load_s`: what a model takes once it is there.
        """
        last = self._last
        if last is None:
            raise TryAgain("the answer is not complete: no `done` came")
        if last.done_reason == "load" and not self._text:
            raise TryAgain("Ollama loaded the model and gave no answer")
        load_s = last.load_s or 0.0
        return Completion(
            text=well_formed("".join(self._text)),
            reasoning=well_formed("".join(self._reasoning)) or None,
            tool_calls=tuple(self._calls),
            stop_reason=well_formed(last.done_reason) if last.done_reason else None,
            model=well_formed(last.model) if last.model else None,
            usage=last.usage,
            elapsed_s=max(elapsed_s - load_s, 0.0),
            first_token_s=None if first_token_s is None else max(first_token_s - load_s, 0.0),
            load_s=last.load_s,
            flags=last.flags,
            raw=raw,
        )
