"""What OpenAI-compatible servers say, whole or in pieces, made into completions.

Nothing here trusts a number or a text: what is no count is unknown, what cannot be text is
replaced, and an answer that does not say why it ended is no answer.
"""

import json
import math
from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType

from bakeoff._lib.untrusted import one_line, well_formed
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import UNKNOWN_USAGE, Completion, Usage
from bakeoff.core.values import Json
from bakeoff.models.retry import TryAgain, may_pass

_LARGEST_COUNT = 2**53  # beyond it a number is a mistake, and no ledger could hold it


class Details(msgspec.Struct):
    """The finer counts."""

    reasoning_tokens: float | None = None
    cached_tokens: float | None = None


class UsageCounts(msgspec.Struct):
    """Token counts; `cost` is what some providers bill."""

    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    completion_tokens_details: Details | None = None
    prompt_tokens_details: Details | None = None
    cost: float | None = None

    def usage(self) -> Usage:
        """Return the counts as ours."""
        fine, cached = self.completion_tokens_details, self.prompt_tokens_details
        cost = self.cost
        return Usage(
            input_tokens=_count(self.prompt_tokens),
            output_tokens=_count(self.completion_tokens),
            reasoning_tokens=_count(fine.reasoning_tokens) if fine else None,
            cached_tokens=_count(cached.cached_tokens) if cached else None,
            cost_usd=cost if cost is not None and 0 <= cost < math.inf else None,
        )


def _count(value: float | None) -> int | None:
    return int(value) if value is not None and 0 <= value <= _LARGEST_COUNT else None


class Part(msgspec.Struct):
    """A message, or a piece of one."""

    content: str | list[dict[str, Json] | str] | None = None
    reasoning_content: str | None = None
    reasoning: Json = None
    refusal: str | None = None
    tool_calls: list[Json] | None = None

    @property
    def text(self) -> str | None:
        """The text of the content; None where there is none at all."""
        content = self.content
        if isinstance(content, list):
            content = "".join(_text_of(piece) for piece in content)
        return content or self.refusal or content

    @property
    def thought(self) -> str | None:
        """The reasoning that came with it, whatever it is called here."""
        other = self.reasoning
        return self.reasoning_content or (other if isinstance(other, str) else None)


def _text_of(piece: Mapping[str, Json] | str) -> str:
    text = piece if isinstance(piece, str) else piece.get("text")
    return text if isinstance(text, str) else ""


class Choice(msgspec.Struct):
    """One answer: whole (`message`, `text`) or a piece (`delta`)."""

    index: int | None = 0
    message: Part | None = None
    delta: Part | None = None
    text: str | None = None
    finish_reason: str | UnsetType | None = UNSET
    error: Json = None

    @property
    def part(self) -> Part:
        """The message, whatever it is called here."""
        return self.message or self.delta or Part(content=self.text)

    def check(self) -> None:
        """Raise where the server says that it broke off."""
        if self.error is not None or self.finish_reason == "error":
            raise fault_of(self.error, "the server broke off its answer")


class Reply(msgspec.Struct):
    """A whole answer, or one event of a stream."""

    choices: list[Choice] | None = None
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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_leniently(data, content_type)


def _decode_leniently(data: bytes, content_type: str) -> Reply:
    """Read what strict JSON refuses and servers send all the same: NaN, half characters, a BOM."""
    try:
        return msgspec.convert(json.loads(data.decode("utf-8-sig")), Reply)
    except UnicodeDecodeError as error:
        raise ProviderError(
            f"the answer is not UTF-8 text{_kind(content_type)}: byte {error.start} of {len(data)}"
        ) from error
    except msgspec.ValidationError as error:
        raise ProviderError(f"an answer of the wrong shape: {error}") from error
    except RecursionError as error:
        raise ProviderError("the answer is nested too deeply to be one") from error
    except ValueError as error:
        raise _not_json(data, content_type, error) from error


def _not_json(data: bytes, content_type: str, error: ValueError) -> ProviderError:
    start = one_line(data[:200].decode("utf-8", "replace"), width=80)
    if not start:
        return TryAgain("the answer is empty")
    if start.startswith("{"):
        return TryAgain(f"the answer is broken JSON, perhaps cut ({error}): it begins {start!r}")
    return ProviderError(
        f"the answer is not JSON{_kind(content_type)}: {start!r}; is the base URL right?"
    )


