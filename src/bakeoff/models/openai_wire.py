"""What OpenAI-compatible servers say, whole or in pieces, made into completions."""

import json
from collections.abc import Mapping

import msgspec

from bakeoff._lib.untrusted import one_line, well_formed
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import UNKNOWN_USAGE, Completion, Usage
from bakeoff.core.values import Json
from bakeoff.models.retry import TryAgain


class Details(msgspec.Struct):
    """The finer counts."""

    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


class UsageCounts(msgspec.Struct):
    """Token counts; `cost` is what some providers bill."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    completion_tokens_details: Details | None = None
    prompt_tokens_details: Details | None = None
    cost: float | None = None

    def usage(self) -> Usage:
        """Return the counts as ours."""
        fine, cached = self.completion_tokens_details, self.prompt_tokens_details
        return Usage(
            input_tokens=self.prompt_tokens,
            output_tokens=self.completion_tokens,
            reasoning_tokens=fine.reasoning_tokens if fine else None,
            cached_tokens=cached.cached_tokens if cached else None,
            cost_usd=self.cost,
        )


class Part(msgspec.Struct):
    """A message, or a piece of one."""

    content: str | list[dict[str, Json]] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[Json] | None = None

    @property
    def text(self) -> str | None:
        """The text of the content; None where there is none at all."""
        if isinstance(self.content, list):
            return "".join(str(p.get("text") or "") for p in self.content)
        return self.content if self.content is not None else self.refusal


class Choice(msgspec.Struct):
    """One answer: whole (`message`, `text`) or a piece (`delta`)."""

    message: Part | None = None
    delta: Part | None = None
    text: str | None = None
    finish_reason: str | None = None

    @property
    def part(self) -> Part:
        """The message, whatever it is called here."""
        return self.message or self.delta or Part(content=self.text)


class Reply(msgspec.Struct):
    """A whole answer, or one event of a stream."""

    choices: list[Choice] = []
    model: str | None = None
    usage: UsageCounts | None = None
    error: Json = None


_decoder = msgspec.json.Decoder(Reply)


def decode(data: bytes, *, content_type: str = "") -> Reply:
    """Return *data* as a reply; anything that is not one is a fault that shows how it begins."""
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError as error:
        raise ProviderError(f"an answer of the wrong shape: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_leniently(data, content_type)


def _decode_leniently(data: bytes, content_type: str) -> Reply:
    """Read what strict JSON refuses and servers send all the same: NaN, half characters."""
    try:
        return msgspec.convert(json.loads(data.decode("utf-8")), Reply)
    except UnicodeDecodeError as error:
        raise ProviderError(f"the answer is not UTF-8 text (byte {error.start})") from error
    except msgspec.ValidationError as error:
        raise ProviderError(f"an answer of the wrong shape: {error}") from error
    except (ValueError, RecursionError) as error:
        start = one_line(data[:200].decode("utf-8", "replace"), width=80)
        kind = f" ({content_type})" if content_type else ""
        raise ProviderError(
            f"the answer is not JSON{kind}: {start!r}; is the base URL right?"
        ) from error


def error_text(error: Json) -> str:
    """Return what an error object says."""
    if isinstance(error, Mapping):
        error = error.get("message") or error.get("type") or json.dumps(error)
    return one_line(str(error), width=300)


def whole(reply: Reply, *, elapsed_s: float, raw: Json = None) -> Completion:
    """Return the completion that came in one piece."""
    if reply.error is not None:
        raise TryAgain(f"an error instead of an answer: {error_text(reply.error)}")
    if not reply.choices:
        raise TryAgain("the answer has no choices")
    choice = reply.choices[0]
    part = choice.part
    reasoning = part.reasoning_content or part.reasoning
    text = part.text
    if text is None:
        if not (reasoning or part.tool_calls or choice.finish_reason == "length"):
            raise TryAgain("the answer has no content (null)")
        text = ""
    return Completion(
        text=well_formed(text),
        reasoning=well_formed(reasoning) if reasoning else None,
        stop_reason="refusal" if part.refusal else choice.finish_reason,
        model=reply.model,
        usage=reply.usage.usage() if reply.usage else UNKNOWN_USAGE,
        elapsed_s=elapsed_s,
        raw=raw,
    )


class Pieces:
    """A completion that comes as a stream of replies."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._stop_reason: str | None = None
        self._model: str | None = None
        self._usage = UNKNOWN_USAGE
        self.first_token_s: float | None = None

    def take(self, reply: Reply, *, at_s: float) -> None:
        """Add one event of the stream, which came *at_s* after the request."""
        if reply.error is not None:
            raise TryAgain(f"the stream broke: {error_text(reply.error)}")
        self._model = reply.model or self._model
        if reply.usage is not None:
            self._usage = reply.usage.usage()
        for choice in reply.choices[:1]:
            part = choice.part
            reasoning = part.reasoning_content or part.reasoning
            if text := part.text:
                self._text.append(text)
            if reasoning:
                self._reasoning.append(reasoning)
            if self.first_token_s is None and (text or reasoning):
                self.first_token_s = at_s
            self._stop_reason = choice.finish_reason or self._stop_reason

    def completion(self, *, elapsed_s: float) -> Completion:
        """Return the whole; a stream that never said why it ended was cut."""
        if self._stop_reason is None:
            raise TryAgain("the stream ended before the answer did")
        reasoning = well_formed("".join(self._reasoning))
        return Completion(
            text=well_formed("".join(self._text)),
            reasoning=reasoning or None,
            stop_reason=self._stop_reason,
            model=self._model,
            usage=self._usage,
            elapsed_s=elapsed_s,
            first_token_s=self.first_token_s,
        )
