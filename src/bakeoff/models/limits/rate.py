"""The rate limit: requests are spaced evenly, at a fixed rate or one learned from refusals.

Where everything is refused (HTTP 429), all requests pause as long as the endpoint asked. Then they
are sent evenly at the rate that succeeded in the last window before it. The rate is held for a while and
raised carefully; a ceiling that was met again is tried half as often: every refusal costs a pause.
"""

import math
from collections import deque
from itertools import takewhile

from bakeoff.core.outcome import Usage
from bakeoff.models.limits.queued import QueuedRequest

_SLACK_S = 0.01  # how late a timer may be without costing pace
_KEPT = 2048
_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 1.0  # after a refusal that does not say how long
_WINDOW_S = 1.0
_LONGEST_WINDOW_S = 60.0
_SURE = 8  # so many requests in a window make a rate worth holding
_HOLD, _LONGEST_HOLD = 16.0, 128.0  # in windows
_JITTER_S = 0.01  # by which two requests may come closer together on their way
_SOON_AGAIN = (0.97, 0.95, 0.9)  # what is left of a pace after refusals in quick succession
_EASED, _EASED_FOR = 0.99, 4.0  # what is left of the rate, and for how many windows
_STEP_DOWN, _STEPS_DOWN = 0.9, 5  # where that was not enough; so often, and it is not the rate
_FEW_REFUSED = 16  # one of fewer than so many is not "one in a while"
_STEP_AFTER = 4  # requests at least: before, a lower rate had no effect yet
_CAREFUL, _STEADY, _BOLD = 0.01, 0.05, 0.5  # growth per window
_BOLD_PER_REQUEST = 0.1  # of a rate so low that a window holds few requests
_DOUBLES_IN = 4.0  # windows in which careful growth doubles


class RequestSpacing:
    """Spaces amounts so that they never exceed a rate per second.

    A `cap` is a second, temporary rate. Without either there is no wait. What was sent later than
    it might have been, by up to *slack_s*, is made up for.
    """

    def __init__(self, rate: float | None = None, *, slack_s: float = _SLACK_S) -> None:
        self.rate = rate
        self._slack_s = slack_s
        self._cap = math.inf
        self._cap_until = -math.inf
        self._next_at = -math.inf

    @property
    def limited(self) -> bool:
        """Whether there may be anything to wait for."""
        return self.rate is not None or self._cap_until > -math.inf

    def cap(self, rate: float, *, until: float) -> None:
        """Apply *rate* in addition, until then."""
        self._cap, self._cap_until = rate, until

    def wait_s(self, now: float) -> float:
        """Return how long the next amount has to wait; zero or less means not at all."""
        return self._next_at - now

    def take(self, now: float, amount: float = 1.0) -> None:
        """Book *amount*, which is sent now."""
        rate = self._rate_at(now)
        if rate is None:
            return
        slack_s = max(self._slack_s, 0.25 / rate)
        self._next_at = max(self._next_at, now - slack_s) + amount / rate

    def correct(self, now: float, amount: float) -> None:
        """Correct an earlier booking by *amount*."""
        if rate := self._rate_at(now):
            self._next_at += amount / rate

    def restart(self, at: float) -> None:
        """Allow the next amount at *at*, whatever was booked."""
        self._next_at = at

    def _rate_at(self, now: float) -> float | None:
        if now >= self._cap_until:
            self._cap_until = -math.inf
            return self.rate
        return self._cap if self.rate is None else min(self.rate, self._cap)


