"""What refusals are about: one request, too many at once, too many in a second, or an outage.

A refusal (HTTP 429) is about one request until the circuit breaker finds that the endpoint is shut.
Then a limit that explains it is looked for. Without a Retry-After it may be that too many were in
flight: fewer are allowed, and if even those are refused, that is taken back. Otherwise too many
were sent in a second: all requests pause, and go on at the rate that succeeded before. That it was
concurrency after all is tested on the way: one request is sent in spite of the pause once fewer are
in flight. If a request that had been sent after all those is answered, it was chance and is taken
back. What no limit explains is an outage.

Refusals that are scattered among answers change nothing, unless they are many: then a lower rate is
tried, and forgotten if it does not help.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from bakeoff.models.client.retry import Overload, RetryableError, UnreachableError
from bakeoff.models.limits.concurrency import AdaptiveConcurrency
from bakeoff.models.limits.outage import LONG_S, CircuitBreaker, Failure
from bakeoff.models.limits.queued import QueuedRequest
from bakeoff.models.limits.rate import RateLimit

_NEW = 0.02  # the weight of the latest answer or refusal in their share
_FEW = 0.02  # with a smaller share, a single refusal at a learned rate is the limit again
_NEEDED, _NEEDED_PER_SHARE = 3, 30  # refusals that shut an endpoint: more where they are usual
_ROUND = 200  # answers and refusals
_MANY = 0.1
_PLAINLY, _PLAINLY_MANY = 16, 0.3  # so many refusals, of such a share, end a round early
_FALLS = (
    0.35  # a lower rate helps if the share falls below this part of what it was; half may be chance
)
_LONGEST_REST = 64  # in rounds
_FEWER_ATTEMPTS = 3  # in close succession: then refusals are not about concurrency
_CLOSE = 20  # times the limit
_STEPS = 3  # how often an attempted limit may be lowered
_KEPT = 512  # answers
_ABOVE = 2  # answers beside more requests than a guessed limit refute it
_LONG_OUTAGE_S = 5.0
_NONE = 1e-4


class SentRequest(NamedTuple):
    """A request in flight: its number at the endpoint and under adaptive concurrency, and when."""

    number: int
    admitted: int
    at: float
    request: QueuedRequest


class Traffic(NamedTuple):
    """How many requests have been sent to an endpoint, and are in flight, at some moment."""

    sent: int
    in_flight: int
    now: float


class ScatteredRefusals:
    """Counts refusals among answers, and tries a lower rate if they are many."""

    def __init__(self, rate_limit: RateLimit) -> None:
        self._rate_limit = rate_limit
        self.share = 0.0
        self.refused = 0
        self.doubtful = (
            False  # whether the rate is an experiment's: it may have nothing to do with it
        )
        self._answered = 0
        self._before: float | None = None  # the share that the experiment is to lower
        self._rest = 0  # rounds without another experiment
        self._next_rest = 4

    def answer(self, now: float) -> None:
        """Count an answer."""
        self.share -= _NEW * self.share
        self._answered += 1
        self._end_round(now)

    def refusal(self, now: float) -> None:
        """Count a refusal."""
        self.share += _NEW * (1 - self.share)
        self.refused += 1
        self._end_round(now)

    def watch_rate(self) -> None:
        """Forget a rate that was just learned unless refusals are few from now on."""
        self._before, self.doubtful = max(self.share, _MANY), False
        self._answered = self.refused = 0

    def rest(self) -> None:
        """Try no other rate for a while: the last one did not help."""
        self._before, self.doubtful = None, False
        self._rest = self._next_rest
        self._next_rest = min(2 * self._next_rest, _LONGEST_REST)

    def _end_round(self, now: float) -> None:
        requests = self._answered + self.refused
        share = self.refused / requests
        plain = self.refused >= _PLAINLY and share >= _PLAINLY_MANY and self._before is None
        if requests < _ROUND and not plain:
            return
        self._answered = self.refused = 0
        if self._before is not None:
            if share > _FALLS * self._before:
                self._rate_limit.forget()
                self.rest()
            elif not self.doubtful:
                self._before = (
                    None  # an experiment is watched on: its share may have fallen by chance
                )
        elif self._rest:
            self._rest -= 1
        elif share > _MANY:
            self._before, self.doubtful = share, True
            self._rate_limit.slow_down(1 - share, now)


@dataclass(slots=True)
class _Episode:
    """A time in which all was refused; `first` to `last` are the requests sent meanwhile.

    `latest` is the last of them that was refused. It set a lower concurrency `limit` where there was `limit_before`, or else a rate.
    """

    first: int
    last: int
    latest: int
    had_rate: bool
    limit: int = 0
    limit_before: int | None = None
    steps: int = 0


@dataclass(slots=True)
class _Guess:
    """That too many were in flight, beside the rate that the same refusals may be about.

    It is tested by one request that is sent in spite of the pause once fewer than `limit` are in
    flight: `test` is its number. Where that is answered, a few more than `limit` are sent without
    the rate. The guess is right if those are refused, or if more were `answered` in a window than
    the rate allows; it is wrong if they are answered, `above` of them, or if all are refused again.
    """

    limit: int
    limit_before: int
    test: int = 0
    above: int = 0
    answered: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))


class Refusals:
    """Decides what the refusals of one endpoint are about, and sets its limits accordingly."""

    def __init__(self, breaker: CircuitBreaker, rate_limit: RateLimit) -> None:
        self._breaker = breaker
        self._rate_limit = rate_limit
        self._scattered = ScatteredRefusals(rate_limit)
        self._episode: _Episode | None = None
        self._in_a_row = 0  # refusals since the last answer
        self._first = self._latest = 0  # the first and the last request among them
        self._first_at = 0.0  # when the first was sent
        self._attempts = 0
        self._last_attempt = 0
        self._guess: _Guess | None = None
        self._known_limit = 0  # on concurrency: refusals are about it even if they ask for time
        self.adaptive: AdaptiveConcurrency | None = None

    @property
    def watching(self) -> bool:
        """Whether answers matter here: something failed or was refused not long ago."""
        doubtful = self._episode is not None or self._guess is not None
        return self._breaker.failing or self._scattered.share > _NONE or doubtful

    def answered(self, sent: SentRequest, in_flight: int, now: float) -> None:
        """Note an answer to *sent*, when so many were in flight."""
        number = sent.number
        breaker, episode = self._breaker, self._episode
        self._scattered.answer(now)
        was_down, down_s = breaker.down, now - breaker.since
        breaker.answered(number)
        if was_down and not breaker.down and down_s > _LONG_OUTAGE_S + self._rate_limit.window_s:
            self._rate_limit.forget()  # an outage says nothing about a rate
        if not breaker.failures:
            for _ in range(self._in_a_row):
                self._scattered.refusal(now)
            self._in_a_row = 0
        if self._guess is not None and (episode is None or number > episode.last):
            self._weigh(self._guess, sent.at, in_flight, now)
        if episode is None:
            return
        if number > episode.last:
            self._episode = None  # the limit that was found holds
        elif number > episode.latest and episode.limit_before is None:
            self._take_back(episode, now)  # sent after all that were refused: it was chance

    def failed(self, error: RetryableError, sent: SentRequest, traffic: Traffic) -> None:
        """Note a failure that is no answer of any kind, and find out what it is about."""
        breaker, now = self._breaker, traffic.now
        is_refusal = _is_refusal(error)
        if is_refusal and self._belongs_to_episode(error, sent, now):
            error.outage = True
            return
        if is_refusal and self._guess is not None and traffic.in_flight > self._guess.limit:
            self._refused_above(self._guess, traffic)
        if is_refusal and not breaker.failing and self._rate_limit.forgives(sent.at):
            self._rate_limit.ease(sent.at)
            self._scattered.refusal(now)
            return
        was_down, on_probation = breaker.down, breaker.on_probation
        needed = self._needed() if is_refusal else None
        failure = Failure(error, sent.number, sent.request.question, traffic.sent, needed)
        breaker.failed(failure, now)
        error.outage, error.probe = breaker.down, breaker.probe == sent.number
        if is_refusal and not was_down:
            first = not self._in_a_row
            self._first = sent.number if first else min(self._first, sent.number)
            self._first_at = sent.at if first else min(self._first_at, sent.at)
            self._latest = max(self._latest, sent.number)
            self._in_a_row += 1
            if not breaker.down:
                self._rate_limit.scattered(sent.at)
                if not self._rate_limit.step_down(sent.at):
                    self._rate_limit.forget()
                    self._scattered.rest()
            elif self._find_limit(error, sent, traffic, on_probation=on_probation):
                breaker.explained(traffic.sent)
                return
        if error.overload is Overload.LOAD and self.adaptive is not None:
            self.adaptive.overloaded(sent.admitted, now=now, in_flight=traffic.in_flight)

    def _needed(self) -> int:
        """Return how many refusals in a row shut the endpoint."""
        share = self._scattered.share
        if self._rate_limit.rate is not None and share < _FEW and not self._scattered.doubtful:
            return 1
        return _NEEDED + int(_NEEDED_PER_SHARE * share)

    def _belongs_to_episode(self, error: RetryableError, sent: SentRequest, now: float) -> bool:
        """Return whether a request was sent before the endpoint was found shut, and note it."""
        episode = self._episode
        if episode is None or not episode.first <= sent.number <= episode.last:
            return False
        episode.latest = max(episode.latest, sent.number)
        if episode.limit_before is None:
            self._rate_limit.refused(sent_at=sent.at, now=now, retry_after_s=error.retry_after_s)
            if self._guess is not None:
                self._test_again(self._guess, episode, now)
        else:
            self._rate_limit.scattered(sent.at)
            if episode.limit > 1 and self.adaptive is not None:
                episode.limit -= 1
                self.adaptive.refused_above(episode.limit, now)
        return True

    def _find_limit(
        self, error: RetryableError, sent: SentRequest, traffic: Traffic, *, on_probation: bool
    ) -> bool:
        """Find the limit that explains why all is refused, and keep to it; False is an outage."""
        before, now = self._episode, traffic.now
        if self._guess is not None:
            self._drop_guess(self._guess, now)
        if on_probation:
            if before is None or before.limit_before is None:
                return False  # refused again although the rate was kept
            if self._try_still_fewer(before, traffic):
                return True
            self._take_back(before, now)
        rate_before = self._rate_limit.rate
        episode = _Episode(self._first, traffic.sent, self._latest, rate_before is not None)
        self._in_a_row = 0
        if (
            before is None
            and not self._asks_for_time(error, traffic)
            and self._worth_an_attempt(sent, traffic)
        ):
            self._try_fewer(episode, traffic)
        elif error.overload is Overload.RATE:
            self._learn_rate(error, sent, episode, traffic)
        if self._rate_limit.rate is None and episode.limit_before is None:
            return False  # nothing has succeeded yet, at any rate
        if error.overload is not Overload.RATE and episode.limit_before is None:
            return False
        self._episode = episode
        return True

    def _learn_rate(
        self, error: RetryableError, sent: SentRequest, episode: _Episode, traffic: Traffic
    ) -> None:
        """Pause, and keep to the rate that succeeded; test whether it is about a rate at all."""
        self._rate_limit.refused(
            sent_at=sent.at,
            now=traffic.now,
            retry_after_s=error.retry_after_s,
            first_at=self._first_at,
        )
        if episode.had_rate:
            return
        self._scattered.watch_rate()
        self._guess_concurrency(traffic)
        if episode.latest == traffic.sent:  # nothing sent later can tell: send one more
            self._send_one_more(episode)

    def _asks_for_time(self, error: RetryableError, traffic: Traffic) -> bool:
        """Return whether a refusal that says how long to wait may be about a rate."""
        if error.retry_after_s is None:
            return False
        if error.overload is Overload.RATE:
            return traffic.in_flight > 1.25 * self._known_limit + _ABOVE
        return (
            not self._breaker.answered_ever
        )  # a 503 is about a limit only where fewer were answered

    def _send_one_more(self, episode: _Episode) -> None:
        """Send a request in spite of the pause: whether it is answered tells what this is about."""
        episode.last += 1
        if self._guess is not None:
            self._guess.test = episode.last
        self._rate_limit.allow_one_more()

    def _guess_concurrency(self, traffic: Traffic) -> None:
        """Allow only as many in flight as were not refused, until it is clear that a rate is the limit."""
        if self.adaptive is None or traffic.in_flight < 3 or self._rate_limit.rate is None:
            return
        limit = traffic.in_flight - 1
        self._guess = _Guess(limit=limit, limit_before=self.adaptive.limit)
        self.adaptive.refused_above(limit, traffic.now)

    def _test_again(self, guess: _Guess, episode: _Episode, now: float) -> None:
        """Lower a guess by a request that was in flight, too, or drop it where its test failed."""
        if guess.test and episode.latest == guess.test:
            self._drop_guess(guess, now)
            return
        if guess.limit > 1 and self.adaptive is not None:
            guess.limit -= 1
            self.adaptive.refused_above(guess.limit, now)
        if not guess.test and episode.latest == episode.last:
            self._send_one_more(episode)

    def _weigh(self, guess: _Guess, sent_at: float, in_flight: int, now: float) -> None:
        """Count an answer for or against a guess."""
        guess.above = guess.above + 1 if in_flight > guess.limit else 0
        if guess.above >= _ABOVE:
            if self._rate_limit.hasty:
                self._rate_limit.forget()
            self._drop_guess(guess, now)
            return
        guess.answered.append(sent_at)
        since = sent_at - self._rate_limit.window_s
        sent = sum(since < at <= sent_at for at in guess.answered)
        if sent > 1.1 * self._rate_limit.allowance + 2:
            self._confirm(guess, now)

    def _refused_above(self, guess: _Guess, traffic: Traffic) -> None:
        """Note that more in flight than guessed were refused: that settles it, unless the rate may be why."""
        if not self._rate_limit.explains(traffic.now):
            self._confirm(guess, traffic.now)
        elif self.adaptive is not None:
            self.adaptive.refused_above(guess.limit, traffic.now)

    def _confirm(self, guess: _Guess, now: float) -> None:
        """Keep to so many in flight, at any rate."""
        self._guess, self._known_limit = None, guess.limit
        self._rate_limit.forget()
        if self.adaptive is not None:
            self.adaptive.refused_above(guess.limit, now)

    def _drop_guess(self, guess: _Guess, now: float) -> None:
        """Keep to the rate, with as many in flight as before."""
        self._guess = None
        self._rate_limit.believe(now)
        if self.adaptive is not None:
            self.adaptive.back_to(guess.limit_before, now)

    def _try_fewer(self, episode: _Episode, traffic: Traffic) -> None:
        """Allow only as many as were not refused."""
        if self.adaptive is None:
            return
        self._attempts += 1
        self._last_attempt = episode.latest
        self._rate_limit.scattered(traffic.now)
        episode.limit_before = self.adaptive.limit
        episode.limit = traffic.in_flight - 1
        self.adaptive.refused_above(episode.limit, traffic.now)

    def _try_still_fewer(self, episode: _Episode, traffic: Traffic) -> bool:
        """Lower the attempted limit again, a few times at most."""
        if self.adaptive is None or episode.steps == _STEPS or traffic.in_flight < 2:
            return False
        episode.steps += 1
        episode.last, episode.limit = traffic.sent, traffic.in_flight - 1
        self._in_a_row = 0
        self.adaptive.refused_above(episode.limit, traffic.now)
        return True

    def _worth_an_attempt(self, sent: SentRequest, traffic: Traffic) -> bool:
        """Return whether others are in flight, and too many attempts at a limit have not just failed."""
        if self.adaptive is None or self._rate_limit.rate is not None or traffic.in_flight < 2:
            return False
        if sent.number - self._last_attempt > _CLOSE * self.adaptive.limit:
            self._attempts = 0
        return self._attempts < _FEWER_ATTEMPTS

    def _take_back(self, episode: _Episode, now: float) -> None:
        """Undo what an episode changed."""
        self._episode = None
        if episode.limit_before is not None and self.adaptive is not None:
            self.adaptive.back_to(episode.limit_before, now)
        elif self._guess is not None:
            self._rate_limit.doubt(now)
            if self.adaptive is not None:
                self.adaptive.refused_above(self._guess.limit + _ABOVE, now)
        elif not episode.had_rate:
            self._rate_limit.forget()


def _is_refusal(error: RetryableError) -> bool:
    asks_for_long = (error.retry_after_s or 0.0) > LONG_S
    unreachable = isinstance(error, UnreachableError)
    return error.overload is not None and not asks_for_long and not unreachable
