"""The circuit breaker of one endpoint: whether it counts as down, and when it is probed again.

A failure concerns one request until several come in a row: at least three, half of all that were
sent since the first of them, and no answer to anything sent after it. From then on the endpoint is
down: only one probe at a time is sent, ever more rarely, until one is answered. A status such as
500 may concern one request, so it takes two different requests to count.

Only failures of the endpoint itself count: it refused, failed or could not be reached. A useless
answer still means that the endpoint is up.
"""

import math
import random
from collections.abc import Callable

from bakeoff._lib.phrasing import format_duration, message_kind
from bakeoff._lib.value_object import positional_value_object
from bakeoff.core.candidate import Patience
from bakeoff.core.errors import ProviderError
from bakeoff.models.client.retry import RetryableError, UnreachableError

_FAILURES = 3
_PENDING = 2
LONG_S = 60.0
"""An endpoint with a longer Retry-After counts as down."""


@positional_value_object
class Failure:
    """A request that the endpoint failed; `sent` is how many had been sent to it by then.

    `needed` is how many in a row are an outage.
    """

    error: RetryableError
    number: int
    question: object
    sent: int
    needed: int | None = None


class CircuitBreaker:
    """Whether one endpoint is down; `failing` is a cheap check, False while all goes well.

    `failures` counts those since the last answer.
    """

    def __init__(self, patience: Patience, *, jitter: Callable[[], float] = random.random) -> None:
        self._patience = patience
        self._jitter = jitter
        self._rejections: dict[str, int] = {}
        self.answered_ever = False
        self.reached = False
        self.on_probation = False
        self._clear()

    def _clear(self) -> None:
        self.failing = self.down = False
        self.since = math.inf
        self.reason = ""
        self.probe: int | None = None  # the number of the request sent as a probe
        self.probe_at = -math.inf
        self._last: RetryableError | None = None
        self.failures = 0
        self._first = 0
        self._question: object = None
        self._questions_differ = False
        self._delay_s = self._patience.first_probe_s

    def answered(self, number: int) -> None:
        """Record that the endpoint answered request *number* in some way."""
        if self.down and number > self._first:
            self._clear()
            self.on_probation = self.failing = True
        elif number > self._first:
            self._clear()
            self.on_probation = False

    def explained(self, sent: int) -> None:
        """Count as up again: a limit explains the failures of all requests *sent* so far.

        If it does not hold, the next failures are an outage at once.
        """
        self._clear()
        self.on_probation = self.failing = True
        self._first = sent

    def failed(self, failure: Failure, now: float) -> None:
        """Record that the endpoint failed a request."""
        if not self.failures:
            self.failing, self.since = True, now
            self._first, self._question = failure.number, failure.question
        self.failures += 1
        self._first = min(self._first, failure.number)
        self._questions_differ |= failure.question != self._question
        self._last, self.reason = failure.error, str(failure.error)
        if self.down and failure.number == self.probe:
            self._delay_s = min(2 * self._delay_s, self._longest_delay_s)
        self.down = self.down or self._is_outage(failure)
        if self.down:
            pause_s = max(
                self._delay_s * (1 + 0.25 * self._jitter()), failure.error.retry_after_s or 0.0
            )
            self.probe_at = max(self.probe_at, now + pause_s)

    def _is_outage(self, failure: Failure) -> bool:
        error = failure.error
        if not self._patience.waits:
            return False
        if (error.retry_after_s or 0.0) > LONG_S:
            return True
        needed = 1 if self.on_probation else failure.needed or _FAILURES
        if self.failures < needed or 2 * self.failures < failure.sent - self._first + 1:
            return False
        return self._questions_differ or error.overload is not None

    def record_rejection(self, error: ProviderError, *, pending: bool = False) -> str | None:
        """Record a permanent fault; return why the endpoint is given up, if it is.

        While an earlier request is *pending*, which may still succeed, that takes more of them.
        """
        most = self._patience.equal_rejections
        if self.answered_ever or self._patience.keep_going or not most:
            return None
        kind = message_kind(str(error))
        self._rejections[kind] = count = self._rejections.get(kind, 0) + 1
        if count < (_PENDING * most if pending else most):
            return None
        return (
            f"the first {count} requests failed alike and none has succeeded: {error} "
            "(--keep-going asks all the same)"
        )

    def give_up_reason(self, now: float) -> str | None:
        """Return why the endpoint is given up; None while it is worth waiting."""
        patience, down_s, next_s = self._patience, now - self.since, self.probe_at - now
        if self._never_reached and down_s >= patience.unreached_s and not patience.keep_going:
            return f"{self.reason}, and it has never answered: is it running?"
        if not self.down or down_s + max(next_s, 0.0) < patience.give_up_after_s:
            return None
        if next_s > 2 * self._delay_s:
            asked = f"it asks to be left alone for {format_duration(next_s)} (Retry-After)"
            return f"{asked}: {self.reason}"
        return f"no answer for {format_duration(down_s)}: {self.reason}"

    @property
    def _never_reached(self) -> bool:
        return not self.reached and isinstance(self._last, UnreachableError)

    @property
    def _longest_delay_s(self) -> float:
        longest_s = self._patience.longest_probe_s
        return longest_s if self.reached else min(longest_s, self._patience.unreached_s / 4)
