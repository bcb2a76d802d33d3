"""OpenAI's Responses API, as programs speak it to the gateway."""

from collections.abc import Iterator

from bakeoff._lib.clock import timestamp
from bakeoff.core.outcome import Completion
from bakeoff.core.task import ToolCall
from bakeoff.core.values import Json
from bakeoff.gateway.asked import Asked
from bakeoff.gateway.dialect import Counts, Dialect, Problem, ending
from bakeoff.gateway.openai import error
from bakeoff.gateway.responses_input import FREE_FORM, read
from bakeoff.gateway.wire import arguments_object, named_event

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}

# In a stream that has begun only these codes keep codex from asking again.
_FAILURES = {"limit_reached": "insufficient_quota", "provider_refused": "invalid_prompt"}

Event = dict[str, Json]


class ResponsesAnswer:
    """A response, whole or as events, which are numbered."""

    def __init__(self, asked: Asked, number: int) -> None:
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
        counts = Counts.of(completion.usage)
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
    """Return what a tool of free text is given; a model may have left the object out."""
    text = arguments_object(call).get(FREE_FORM)
    return text if isinstance(text, str) else call.arguments


def _item_events(index: int, item: Event, text: str) -> Iterator[Event]:
    """Yield an item as it comes into being; each event is a dict of its own."""
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


RESPONSES = Dialect(read=read, answer=ResponsesAnswer, error=error)
