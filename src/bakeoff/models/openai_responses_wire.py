"""What OpenAI's Responses API says, whole or as a stream of events, made into completions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec

from bakeoff._lib.untrusted import one_line, well_formed
from bakeoff.core.outcome import UNKNOWN_USAGE, Completion, Usage
from bakeoff.core.task import ToolCall
from bakeoff.core.values import Json
from bakeoff.models import json_wire
from bakeoff.models.faults import fault_of
from bakeoff.models.json_wire import Counts, count, string
from bakeoff.models.retry import TryAgain
from bakeoff.models.tool_calls import tool_call

Item = Mapping[str, Json]

_INCOMPLETE = {"max_output_tokens": "length", "content_filter": "content_filter"}
_LAST = frozenset({"response.completed", "response.incomplete", "response.failed"})
_TOKENS = frozenset(
    {
        "response.output_text.delta",
        "response.refusal.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
        "response.function_call_arguments.delta",
    }
)


class Details(msgspec.Struct):
    """The finer counts."""

    cached_tokens: float | None = None
    reasoning_tokens: float | None = None


class UsageCounts(Counts):
    """Token counts."""

    input_tokens: float | None = None
    output_tokens: float | None = None
    input_tokens_details: Details | None = None
    output_tokens_details: Details | None = None

    def usage(self) -> Usage:
        """Return the counts as ours."""
        cached, fine = self.input_tokens_details, self.output_tokens_details
        return Usage(
            input_tokens=count(self.input_tokens),
            output_tokens=count(self.output_tokens),
            reasoning_tokens=count(fine.reasoning_tokens) if fine else None,
            cached_tokens=count(cached.cached_tokens) if cached else None,
        )


class IncompleteDetails(msgspec.Struct):
    """Why an answer ended early."""

    reason: str | None = None


class Reply(msgspec.Struct):
    """A response; the items of its output are kept as they came."""

    status: str | None = None
    output: list[dict[str, Json]] | None = None
    incomplete_details: IncompleteDetails | None = None
    model: str | None = None
    usage: UsageCounts | None = None
    error: Json = None


class Event(msgspec.Struct):
    """One event of a stream; an error stands in it, or below `error`."""

    type: str = ""
    response: Reply | None = None
    output_index: int = 0
    item: dict[str, Json] | None = None
    delta: Json = None
    error: Json = None
    code: Json = None
    message: str | None = None


_replies = msgspec.json.Decoder(Reply)
_events = msgspec.json.Decoder(Event)


def decode(data: bytes, content_type: str = "") -> Reply:
    """Return a whole answer."""
    return json_wire.decode(data, _replies, content_type=content_type)


def decode_event(data: bytes) -> Event:
    """Return one event of a stream."""
    return json_wire.decode(data, _events)


def completion_of(reply: Reply) -> Completion:
    """Return the completion that is in a response."""
    if reply.error is not None or reply.status == "failed":
        raise fault_of(reply.error, "an error instead of an answer")
    if reply.status not in {None, "completed", "incomplete"}:
        raise TryAgain(f"the answer is not complete: its status is {one_line(reply.status or '')}")
    output = reply.output or []
    refusal = _said(output, "refusal", "refusal")
    text = _said(output, "output_text", "text") or refusal
    reasoning = _reasoning(output)
    calls = tuple(_call(item) for item in output if item.get("type") == "function_call")
    reason = _stop_reason(reply, refused=bool(refusal), called=bool(calls))
    if reply.status != "incomplete" and not (text or calls):
        raise TryAgain("the answer has no content")
    return Completion(
        text=text,
        reasoning=reasoning or None,
        tool_calls=calls,
        stop_reason=reason,
        model=well_formed(reply.model) if reply.model else None,
        usage=reply.usage.usage() if reply.usage else UNKNOWN_USAGE,
        flags=reply.usage.flags if reply.usage else (),
    )


def _stop_reason(reply: Reply, *, refused: bool, called: bool) -> str | None:
    if reply.status == "incomplete":
        given = reply.incomplete_details.reason if reply.incomplete_details else None
        return _INCOMPLETE.get(given or "", well_formed(given or "incomplete"))
    if called:
        return "tool_calls"
    return "refusal" if refused else "stop" if reply.status else None


def _parts(item: Item, field: str) -> Sequence[Item]:
    parts = item.get(field)
    listed = parts if isinstance(parts, list) else []
    return [part for part in listed if isinstance(part, Mapping)]


def _said(output: Sequence[Item], kind: str, field: str) -> str:
    parts = [p for item in output if item.get("type") == "message" for p in _parts(item, "content")]
    return well_formed("".join(string(p.get(field)) for p in parts if p.get("type") == kind))


def _reasoning(output: Sequence[Item]) -> str:
    """Return the reasoning in full where it is given, else its summaries."""
    thoughts = [
        string(part.get("text"))
        for item in output
        if item.get("type") == "reasoning"
        for part in _parts(item, "content") or _parts(item, "summary")
    ]
    return well_formed("\n\n".join(text for text in thoughts if text))


def _call(item: Item) -> ToolCall:
    key = string(item.get("call_id")) or string(item.get("id"))
    return tool_call(key, string(item.get("name")), item.get("arguments"))


class Pieces:
    """A response that comes as a stream; *read* makes the whole into a completion."""

    def __init__(self, read: Callable[[Reply], Completion]) -> None:
        self._read = read
        self._items: dict[int, dict[str, Json]] = {}
        self._reply: Reply | None = None
        self._first_token_s: float | None = None

    @property
    def finished(self) -> bool:
        """Whether the last event came."""
        return self._reply is not None

    over = finished

    def take(self, event: Event, *, at_s: float) -> None:
        """Add one event; the last one holds the whole response."""
        if event.type == "error" or event.error is not None:
            flat: Json = {"code": event.code, "message": event.message}
            raise fault_of(flat if event.error is None else event.error, "the stream broke")
        if event.type in _TOKENS and event.delta and self._first_token_s is None:
            self._first_token_s = at_s
        if event.type == "response.output_item.done" and event.item is not None:
            self._items[event.output_index] = event.item
        if event.type in _LAST:
            self._reply = event.response or Reply()

    def completion(self, *, elapsed_s: float) -> Completion:
        """Return the whole; a stream without its last event was cut."""
        if self._reply is None:
            raise TryAgain("the stream ended before the answer did: no response.completed came")
        items = [self._items[index] for index in sorted(self._items)]
        reply = msgspec.structs.replace(self._reply, output=self._reply.output or items)
        return replace(self._read(reply), elapsed_s=elapsed_s, first_token_s=self._first_token_s)
