"""Try again, politely, and not for ever."""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TypeVar

from bakeoff._lib.clock import now
from bakeoff.core.errors import ProviderError

T = TypeVar("T")

_PASSING = frozenset({408, 409, 425, 429})
_FOR_GOOD = frozenset({501, 505})


class TryAgain(ProviderError):  # noqa: N818 -- it says what to do
    """A fault that may pass. `after_s` is how long the endpoint asked to be left alone."""

    def __init__(self, message: str, *, after_s: float | None = None) -> None:
        super().__init__(message, transient=True)
        self.after_s = after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, how soon, and by when at the latest."""

    max_retries: int = 5
    delay_s: float = 0.5
    backoff: float = 2.0
    longest_s: float = 60.0
    deadline_s: float = 600.0

    def pause(self, retries: int, error: TryAgain, chance: float) -> float:
        """Return how long to wait before the next try; *chance* in [0, 1) spreads the crowd."""
        if error.after_s:
            # everybody was told the same moment: come a little later than asked, not together
            return error.after_s + chance * min(self.delay_s, 1.0)
        try:
            grown = min(self.delay_s * self.backoff**retries, self.longest_s)
        except OverflowError:
            grown = self.longest_s
        return grown * (0.5 + 0.5 * chance)


async def with_retries(
    once: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    *,
    on_retry: Callable[[str], None] | None = None,
    chance: Callable[[], float] = random.random,
) -> tuple[T, int]:
    """Return what *once* returns and how many further tries it took.

    Ends within the policy's deadline: with a value, or with the last fault and how often it came.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + policy.deadline_s
    last: TryAgain | None = None
    for retries in range(policy.max_retries + 1):
        try:
            async with asyncio.timeout_at(end):
                return await once(), retries
        except TimeoutError as error:
            before = f"; before that: {last}" if last else ""
            raise ProviderError(
                f"no whole answer within {policy.deadline_s:g} s (timeout_s){before}",
                transient=True,
            ) from error
        except TryAgain as error:
            last = error
        if retries == policy.max_retries:
            break
        pause = policy.pause(retries, last, chance())
        if loop.time() + pause >= end:
            raise ProviderError(
                f"{last}; waiting {pause:.1f} s more would pass the deadline of "
                f"{policy.deadline_s:g} s (timeout_s)",
                transient=True,
            ) from last
        if on_retry:
            on_retry(str(last))
        await asyncio.sleep(pause)
    times = f" ({policy.max_retries + 1} times)" if policy.max_retries else ""
    raise ProviderError(f"{last}{times}", transient=True) from last


def may_pass(status: int) -> bool:
    """Return whether a request that got this HTTP status is worth another try."""
    return status in _PASSING or (500 <= status < 600 and status not in _FOR_GOOD)


def retry_after(value: str | None, *, milliseconds: str | None = None) -> float | None:
    """Return the seconds that a Retry-After header asks for: a number, or a date."""
    fine = _number(milliseconds)
    if fine is not None:
        return fine / 1000
    plain = _number(value)
    return plain if plain is not None else _until(value)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return None if math.isnan(number) else max(number, 0.0)


def _until(date: str | None) -> float | None:
    try:
        moment = parsedate_to_datetime(date or "")
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max((moment - now()).total_seconds(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None
