"""Retries with exponential backoff and jitter, and which errors of providers are retryable."""

import asyncio
import json
import math
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC
from enum import StrEnum
from typing import Generic, TypeVar

from bakeoff._lib.clock import now, within
from bakeoff._lib.sanitize import one_line
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import ProviderError
from bakeoff.core.values import Json

T = TypeVar("T")
Try = Callable[[], Awaitable[T]]
RetryListener = Callable[[str], None]
Sleep = Callable[[float], Awaitable[None]]

_PASSING = frozenset({408, 409, 425, 429})
_FOR_GOOD = frozenset({501, 505})
_OVERLOADED = frozenset({503, 504, 529})


class Overload(StrEnum):
    """What overloaded an endpoint: requests sent too fast, or too many at once."""

    RATE = "rate"
    LOAD = "load"


class RetryableError(ProviderError):
    """A fault worth a retry; `retry_after_s` is the delay that the endpoint asked for.

    `outage` is whether the endpoint counts as down: then its limiter decides when to retry. A
    `probe` was sent to find out whether it still is, and does not count as a try.
    """

    outage = False
    probe = False

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float | None = None,
        overload: Overload | None = None,
        billable: bool = True,
        status: int | None = None,
    ) -> None:
        super().__init__(message, transient=True, billable=billable, status=status)
        self.retry_after_s = retry_after_s
        self.overload = overload


class UnreachableError(RetryableError):
    """The server could not be reached; perhaps it is still starting."""

    def __init__(self, message: str) -> None:
        super().__init__(message, overload=Overload.LOAD, billable=False)


@value_object
class RetryPolicy:
    """How many retries, their backoff, and the deadline of the whole request."""

    max_retries: int = 6
    delay_s: float = 0.1
    backoff: float = 2.0
    longest_s: float = 60.0
    deadline_s: float = 600.0

    def backoff_delay(self, retries: int, error: RetryableError, jitter: float) -> float:
        """Return how long to wait before the next try; *jitter* is a random number in [0, 1)."""
        if error.retry_after_s:
            # all clients were given the same moment: spread them a little after it
            return error.retry_after_s * (1 + 0.25 * jitter)
        try:
            delay_s = min(self.delay_s * self.backoff**retries, self.longest_s)
        except OverflowError:
            delay_s = self.longest_s
        return with_jitter(delay_s, jitter)


def with_jitter(delay_s: float, jitter: float) -> float:
    """Return *delay_s* shortened by up to half, so that clients do not retry together."""
    return delay_s * (0.5 + 0.5 * jitter)


class _Tries(Generic[T]):
    """The tries of one request; only their own time counts against its deadline, not the queue."""

    def __init__(self, once: Try[T], policy: RetryPolicy) -> None:
        self._once = once
        self._policy = policy
        self._clock = asyncio.get_running_loop().time
        self.left_s = policy.deadline_s
        self.last: RetryableError | None = None
        self._forgiven = 0

    async def once(self) -> T:
        """Try once within the time that is left."""
        began = self._clock()
        try:
            with within(self.left_s):
                return await self._once()
        finally:
            self.left_s -= self._clock() - began

    def timeout_error(self) -> ProviderError:
        """Return the fault of a request whose time ran out."""
        before = f"; before that: {self.last}" if self.last else ""
        return ProviderError(
            f"no whole answer within {self._policy.deadline_s:g} s (timeout_s){before}",
            transient=True,
        )

    def forgives(self, error: RetryableError) -> bool:
        """Return whether a try is not counted because the endpoint was down."""
        if not error.outage:
            return False
        if not error.probe:  # it was sent before the outage was known: forgiven once
            self._forgiven += 1
        return error.probe or self._forgiven == 1

    async def pause(
        self, last: RetryableError, pause_s: float, sleep: Sleep, on_retry: RetryListener | None
    ) -> None:
        """Wait before the next try, unless that would exceed the deadline."""
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
        await sleep(pause_s)