def _kind(content_type: str) -> str:
    return f" ({one_line(content_type, width=60)})" if content_type else ""


def error_text(error: Json) -> str:
    """Return what an error object says."""
    try:
        if isinstance(error, Mapping):
            error = error.get("message") or error.get("type") or json.dumps(error)
        return one_line(str(error), width=300)
    except RecursionError:
        return "something nested too deeply to show"


def fault_of(error: Json, what: str) -> ProviderError:
    """Return an error object as a fault; its code, where it has one, says whether it may pass."""
    message = f"{what}: {error_text(error)}" if error is not None else what
    if isinstance(error, Mapping):
        code = error.get("code")
        bad_code = isinstance(code, int) and 400 <= code < 600 and not may_pass(code)
        if bad_code or error.get("type") == "invalid_request_error":
            return ProviderError(message)
    return TryAgain(message)


def whole(reply: Reply, *, elapsed_s: float, raw: Json = None) -> Completion:
    """Return the completion that came in one piece."""
    if reply.error is not None:
        raise fault_of(reply.error, "an error instead of an answer")
    if not reply.choices:
        raise TryAgain("the answer has no choices")
    choice = reply.choices[0]
    choice.check()
    part, stop_reason = choice.part, choice.finish_reason
    if stop_reason is None:  # said to be null, which is how Ollama ends an answer it had to cut
        raise TryAgain("the answer is not complete: its finish_reason is null")
    thought, text = part.thought, part.text
    if text is None and not (thought or part.tool_calls or stop_reason in _MAY_SAY_NOTHING):
        raise TryAgain("the answer has no content (null)")
    return Completion(
        text=well_formed(text or ""),
        reasoning=well_formed(thought) if thought else None,
        stop_reason="refusal" if part.refusal else _reason(stop_reason),
        model=well_formed(reply.model) if reply.model else None,
        usage=reply.usage.usage() if reply.usage else UNKNOWN_USAGE,
        elapsed_s=elapsed_s,
        raw=raw,
    )


_MAY_SAY_NOTHING = frozenset({"length", "content_filter"})


def _reason(reason: str | UnsetType) -> str | None:
    return None if reason is UNSET else well_formed(reason)


class Pieces:
    """A completion that comes as a stream of replies."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._stop_reason: str | None = None
        self._refused = False
        self._model: str | None = None
        self._usage = UNKNOWN_USAGE
        self.first_token_s: float | None = None

    @property
    def finished(self) -> bool:
        """Whether the server said why the answer ended."""
        return self._stop_reason is not None

    def take(self, reply: Reply, *, at_s: float) -> None:
        """Add one event of the stream, which came *at_s* after the request."""
        if reply.error is not None:
            raise fault_of(reply.error, "the stream broke")
        self._model = reply.model or self._model
        if reply.usage is not None:
            self._usage = reply.usage.usage()
        for choice in reply.choices or ():
            if not choice.index:  # with `n`, further choices come in between
                self._add(choice, at_s)

    def _add(self, choice: Choice, at_s: float) -> None:
        choice.check()
        part = choice.part
        text, thought = part.text, part.thought
        if text:
            self._text.append(text)
        if thought:
            self._reasoning.append(thought)
        if self.first_token_s is None and (text or thought):
            self.first_token_s = at_s
        self._refused = self._refused or bool(part.refusal)
        if choice.finish_reason:
            self._stop_reason = choice.finish_reason

    def completion(self, *, elapsed_s: float) -> Completion:
        """Return the whole; a stream that never said why it ended was cut."""
        if self._stop_reason is None:
            raise TryAgain("the stream ended before the answer did: no finish_reason came")
        reasoning = well_formed("".join(self._reasoning))
        return Completion(
            text=well_formed("".join(self._text)),
            reasoning=reasoning or None,
            stop_reason="refusal" if self._refused else well_formed(self._stop_reason),
            model=well_formed(self._model) if self._model else None,
            usage=self._usage,
            elapsed_s=elapsed_s,
            first_token_s=self.first_token_s,
        )
