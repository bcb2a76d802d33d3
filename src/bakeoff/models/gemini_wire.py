"""What the Gemini API says, whole or as a stream of partial answers, made into completions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count as counter

import msgspec

from bakeoff._lib.untrusted import one_line, well_formed
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import UNKNOWN_USAGE, Completion, Usage
from bakeoff.core.task import ToolCall
from bakeoff.core.values import Json
from bakeoff.models import json_wire
from bakeoff.models.faults import fault_of
from bakeoff.models.json_wire import Counts, count, string
from bakeoff.models.retry import TryAgain
from bakeoff.models.tool_calls import tool_call

_OWN_ID = "bakeoff-call-"
_FILTERED = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    }
)
_BAD_CALLS = frozenset(
    {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"}
)  # the model's own mistakes: an answer, and a bad one
_MAY_SAY_NOTHING = {"MAX_TOKENS", *_FILTERED, *_BAD_CALLS}


class UsageCounts(Counts, rename="camel"):
    """Token counts; thoughts are counted apart from what the candidates say."""

    prompt_token_count: float | None = None
    tool_use_prompt_token_count: float | None = None
    candidates_token_count: float | None = None
    thoughts_token_count: float | None = None
    cached_content_token_count: float | None = None

    def usage(self) -> Usage:
        """Return the counts as ours; the API leaves out a count of zero."""
        asked = count(self.prompt_token_count)
        if asked is None:
            return UNKNOWN_USAGE
        thoughts = count(self.thoughts_token_count or 0)
        said = count(self.candidates_token_count or 0)
        return Usage(
            input_tokens=asked + (count(self.tool_use_prompt_token_count) or 0),
            output_tokens=None if said is None or thoughts is None else said + thoughts,
            reasoning_tokens=thoughts,
            cached_tokens=count(self.cached_content_token_count or 0),
        )


class Content(msgspec.Struct):
    """What a candidate says; the parts are kept as they came."""

    parts: list[dict[str, Json]] | None = None


class Candidate(msgspec.Struct, rename="camel"):
    """One answer, or a piece of it."""

    content: Content | None = None
    finish_reason: str | None = None
    index: int | None = None

    @property
    def parts(self) -> list[dict[str, Json]]:
        """The parts of the content."""
        return (self.content.parts if self.content else None) or []


class PromptFeedback(msgspec.Struct, rename="camel"):
    """What the API found wrong with the prompt."""

    block_reason: str | None = None
    block_reason_message: str | None = None


class Reply(msgspec.Struct, rename="camel"):
    """A whole answer, or one event of a stream."""

    candidates: list[Candidate] | None = None
    prompt_feedback: PromptFeedback | None = None
    usage_metadata: UsageCounts | None = None
    model_version: str | None = None
    error: Json = None

    def check(self, what: str) -> None:
        """Raise where the API gives an error, or will not answer this prompt at all."""
        if self.error is not None:
            raise fault_of(self.error, what)
        blocked = self.prompt_feedback
        if blocked and blocked.block_reason:
            said = blocked.block_reason_message or blocked.block_reason
            raise ProviderError(
                f"the prompt was blocked ({one_line(blocked.block_reason)}): {one_line(said)}; "
                "`safetySettings` may allow it"
            )


_decoder = msgspec.json.Decoder(Reply)


def decode(data: bytes, content_type: str = "") -> Reply:
    """Return a whole answer, or one event of a stream."""
    return json_wire.decode(data, _decoder, content_type=content_type)


class Reader:
    """Makes replies into completions; gives a number of its own to a call that has no id."""

    def __init__(self) -> None:
        self._numbers = counter(1)

    def completion_of(self, reply: Reply) -> Completion:
        """Return the completion that is in a reply."""
        reply.check("an error instead of an answer")
        if not reply.candidates:
            raise TryAgain("the answer has no candidates")
        candidate = reply.candidates[0]
        reason = candidate.finish_reason
        if reason is None:
            raise TryAgain("the answer is not complete: it has no finishReason")
        text = _joined(candidate.parts, thought=False)
        reasoning = _joined(candidate.parts, thought=True)
        calls = tuple(self._calls(candidate.parts))
        if not (text or reasoning or calls or reason in _MAY_SAY_NOTHING):
            raise TryAgain(f"the answer has no content (finishReason {one_line(reason)!r})")
        return Completion(
            text=text,
            reasoning=reasoning or None,
            tool_calls=calls,
            stop_reason=_stop_reason(reason, calls),
            model=well_formed(reply.model_version) if reply.model_version else None,
            usage=reply.usage_metadata.usage() if reply.usage_metadata else UNKNOWN_USAGE,
            flags=reply.usage_metadata.flags if reply.usage_metadata else (),
        )

    def _calls(self, parts: Sequence[Mapping[str, Json]]) -> list[ToolCall]:
        asked = [p["functionCall"] for p in parts if isinstance(p.get("functionCall"), Mapping)]
        return [
            tool_call(
                string(call.get("id")) or f"{_OWN_ID}{next(self._numbers)}",
                string(call.get("name")),
                call.get("args"),
            )
            for call in asked
            if isinstance(call, Mapping)
        ]


def given_id(call_id: str) -> dict[str, Json]:
    """Return the id of a call where the API gave it; it does not know those of our own."""
    return {} if call_id.startswith(_OWN_ID) else {"id": call_id}


def _joined(parts: Sequence[Mapping[str, Json]], *, thought: bool) -> str:
    texts = [string(p.get("text")) for p in parts if bool(p.get("thought")) is thought]
    return well_formed("".join(texts))


def _stop_reason(reason: str, calls: tuple[ToolCall, ...]) -> str:
    if reason == "STOP":
        return "tool_calls" if calls else "stop"
    if reason == "MAX_TOKENS":
        return "length"
    return "content_filter" if reason in _FILTERED else well_formed(reason)


class Pieces:
    """An answer that comes as a stream; *read* makes the whole into a completion."""

    def __init__(self, read: Callable[[Reply], Completion]) -> None:
        self._read = read
        self._parts: list[dict[str, Json]] = []
        self._reason: str | None = None
        self._last = Reply()
        self._first_token_s: float | None = None

    @property
    def finished(self) -> bool:
        """Whether the API said why the answer ended."""
        return self._reason is not None

    @property
    def over(self) -> bool:
        """Never before the end of the stream: some answers name their reason in every event."""
        return False

    def take(self, event: Reply, *, at_s: float) -> None:
        """Add one partial answer."""
        event.check("the stream broke")
        self._last = Reply(
            usage_metadata=event.usage_metadata or self._last.usage_metadata,
            model_version=event.model_version or self._last.model_version,
        )
        for candidate in event.candidates or ():
            if candidate.index:
                continue
            self._parts.extend(candidate.parts)
            self._reason = candidate.finish_reason or self._reason
            if candidate.parts and self._first_token_s is None:
                self._first_token_s = at_s

    def completion(self, *, elapsed_s: float) -> Completion:
        """Return the whole; a stream that never said why it ended was cut."""
        if self._reason is None:
            raise TryAgain("the stream ended before the answer did: no finishReason came")
        answer = Candidate(content=Content(parts=self._parts), finish_reason=self._reason)
        reply = msgspec.structs.replace(self._last, candidates=[answer])
        return replace(self._read(reply), elapsed_s=elapsed_s, first_token_s=self._first_token_s)
