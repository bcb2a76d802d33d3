"""Adaptive concurrency: as many requests in flight as still increase the throughput.

Throughput is requests in flight divided by the time each took (Little's law), in output tokens
where they are known: answers differ widely in length, their tokens take much the same time. Only
requests admitted under the limit being measured count, and only while all slots are in use.

Slow start doubles the limit as long as that helps, then steps back to the last one that did. What a
round adds is sent spread over a part of it: a burst would meet a rate limit with all its requests
before the first refusal is back. From then on a higher or lower limit is tried now and then, measured before, during and after. Overload
cuts the limit; it recovers one by one.
"""

from collections.abc import Generator
from dataclasses import dataclass
from math import inf

from bakeoff.models.limits.rate import RequestSpacing

START = 8
_CUT = 0.7
_COOL_DOWN_S = 1.0
_OVERLOADED = 0.2  # the share of requests that must fail: one stray fault says nothing
_STRAYS = 2  # so many faults say nothing, however few requests there were
_HELPS = 1.1  # what doubling must bring
_PLAIN = 1.5  # seen this early, it needs no longer look
_STEP = 1.5  # how far a challenge goes
_LOSS = 0.9  # a lower limit may cost so much
_SHORTEST_S = 0.05
_NO_WAIT_S = 0.012  # so soon, and still no gain: it is we who cannot ask any faster
_SLOW_S = 120.0
_MOST_PATIENCE = 16
_SPREAD = 2  # slow start sends what a round allows within this part of a round trip
_SPREAD_SLACK_S = 0.002
_SPREAD_FOR_S = 1.0  # later on, answers come spread by themselves
_REQUEST = 20  # what a request costs beside its output, in tokens


@dataclass(slots=True)
class Throughput:
    """What was measured under one limit."""

    limit: int
    requests: int = 0
    tokens: int | None = 0
    busy_s: float = 0.0

    def add(self, busy_s: float, tokens: int | None) -> None:
        """Count one more request."""
        self.requests += 1
        self.busy_s += busy_s
        if tokens is None or self.tokens is None:
            self.tokens = None
        else:
            self.tokens += tokens + _REQUEST

    @property
    def prompt(self) -> bool:
        """Whether answers are so fast that there is no queue worth avoiding."""
        return self.busy_s < _NO_WAIT_S * self.requests

    @property
    def slow(self) -> bool:
        """Whether answers take so long that more at once might pass their deadlines."""
        return self.busy_s > _SLOW_S * self.requests

    def over(self, other: "Throughput") -> float:
        """Return how many times faster this was than *other*."""
        known = self.tokens is not None and other.tokens is not None
        own, others = (self.tokens, other.tokens) if known else (self.requests, other.requests)
        if not others or not own:
            return inf
        return (self.limit * own / max(self.busy_s, 1e-9)) / (
            other.limit * others / max(other.busy_s, 1e-9)
        )

    def plus(self, other: "Throughput") -> "Throughput":
        """Return both as one; they had the same limit."""
        known = self.tokens is not None and other.tokens is not None
        return Throughput(
            limit=self.limit,
            requests=self.requests + other.requests,
            tokens=(self.tokens or 0) + (other.tokens or 0) if known else None,
            busy_s=self.busy_s + other.busy_s,
        )


@dataclass(frozen=True, slots=True)
class Measurement:
    """A limit to measure over so many requests; a clear gain over `against` ends it early."""

    limit: int
    requests: int
    against: Throughput | None = None


Schedule = Generator[Measurement, Throughput, None]
Ramp = Generator[Measurement, Throughput, int]


