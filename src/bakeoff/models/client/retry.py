"""Try again, politely, and not for ever."""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Generic, TypeVar

from bakeoff._lib.clock import now
from bakeoff._lib.deadline import within
from bakeoff.core.errors import ProviderError

T = TypeVar("T")
Try = Callable[[], Awaitable[T]]
Told = Callable[[str], None]
Rest = Callable[[float], Awaitable[None]]

_PASSING = frozenset({408, 409, 425, 429})
_FOR_GOOD = frozenset({501, 505})
_OVERLOADED = frozenset({503, 504, 529})


class Strain(StrEnum):
    """What was too much for an endpoint: requests that came too fast, or too many at once."""

    RATE = "rate"
    LOAD = "load"


class TryAgain(ProviderError):  # noqa: N818 -- it says what to do
    """A fault that may pass. `after_s` is how long the endpoint asked to be left alone.

    `outage` is whether the endpoint counts as down: then its limiter says when to try again. A
    `probe` was sent to find out whether it still is, and costs the request none of its tries.
    """

    outage = False
    probe = False

    def __init__(
        self,
        message: str,
        *,
        after_s: float | None = None,
        strain: Strain | None = None,
        billable: bool = True,
        status: int | None = None,
    ) -> None:
        super().__init__(message, transient=True, billable=billable, status=status)
        self.after_s = after_s
        self.strain = strain


class Unreachable(TryAgain):
    """Nothing answered the call; perhaps the server is still starting."""

    def __init__(self, message: str) -> None:
        super().__init__(message, strain=Strain.LOAD, billable=False)


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


class _Tries(Generic[T]):
    """The tries of one request. Only what they take is taken from its time, not a wait before."""

    def __init__(self, once: Try[T], policy: RetryPolicy) -> None:
        self._once = once
        self._policy = policy
        self._clock = asyncio.get_running_loop().time
        self.left_s = policy.deadline_s
        self.last: TryAgain | None = None
        self._forgiven = 0

    async def once(self) -> T:
        """Try within what is left of the time."""
        began = self._clock()
        try:
            with within(self.left_s):
                return await self._once()
        finally:
            self.left_s -= self._clock() - began

    def late(self) -> ProviderError:
        """Return the fault of a request whose time ran out."""
        before = f"; before that: {self.last}" if self.last else ""
        return ProviderError(
            f"no whole answer within {self._policy.deadline_s:g} s (timeout_s){before}",
            transient=True,
        )

    def forgives(self, error: TryAgain) -> bool:
        """Return whether a try is not counted: the endpoint was down, and it may be tried later."""
        if not error.outage:
            return False
        if not error.probe:  # it was sent before the outage was known: once is bad luck
            self._forgiven += 1
        return error.probe or self._forgiven == 1

    async def pause(
        self, last: TryAgain, pause_s: float, rest: Rest, on_retry: Told | None
    ) -> None:
        """Wait before the next try, unless there would be no time left for it."""
        if pause_s >= self.left_s:
            raise ProviderError(
                f"{last}; waiting {pause_s:.1f} s more would pass the deadline of "
                f"{self._policy.deadline_s:g} s (timeout_s)",
                transient=True,
                billable=last.billable,
            ) from last
        if on_retry:
            on_retry(str(last))
        self.left_s -= pause_s
        await rest(pause_s)


async def with_retries(
    once: Try[T],
    policy: RetryPolicy,
    *,
    through: Callable[[Try[T]], Awaitable[T]] | None = None,
    rest: Rest = asyncio.sleep,
    on_retry: Told | None = None,
    on_lost: Callable[[], None] | None = None,
    chance: Callable[[], float] = random.random,
) -> tuple[T, int]:
    """Return what *once* returns and how many further tries it took.

    Ends within the policy's deadline: with a value, or with the last fault and how often it came.
    Every try goes *through* where that is given; time spent waiting there does not count, nor does
    a try that met an endpoint which is down. *rest* waits between two tries.
    """
    tries = _Tries(once, policy)
    retries = 0
    while True:
        left_s = tries.left_s
        try:
            if through is None:
                return await tries.once(), retries
            return await through(_telling(tries, on_retry)), retries
        except TimeoutError as error:
            raise tries.late() from error
        except TryAgain as error:
            tries.last = last = error
        if tries.forgives(last):
            tries.left_s = left_s
            continue
        if retries >= policy.max_retries:
            break
        if not last.outage:
            await tries.pause(last, policy.pause(retries, last, chance()), rest, on_retry)
        if on_lost and last.billable:
            on_lost()
        retries += 1
    times = f" ({policy.max_retries + 1} times)" if policy.max_retries else ""
    raise ProviderError(
        f"{last}{times}", transient=True, billable=last.billable, status=last.status
    ) from last


def _telling(tries: _Tries[T], on_retry: Told | None) -> Try[T]:
    """Return a try that tells once more why it is another one: the wait before it was told, too."""
    last = tries.last
    if last is None or on_retry is None:
        return tries.once

    def once() -> Awaitable[T]:
        on_retry(str(last))
        return tries.once()

    return once


def may_pass(status: int) -> bool:
    """Return whether a request that got this HTTP status is worth another try."""
    return status in _PASSING or (500 <= status < 600 and status not in _FOR_GOOD)


def strain_of(status: int) -> Strain | None:
    """Return what an HTTP status says was too much, if anything."""
    if status == 429:
        return Strain.RATE
    return Strain.LOAD if status in _OVERLOADED else None


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
