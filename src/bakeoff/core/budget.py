"""Money and tokens: what a model charges, what a run may spend, and what it was billed."""

import json
from collections.abc import Mapping
from dataclasses import field, replace

from bakeoff._lib.value_object import value_object
from bakeoff.core.outcome import Request, Usage
from bakeoff.core.values import Json

_PER = 1e6  # prices are per million tokens
_OF_A_MESSAGE = 64  # tokens of a chat template around one message, and of its own preamble
_OF_A_PICTURE = 4096  # tokens: a picture is scaled down, and priced by its tiles
_OF_TOOLS = 1024  # tokens of the words that introduce tools
_OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict")
_SEVERAL = ("n", "best_of")


@value_object
class Bill:
    """What was billed; `cost_usd` is None where no cost is known.

    `unsure_*` is the most that requests of unknown cost may have been on top: answers that did
    not tell, and tries that were cut. `unpriced` counts requests of which not even that is known.
    """

    cost_usd: float | None = None
    tokens: int = 0
    unsure_usd: float = 0.0
    unsure_tokens: int = 0
    unpriced: int = 0

    @property
    def most_usd(self) -> float:
        """The most it can be, as far as prices are known."""
        return (self.cost_usd or 0.0) + self.unsure_usd

    @property
    def most_tokens(self) -> int:
        """The most it can be."""
        return self.tokens + self.unsure_tokens

    def __add__(self, other: "Bill") -> "Bill":
        known = [b.cost_usd for b in (self, other) if b.cost_usd is not None]
        return Bill(
            cost_usd=sum(known) if known else None,
            tokens=self.tokens + other.tokens,
            unsure_usd=self.unsure_usd + other.unsure_usd,
            unsure_tokens=self.unsure_tokens + other.unsure_tokens,
            unpriced=self.unpriced + other.unpriced,
        )


NO_BILL = Bill()


@value_object
class Cap:
    """What a run may spend in all, with its roles, retries and failed attempts; None is no cap."""

    cost_usd: float | None = None
    tokens: int | None = None

    def __bool__(self) -> bool:
        return self.cost_usd is not None or self.tokens is not None

    def divided(self, count: int) -> "Cap":
        """Return what each of *count* runs may spend, so that all together stay within it."""
        return Cap(
            cost_usd=None if self.cost_usd is None else self.cost_usd / count,
            tokens=None if self.tokens is None else self.tokens // count,
        )

    def share(self, bill: Bill) -> float | None:
        """Return how much of it *bill* is, by the side that is nearer to its end."""
        sides = ((bill.most_usd, self.cost_usd), (bill.most_tokens, self.tokens))
        return max((spent / cap for spent, cap in sides if cap), default=None)


NO_CAP = Cap()


@value_object
class Bound:
    """The most one request can cost; None is unknown."""

    usd: float | None
    tokens: int | None


@value_object
class Price:
    """US dollars per million tokens; `max_output` is the longest answer the model can give."""

    input: float
    output: float
    cached: float | None = None
    max_output: int | None = None

    def cost(self, usage: Usage) -> float | None:
        """Return what *usage* costs; None where a count is unknown.

        A provider that does not tell cached tokens has given no discount for any.
        """
        read, written, cached = usage.input_tokens, usage.output_tokens, usage.cached_tokens or 0
        if read is None or written is None:
            return None
        cheaper = self.input if self.cached is None else self.cached
        fresh = max(read - cached, 0)
        return (fresh * self.input + cached * cheaper + written * self.output) / _PER


@value_object
class Tariff:
    """What one model charges. Without a price its cost is unknown, never 0.

    `billed` is False where nothing is charged: a model on one's own machine, which has no price
    either, or an answer from a recording. `parameters` are the model's own, which go over those of a request.
    """

    price: Price | None = None
    billed: bool = True
    parameters: Mapping[str, Json] = field(default_factory=dict)

    def priced(self, usage: Usage) -> Usage:
        """Return *usage* with its cost: what the provider says, else what the price says."""
        if usage.cost_usd is not None or self.price is None:
            return usage
        return replace(usage, cost_usd=self.price.cost(usage))

    def bound(self, request: Request) -> Bound:
        """Return the most that *request* can cost where a limit on its answer is known."""
        read, written = most_input(request), self.most_output(request.parameters)
        return Bound(
            usd=self._most_usd(read, written), tokens=None if written is None else read + written
        )

    def most_output(self, parameters: Mapping[str, Json]) -> int | None:
        """Return how many tokens an answer to a request with *parameters* can have."""
        sent = {**parameters, **self.parameters}
        limits = [n for name in _OUTPUT_LIMITS if (n := _count(sent.get(name))) is not None]
        most = max(limits, default=None)
        if most is None and self.price is not None:
            most = self.price.max_output
        answers = max((_count(sent.get(name)) or 1 for name in _SEVERAL), default=1)
        return None if most is None else most * answers

    def _most_usd(self, read: int, written: int | None) -> float | None:
        if not self.billed:
            return 0.0
        if self.price is None:
            return None
        dearest = max(self.price.input, self.price.cached or 0.0)
        if not self.price.output:
            return read * dearest / _PER
        return None if written is None else (read * dearest + written * self.price.output) / _PER


UNPRICED = Tariff()


def most_input(request: Request) -> int:
    """Return how many tokens *request* can be at most: no tokenizer makes more than one a byte."""
    size = _OF_A_MESSAGE
    for message in request.messages:
        size += _bytes(message.content) + _bytes(message.reasoning or "") + _OF_A_MESSAGE
        for attachment in message.attachments:
            size += _OF_A_PICTURE if attachment.is_image else attachment.size
        for call in message.tool_calls:
            size += _bytes(call.name) + _bytes(call.arguments) + _OF_A_MESSAGE
    if request.prompt is not None:  # the endpoint is sent one of the two
        size = max(size, _bytes(request.prompt) + _OF_A_MESSAGE)
    if request.tools:
        size += _OF_TOOLS
        for tool in request.tools:
            size += _bytes(tool.name) + _bytes(tool.description) + _OF_A_MESSAGE
            size += _bytes(json.dumps(tool.parameters, default=str))
    if request.schema is not None:
        size += _OF_TOOLS + _bytes(json.dumps(request.schema, default=str))
    return size


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _count(value: Json) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 1:
        return None
    return int(value)
