"""Google's Gemini API, as programs speak it to the gateway."""

from collections.abc import Iterator
from functools import partial

from bakeoff.core.outcome import Completion
from bakeoff.core.values import Json
from bakeoff.gateway.asked import Asked
from bakeoff.gateway.dialect import Counts, Dialect, Problem, ending
from bakeoff.gateway.gemini_input import read, read_to_count
from bakeoff.gateway.wire import arguments_object, event

_ENDINGS = {"length": "MAX_TOKENS", "content_filter": "SAFETY", "refusal": "SAFETY"}
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
}


class GeminiAnswer:
    """An answer of `generateContent`, or its one event."""

    def __init__(self, asked: Asked, number: int) -> None:
        self._asked = asked
        self._number = number

    def whole(self, completion: Completion) -> dict[str, Json]:
        """Return the answer in one piece."""
        counts = Counts.of(completion.usage)
        candidate: dict[str, Json] = {
            "content": {"role": "model", "parts": list(_parts(completion))},
            "finishReason": _ENDINGS.get(ending(completion), "STOP"),
            "index": 0,
        }
        usage: dict[str, Json] = {
            "promptTokenCount": counts.input,
            "candidatesTokenCount": max(counts.output - counts.reasoning, 0),
            "thoughtsTokenCount": counts.reasoning,
            "cachedContentTokenCount": counts.cached,
            "totalTokenCount": counts.input + counts.output,
        }
        return {
            "candidates": [candidate],
            "usageMetadata": usage,
            "modelVersion": self._asked.model,
            "responseId": f"response-{self._number}",
        }

    def opening(self) -> bytes:
        """Return nothing: an event needs something to say."""
        return b""

    def ping(self) -> bytes:
        """Return empty lines: some of Google's clients stumble over a comment."""
        return b"\n\n"

    def events(self, completion: Completion) -> bytes:
        """Return the answer as one event."""
        return event(self.whole(completion))

    def broken(self, problem: Problem) -> bytes:
        """Return the error as the last event."""
        return event(error(problem))


def _parts(completion: Completion) -> Iterator[dict[str, Json]]:
    if completion.reasoning:
        yield {"text": completion.reasoning, "thought": True}
    if completion.text or not completion.tool_calls:
        yield {"text": completion.text}
    for call in completion.tool_calls:
        arguments = arguments_object(call)
        yield {"functionCall": {"id": call.id, "name": call.name, "args": arguments}}


def error(problem: Problem) -> dict[str, Json]:
    """Return an error as Google's APIs have it."""
    status = _STATUSES.get(problem.status, "UNAVAILABLE")
    return {"error": {"code": problem.status, "message": problem.message, "status": status}}


def gemini(model: str, *, stream: bool) -> Dialect:
    """Return the dialect as it is spoken at the address of *model*."""
    return Dialect(read=partial(read, model=model, stream=stream), answer=GeminiAnswer, error=error)


COUNTING = Dialect(read=read_to_count, answer=GeminiAnswer, error=error)