class AdaptiveConcurrency:
    """Finds the best concurrency; `limit` is the current one, and each request gets a number."""

    def __init__(self, *, most: int | None = None, start: int = START) -> None:
        self._most = most
        self._number = 0
        self._cut_number = 0
        self._cut_at = -inf
        self._good = self._bad = 0
        self._patience = 1
        self._ceiling: int | None = None  # more at once were refused
        self.spacing = RequestSpacing(slack_s=_SPREAD_SLACK_S)
        self._spread_until = inf
        self._settled_limit = self.limit = self._at_most(start)
        self._start_schedule(self._initial_schedule(self.limit), now=-inf)

    def admit(self) -> int:
        """Return the number of a request that is sent now."""
        self._number += 1
        return self._number

    def answered(self, number: int) -> None:
        """Count a request that ended, under any load."""
        if number > self._cut_number:
            self._good += 1
            if self._good > max(32, 2 * self.limit):  # older results count less
                self._good //= 2
                self._bad //= 2

    def measured(
        self, number: int, busy_s: float, tokens: int | None, now: float, *, full: bool = True
    ) -> None:
        """Count a request that ended while others waited; *full* is whether all slots were in use."""
        if number <= self._first:
            return
        measurement = self._measurement
        self._early.add(busy_s, tokens)
        if full and number > self._first + measurement.limit:  # those before did not meet full load
            self._seen.add(busy_s, tokens)
        if now - self._began_at < _SHORTEST_S:
            return
        if self._seen.requests >= measurement.requests:
            self._start_measurement(self._schedule.send(self._seen), now)
        elif self._plainly_better(measurement):
            self._start_measurement(self._schedule.send(self._early), now)

    def refused_above(self, limit: int, now: float) -> None:
        """Keep to *limit*: more at once were refused. One more is tried now and then."""
        above_settled = self._ceiling is not None and self._settled_limit < self.limit
        self._patience = min(4 * self._patience, _MOST_PATIENCE) if above_settled else 1
        self._ceiling = limit
        self._cut(self._steady(self._at_most(limit)), now)

    def back_to(self, limit: int, now: float) -> None:
        """Take back `refused_above`."""
        self._ceiling = None
        self._start_schedule(self._initial_schedule(self._at_most(limit)), now)

    def overloaded(self, number: int, *, now: float, in_flight: int | None = None) -> None:
        """Count a request that failed from overload; cut the limit if it is more than a stray.

        *in_flight* is the number of requests in flight, if that is what was too much.
        """
        if number <= self._cut_number:
            return  # admitted before the last cut: counted already
        self._bad += 1
        if self._bad <= _STRAYS or self._bad < _OVERLOADED * (self._good + self._bad):
            return
        if self._settled_limit < self.limit:  # an attempt at a higher limit went too far
            self._patience = min(4 * self._patience, _MOST_PATIENCE)
            self._ceiling = self._settled_limit
            self._cut(self._steady(self._settled_limit), now)
        elif self._good and now - self._cut_at >= _COOL_DOWN_S:
            # if nothing succeeds, fewer at once would not help
            load = self.limit if in_flight is None else min(self.limit, in_flight)
            self._patience = 2
            self._cut(self._recovery(max(int(load * _CUT), 1), load), now)

    def _cut(self, schedule: Schedule, now: float) -> None:
        self._cut_at, self._cut_number = now, self._number
        self._good = self._bad = 0
        self._start_schedule(schedule, now)

    def _plainly_better(self, measurement: Measurement) -> bool:
        early, before = self._early, measurement.against
        enough = early.requests >= 3 * measurement.limit // 4
        return enough and before is not None and early.over(before) > _PLAIN

    def _start_schedule(self, schedule: Schedule, now: float) -> None:
        self._schedule = schedule
        self._start_measurement(next(schedule), now)

    def _start_measurement(self, measurement: Measurement, now: float) -> None:
        self._spread(measurement, now)
        self._measurement = measurement
        self.limit = measurement.limit
        self._first = self._number
        self._began_at = now
        self._seen, self._early = Throughput(measurement.limit), Throughput(measurement.limit)

    def _spread(self, measurement: Measurement, now: float) -> None:
        """Spread what a higher limit allows over a part of the time that an answer took."""
        before = measurement.against
        if before is None or not before.requests:
            self.spacing.cap(inf, until=-inf)
            return
        self._spread_until = min(self._spread_until, now + _SPREAD_FOR_S)
        rate = _SPREAD * measurement.limit * before.requests / max(before.busy_s, 1e-9)
        self.spacing.cap(rate, until=self._spread_until)

    def _at_most(self, limit: int) -> int:
        return limit if self._most is None else min(limit, self._most)

    def _initial_schedule(self, limit: int) -> Schedule:
        limit = yield from self._slow_start(limit)
        yield from self._steady(limit)

    def _slow_start(self, limit: int, best: Throughput | None = None) -> Ramp:
        """Double while that helps; return the last limit that did."""
        self._settled_limit = limit
        if best is None:
            best = yield Measurement(limit, limit, Throughput(limit))
        while (higher := self._at_most(2 * limit)) > limit and not best.slow:
            seen = yield Measurement(higher, max(2 * higher, 16), best)
            helped = seen.over(best) >= 1 + (_HELPS - 1) * (higher / limit - 1)
            if not helped and not seen.prompt:
                break
            limit, best = higher, seen
            self._settled_limit = limit
        return limit

    def _steady(self, limit: int) -> Schedule:
        """Stay, and try a higher or a lower limit now and then, ever more rarely."""
        upwards = True
        while True:
            self._settled_limit = limit
            other = self._at_most(self._higher(limit)) if upwards else int(limit / _STEP)
            upwards = not upwards
            enough = _enough(limit) if self._ceiling != limit else max(2 * limit, 4)
            before = yield Measurement(limit, self._patience * enough)
            if other in (0, limit) or (other < limit and before.prompt):
                continue
            if other > limit and before.slow:
                continue
            seen = yield Measurement(other, _enough(other))
            after = yield Measurement(limit, _enough(limit))
            gain = seen.over(before.plus(after))
            if other > limit and (seen.prompt or gain > 1 + 0.4 * (other / limit - 1)):
                limit = yield from self._slow_start(other, seen)
                self._patience, upwards = 1, False
            elif other < limit and gain > _LOSS:
                limit, self._patience, upwards = other, 1, False  # fewer still may do
            else:
                self._patience = min(2 * self._patience, _MOST_PATIENCE)

    def _higher(self, limit: int) -> int:
        """Return the next limit to try: one more where more were refused before."""
        return limit + 1 if self._ceiling == limit else int(limit * _STEP) + 1

    def _recovery(self, limit: int, ceiling: int) -> Schedule:
        """Climb back to just below the overload."""
        while limit < int(ceiling * 0.9):
            self._settled_limit = limit
            yield Measurement(limit, limit)
            limit += 1
        yield from self._steady(limit)


def _enough(limit: int) -> int:
    return max(4 * limit, 32)