async def with_retries(
    once: Try[T],
    policy: RetryPolicy,
    *,
    send: Callable[[Try[T]], Awaitable[T]] | None = None,
    sleep: Sleep = asyncio.sleep,
    on_retry: RetryListener | None = None,
    on_lost: Callable[[], Awaitable[None]] | None = None,
    jitter: Callable[[], float] = random.random,
) -> tuple[T, int]:
    """Return what *once* returns and how many retries it took.

    Ends within the policy's deadline: with a value, or with the last fault and how often it came.
    Every try is passed to *send* if given; time in its queue does not count, nor does a try that
    met an endpoint that is down. *sleep* waits between two tries.
    """
    tries = _Tries(once, policy)
    retries = 0
    while True:
        left_s = tries.left_s
        try:
            if send is None:
                return await tries.once(), retries
            return await send(_announcing(tries, on_retry)), retries
        except TimeoutError as error:
            raise tries.timeout_error() from error
        except RetryableError as error:
            tries.last = last = error
        if tries.forgives(last):
            tries.left_s = left_s
            continue
        if retries >= policy.max_retries:
            break
        if not last.outage:
            await tries.pause(last, policy.backoff_delay(retries, last, jitter()), sleep, on_retry)
        if on_lost and last.billable:
            await on_lost()
        retries += 1
    times = f" ({policy.max_retries + 1} times)" if policy.max_retries else ""
    raise ProviderError(
        f"{last}{times}", transient=True, billable=last.billable, status=last.status
    ) from last


def _announcing(tries: _Tries[T], on_retry: RetryListener | None) -> Try[T]:
    """Return a try that reports again why it is a retry, after the wait in the queue."""
    last = tries.last
    if last is None or on_retry is None:
        return tries.once

    def once() -> Awaitable[T]:
        on_retry(str(last))
        return tries.once()

    return once


def is_retryable(status: int) -> bool:
    """Return whether a request that got this HTTP status is worth a retry."""
    return status in _PASSING or (500 <= status < 600 and status not in _FOR_GOOD)


def overload_of(status: int) -> Overload | None:
    """Return the kind of overload that an HTTP status stands for, if any."""
    if status == 429:
        return Overload.RATE
    return Overload.LOAD if status in _OVERLOADED else None


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
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(date or "")
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max((moment - now()).total_seconds(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None


# --- error objects of providers -------------------------------------------------------------------


_PERMANENT_CODES = frozenset(
    {
        # OpenAI
        "invalid_request_error",
        "insufficient_quota",
        "invalid_prompt",
        "context_length_exceeded",
        "model_not_found",
        # Anthropic
        "authentication_error",
        "billing_error",
        "not_found_error",
        "permission_error",
        "request_too_large",
        # Google
        "FAILED_PRECONDITION",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
    }
)
_SPENT = frozenset({"insufficient_quota", "billing_error"})
_STRAINS = {
    "rate_limit_error": Overload.RATE,
    "rate_limit_exceeded": Overload.RATE,
    "RESOURCE_EXHAUSTED": Overload.RATE,
    "overloaded_error": Overload.LOAD,
    "UNAVAILABLE": Overload.LOAD,
}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")


def error_text(error: Json) -> str:
    """Return the message of an error object."""
    try:
        if isinstance(error, Mapping):
            error = error.get("message") or error.get("type") or json.dumps(error)
        return one_line(str(error), width=300)
    except RecursionError:
        return "something nested too deeply to show"


def fault_of(error: Json, what: str) -> ProviderError:
    """Return an error object as a fault; its code, if any, decides whether it is retryable."""
    message = f"{what}: {error_text(error)}" if error is not None else what
    if not isinstance(error, Mapping):
        return RetryableError(message)
    names = _names(error)
    code = error.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    if (status and not is_retryable(status)) or not _PERMANENT_CODES.isdisjoint(names):
        return ProviderError(message, status=status)
    overload = next((_STRAINS[name] for name in names if name in _STRAINS), None)
    overload = overload or (overload_of(status) if status else None)
    return RetryableError(
        message, retry_after_s=retry_delay_s(error), overload=overload, status=status
    )


def error_in(body: bytes) -> Mapping[str, Json]:
    """Return the error object in a response body; empty if there is none."""
    try:
        body_data: Json = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(body_data, list) and body_data:  # Google wraps it where a stream was asked for
        body_data = body_data[0]
    error = body_data.get("error") if isinstance(body_data, Mapping) else None
    return error if isinstance(error, Mapping) else {}


def is_quota_exhausted(error: Mapping[str, Json]) -> bool:
    """Return whether an account's quota is exhausted: then waiting does not help."""
    return not _SPENT.isdisjoint(_names(error))


def retry_delay_s(error: Mapping[str, Json]) -> float | None:
    """Return the retry delay that an error object asks for: Google's `RetryInfo`."""
    details = error.get("details")
    for detail in details if isinstance(details, Sequence) else ():
        delay = detail.get("retryDelay") if isinstance(detail, Mapping) else None
        if isinstance(delay, str) and (asked := _DURATION.fullmatch(delay.strip())):
            return float(asked[1])
    return None


def _names(error: Mapping[str, Json]) -> list[str]:
    """Return what the error is called: OpenAI has a code, Anthropic a type, Google a status."""
    given = [error.get(key) for key in ("type", "code", "status")]
    return [name for name in given if isinstance(name, str)]