class RateLimit:
    """The learned rate limit of one endpoint: none until it refuses, then as fast as it accepts."""

    def __init__(self) -> None:
        self._spacing = RequestSpacing()
        self._resume_at = -math.inf
        self._sent: deque[float] = deque(maxlen=_KEPT)
        self._refused: deque[float] = deque(maxlen=_KEPT)
        self._window_s = _WINDOW_S
        self._pause_s = _PAUSE_S
        self._sent_since_pause = 0
        self._refused_at = -math.inf
        self._before: float | None = None
        self._in_succession = 0
        self._eased_at = -math.inf
        self._base: float | None = None  # the rate of a window ago, before it grew
        self._next_base, self._base_at = 0.0, -math.inf
        self._steps = 0
        self._sent_since_step = self._refused_since_step = 0
        self._one_more = False
        self._ceiling: float | None = None
        self._doubted: float | None = None
        self._hold = _HOLD
        self._hold_s = 0.0
        self._growth = 0.0
        self._pressed_s = 0.0

    @property
    def rate(self) -> float | None:
        """Requests per second; None while nothing was refused."""
        return self._spacing.rate

    def wait_s(self, now: float) -> float:
        """Return how long the next request has to wait; zero or less means not at all."""
        if self._one_more:
            return 0.0
        return max(self._resume_at - now, self._spacing.wait_s(now))

    def paused_s(self, now: float) -> float:
        """Return how much of the pause is left."""
        return self._resume_at - now

    def sent(self, now: float) -> None:
        """Book a request that is sent now."""
        self._one_more = False
        if self._spacing.rate is not None:
            self._grow(self._spacing.rate, now)
        self._spacing.take(now)
        self._sent.append(now)
        self._sent_since_pause += 1
        self._sent_since_step += 1

    def recent(self, now: float) -> int:
        """Return how many requests were sent in the last second."""
        return sum(1 for _ in takewhile(lambda at: at > now - 1, reversed(self._sent)))

    def cap(self, rate: float, *, until: float) -> None:
        """Apply *rate* in addition, until then: the headers said how much is left."""
        self._spacing.cap(rate, until=until)

    def pause(self, until: float) -> None:
        """Send nothing before *until*."""
        self._resume_at = max(self._resume_at, until)
        self._spacing.restart(self._resume_at)
        self._sent_since_pause = 0

    def allow_one_more(self) -> None:
        """Let one request pass in spite of a pause."""
        self._one_more = True

    @property
    def window_s(self) -> float:
        """The period that the endpoint seems to count over."""
        return self._window_s

    def scattered(self, sent_at: float) -> None:
        """Note a refusal that concerns one request."""
        self._refused.append(sent_at)
        self._refused_since_step += 1

    def step_down(self, sent_at: float) -> bool:
        """Send slower after another refusal at the learned rate; False if that does not help."""
        due_s = self._eased_at + self._window_s
        if self.rate is None or sent_at < due_s or self._sent_since_step < _STEP_AFTER:
            return True
        quick = sent_at < due_s + (_EASED_FOR - 1) * self._window_s
        self._steps = self._steps + 1 if quick else 1
        passed = 1 - self._refused_since_step / self._sent_since_step
        self._slower(min(max(passed, 0.5), _STEP_DOWN), sent_at)
        return self._steps < _STEPS_DOWN

    def _slower(self, part: float, sent_at: float) -> None:
        """Take back half of what the rate has grown, or keep *part* of it."""
        if self._spacing.rate is None:
            return
        base = self._base or self._spacing.rate
        self._spacing.rate = min(part * self._spacing.rate, math.sqrt(base * self._spacing.rate))
        self._base = self._next_base = min(base, self._spacing.rate)
        self._spacing.correct(sent_at, 2.0)
        self._eased_at, self._pressed_s = sent_at, 0.0
        self._sent_since_step = self._refused_since_step = 0
        if self._growth > _STEADY / self._window_s:
            self._hold_s, self._growth = _EASED_FOR * self._window_s, _STEADY / self._window_s

    def forgives(self, sent_at: float) -> bool:
        """Return whether a refusal at the learned rate is the first in a while."""
        return (
            self.rate is not None
            and self._sent_since_pause > 1
            and sent_at - self._eased_at > _EASED_FOR * self._window_s
            and self._sent_since_step >= _FEW_REFUSED
        )

    def ease(self, sent_at: float) -> None:
        """Go on a little slower, without a pause: one refusal at the learned rate."""
        self._refused.append(sent_at)
        self._steps = 0
        self._slower(_EASED, sent_at)

    def slow_down(self, part: float, now: float) -> None:
        """Send only *part* as fast as in the last second, without a pause, for a few seconds."""
        self._begin_episode(now, None)
        span_s = min(max(now - self._sent[0], 0.05), 1.0) if self._sent else 1.0
        rate = max(part * self.recent(now) / span_s, 1.0)
        self._spacing.rate = self._base = self._next_base = rate
        self._spacing.restart(now)
        self._hold_s, self._growth = 4 * self._window_s, _BOLD / self._window_s

    def doubt(self, now: float) -> None:
        """Send at any rate for now, but remember the one that was learned."""
        learned = self._spacing.rate
        self.forget()
        self._doubted = learned
        if learned is not None and not self._spacing.limited:  # no burst: it may hold after all
            self._spacing.cap(2 * learned, until=now + 1.0)

    def believe(self, now: float) -> None:
        """Keep to the rate that was in doubt."""
        if self._doubted is None:
            return
        self._spacing.rate = self._base = self._next_base = self._doubted
        self._doubted = None
        self.pause(now)

    @property
    def hasty(self) -> bool:
        """Whether the rate was learned in less than the window that it is counted over."""
        return bool(self._sent) and self._sent[0] > self._refused_at - self._window_s

    def explains(self, now: float) -> bool:
        """Return whether about as many were sent in the last window as the learned rate allows."""
        rate = self._spacing.rate or self._doubted
        if rate is None:
            return False
        since = now - self._window_s
        sent = sum(1 for _ in takewhile(lambda at: at > since, reversed(self._sent)))
        return sent >= 0.9 * rate * self._window_s - 1

    @property
    def allowance(self) -> float:
        """How many requests the learned rate allows in a window."""
        return (self._spacing.rate or self._doubted or 0.0) * self._window_s

    def forget(self) -> None:
        """Send at any rate again."""
        self._spacing.rate = self._ceiling = self._base = self._doubted = None
        self._spacing.restart(-math.inf)
        self._resume_at = -math.inf

    def refused(
        self,
        *,
        sent_at: float,
        now: float,
        retry_after_s: float | None,
        first_at: float | None = None,
    ) -> None:
        """Learn from a refusal; one that was in flight at the last refusal is part of that.

        *first_at* is when the first of several refused requests was sent: until then all was well.
        """
        self._refused.append(sent_at)
        if sent_at < self._resume_at:
            self._learn()
        elif self.rate is not None and self._sent_since_pause <= 1:
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)  # too early; the rate is fine
        else:
            self._begin_episode(sent_at if first_at is None else first_at, retry_after_s)
            self._learn()
        self.pause(now + (self._pause_s if retry_after_s is None else retry_after_s))

    def _begin_episode(self, at: float, retry_after_s: float | None) -> None:
        # the wait that was asked for is the best hint at the period a limit is counted over
        self._window_s = min(max(_WINDOW_S, retry_after_s or 0.0), _LONGEST_WINDOW_S)
        quick = at - self._resume_at < 3 * self._window_s
        self._in_succession = min(self._in_succession + 1, 2) if quick else 0
        self._pause_s = _PAUSE_S
        self._refused_at, self._before = at, self.rate
        again = self._ceiling and self._before and _close(self._before, self._ceiling)
        self._hold = min(self._hold * 2, _LONGEST_HOLD) if again else _HOLD
        self._ceiling = self._before
        self._pressed_s = 0.0

    def _learn(self) -> None:
        passed, span_s = self._passed()
        if not passed and self._before is None:
            return  # nothing succeeded: that says nothing about a rate
        rate, before = passed / span_s, self._before
        if before is None:
            rate = passed / (span_s + _JITTER_S)
        elif passed + 1.5 >= before * span_s:
            # it took this very pace for a window and then no more: too fast by little, or, where
            # that came soon, a store of credit ran out
            rate = before * _SOON_AGAIN[self._in_succession]
        else:
            rate = max(passed / (span_s + _JITTER_S), before / 2)
        self._spacing.rate = self._base = self._next_base = max(rate, 1 / self._window_s)
        sure = passed >= _SURE
        self._hold_s = self._window_s * (self._hold if sure else 1.0)
        self._growth = (_CAREFUL if sure else _BOLD) / self._window_s

    def _passed(self) -> tuple[int, float]:
        """Return how many of the last window's requests were not refused, and its length."""
        until = self._refused_at
        since = until - self._window_s
        if len(self._sent) == _KEPT:
            since = max(since, self._sent[0])
        sent = sum(since < at <= until for at in self._sent)
        refused = sum(since < at <= until for at in self._refused)
        return max(sent - refused, 0), max(until - since, 0.001)

    def _grow(self, rate: float, now: float) -> None:
        late_s = -self._spacing.wait_s(now)
        if late_s > 0.5 / rate + 0.05:
            return  # no request was waiting: the rate is not the bottleneck
        if now >= self._base_at + self._window_s:
            self._base, self._next_base, self._base_at = self._next_base or rate, rate, now
        step_s = min(now - self._sent[-1], self._window_s) if self._sent else 0.0
        self._pressed_s += step_s
        over = (self._pressed_s - self._hold_s) / self._window_s
        if over > 0:
            speed = self._growth * 2 ** min(over / _DOUBLES_IN, 10)
            fastest = min(_BOLD / self._window_s, _BOLD_PER_REQUEST * rate)
            self._spacing.rate = rate * math.exp(min(speed, fastest) * step_s)


def _close(a: float, b: float) -> bool:
    return abs(a - b) < 0.1 * b


_UNKNOWN_OUTPUT = 256.0
_NEW = 0.1  # the weight of the latest answer in the mean


class TokenEstimate:
    """Estimates tokens: the prompt by its length, the answer by earlier ones or its limit."""

    def __init__(self) -> None:
        self._output: float | None = None
        self.mean = _UNKNOWN_OUTPUT

    def of(self, request: QueuedRequest) -> float:
        """Return the tokens that *request* will take, in and out."""
        return request.prompt_tokens + (self._output or request.answer_limit or _UNKNOWN_OUTPUT)

    def learn(self, usage: Usage) -> float | None:
        """Return what a request took, and remember it; None where that is unknown."""
        if usage.output_tokens is None:
            return None
        total = float(usage.output_tokens + (usage.input_tokens or 0))
        first = self._output is None
        self._output = _towards(self._output, usage.output_tokens)
        self.mean = total if first else _towards(self.mean, total)
        return total


def _towards(mean: float | None, value: float) -> float:
    return value if mean is None else mean + _NEW * (value - mean)
