"""Try again, politely, and not for ever."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from bakeoff._lib.clock import now
from bakeoff.core.errors import ProviderError

T = TypeVar("T")


class TryAgain(ProviderError):
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
        if error.after_s is not None:
            # everybody was told the same moment: come a little later than asked, not together
            return error.after_s + chance * min(self.delay_s, 1.0)
        grown = min(self.delay_s * self.backoff**retries, self.longest_s)
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
            before = f", after: {last}" if last else ""
            raise ProviderError(
                f"no answer within {policy.deadline_s:g} s{before}", transient=True
            ) from error
        except TryAgain as error:
            last = error
            pause = policy.pause(retries, error, chance())
            if retries == policy.max_retries:
                break
            if loop.time() + pause >= end:
                raise ProviderError(
                    f"{error}; waiting {pause:.0f} s more would pass the deadline of "
                    f"{policy.deadline_s:g} s",
                    transient=True,
                ) from error
            if on_retry:
                on_retry(str(error))
            await asyncio.sleep(pause)
    times = f" ({policy.max_retries + 1} times)" if policy.max_retries else ""
    raise ProviderError(f"{last}{times}", transient=True) from last


def retry_after(value: str | None, *, milliseconds: str | None = None) -> float | None:
    """Return the seconds that a Retry-After header asks for: a number, or a date."""
    try:
        if milliseconds:
            return max(float(milliseconds) / 1000, 0.0)
        if not value:
            return None
        return max(float(value), 0.0)
    except ValueError:
        return _until(value or "")


def _until(date: str) -> float | None:
    try:
        moment: datetime = parsedate_to_datetime(date)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max((moment - now()).total_seconds(), 0.0)
