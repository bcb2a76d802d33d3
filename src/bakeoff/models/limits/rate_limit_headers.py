"""Parse the rate limit headers of a response."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Literal

from bakeoff._lib.clock import now as utc_now
from bakeoff._lib.value_object import value_object

Unit = Literal["requests", "tokens"]

_UNITS: tuple[Unit, ...] = ("requests", "tokens")
_REMAINING = tuple(
    (unit, f"x-ratelimit-remaining-{unit}", f"anthropic-ratelimit-{unit}-remaining")
    for unit in _UNITS
)
_LOW = 0.2
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@value_object
class RateLimitHeaders:
    """One rate limit of an endpoint: the limit, what remains of it, and when it resets."""

    unit: Unit
    limit: float
    remaining: float
    reset_s: float

    @property
    def low(self) -> bool:
        """Whether little is left."""
        return self.remaining < _LOW * self.limit

    @property
    def rate(self) -> float:
        """What comes back per second.

        Right for a store that fills up evenly. Where it is filled at once, and little is left,
        it is at least 80 % of what the endpoint lets through.
        """
        return max(self.limit - self.remaining, 1.0) / max(self.reset_s, 0.001)


def parse_rate_limit_headers(headers: Mapping[str, str]) -> Iterator[RateLimitHeaders]:
    """Yield the limits in the headers of OpenAI (and compatible servers) and of Anthropic."""
    for unit, usual, anthropic in _REMAINING:
        if (left := headers.get(usual)) is not None:
            form = f"x-ratelimit-{{}}-{unit}"
        elif (left := headers.get(anthropic)) is not None:
            form = f"anthropic-ratelimit-{unit}-{{}}"
        else:
            continue
        limit = _number(headers.get(form.format("limit")))
        remaining = _number(left)
        reset_s = parse_reset(headers.get(form.format("reset")))
        if limit and remaining is not None and reset_s is not None:
            yield RateLimitHeaders(unit=unit, limit=limit, remaining=remaining, reset_s=reset_s)


def parse_reset(text: str | None) -> float | None:
    """Return a reset as seconds from now: `6m0s`, `12ms`, a plain number, or a moment."""
    text = (text or "").strip()
    if _PART.sub("", text) == "" and text:
        return sum(float(amount) * _SECONDS[unit] for amount, unit in _PART.findall(text))
    number = _number(text)
    return number if number is not None else _until(text)


def _number(text: str | None) -> float | None:
    if text is None or not re.fullmatch(r"\d{1,12}(?:\.\d{1,12})?", text.strip()):
        return None
    return float(text)


def _until(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max((moment - utc_now()).total_seconds(), 0.0)
