"""How many requests may be under way at once: as many as still make the endpoint faster.

Throughput is requests under way divided by the time each took (Little's law), in output tokens
where they are known: answers differ widely in length, their tokens take much the same time.
Only requests that were let in under the limit being measured count, and only in a full house.

Slow start doubles the limit as long as that helps, then steps back to the last one that did.
From then on the limit is challenged now and then, upwards and downwards, each time measured
before, during and after. Overload cuts it; the climb back is one by one.
"""

from collections.abc import Generator
from dataclasses import dataclass
from math import inf

START = 4
_UNHEARD_MOST = 16
_CUT = 0.7
_COOL_DOWN_S = 1.0
_OVERLOADED = 0.1  # the share of requests that must fail: one stray fault says nothing
_HELPS = 1.1  # what doubling must bring
_PLAIN = 1.5  # seen this early, it needs no longer look
_STEP = 1.5  # how far a challenge goes
_LOSS = 0.9  # a lower limit may cost so much
_SHORTEST_S = 0.05
_NO_WAIT_S = 0.012  # so soon, and still no gain: it is we who cannot ask any faster
_MOST_PATIENCE = 16
_REQUEST = 20  # what a request costs beside its output, in tokens


@dataclass(slots=True)
class Throughput:
    """What was seen under one limit."""

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
        """Whether answers come so soon that there is no queue worth avoiding."""
        return self.busy_s < _NO_WAIT_S * self.requests

    def over(self, other: "Throughput") -> float:
        """Return how many times faster this was than *other*."""
        known = self.tokens is not None and other.tokens is not None
        mine, its = (self.tokens, other.tokens) if known else (self.requests, other.requests)
        if not its or not mine:
            return inf
        return (self.limit * mine / max(self.busy_s, 1e-9)) / (
            other.limit * its / max(other.busy_s, 1e-9)
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
class Look:
    """A limit to be measured, over how many requests; `against` lets a plain gain end it early."""

    limit: int
    requests: int
    against: Throughput | None = None


Course = Generator[Look, Throughput, None]
Climb = Generator[Look, Throughput, int]


class AdaptiveConcurrency:
    """Finds the limit. `limit` is what holds now; each request gets a number when it goes."""

    def __init__(self, *, most: int | None = None, start: int = START) -> None:
        self._most = most
        self._number = 0
        self._cut_number = 0
        self._cut_at = -inf
        self._good = self._bad = 0
        self._patience = 1
        self._home = self.limit = self._at_most(start)
        self._follow(self._first_course(self.limit), now=-inf)

    def admit(self) -> int:
        """Return the number of a request that goes now."""
        self._number += 1
        return self._number

    def answered(self, number: int) -> None:
        """Count a request that came to its end, in whatever load."""
        if number > self._cut_number:
            self._good += 1
            if self._good > max(32, 2 * self.limit):  # what is long ago says less
                self._good //= 2
                self._bad //= 2

    def measured(self, number: int, busy_s: float, tokens: int | None, now: float) -> None:
        """Count a request that came to its end while every place was taken."""
        if number <= self._first:
            return
        look = self._look
        self._early.add(busy_s, tokens)
        if number > self._first + look.limit:  # the ones before did not meet a full house
            self._seen.add(busy_s, tokens)
        if now - self._began_at < _SHORTEST_S:
            return
        if self._seen.requests >= look.requests:
            self._take_up(self._course.send(self._seen), now)
        elif self._plainly_better(look):
            self._take_up(self._course.send(self._early), now)

    def unheard(self, now: float) -> None:
        """Go on without a word: answers that take long say nothing yet about how many help."""
        higher = self._at_most(min(2 * self.limit, _UNHEARD_MOST))
        if higher > self.limit:
            self._follow(self._first_course(higher), now)

    def overloaded(self, number: int, *, now: float, in_flight: int | None = None) -> None:
        """Count a request that overload ended; cut the limit where that is more than a stray.

        *in_flight* is how many were under way, where that is what was too much.
        """
        if number <= self._cut_number:
            return  # let in before the last cut: told already
        self._bad += 1
        if self._bad < 2 or self._bad < _OVERLOADED * (self._good + self._bad):
            return
        if self._home < self.limit:  # a challenge went too far
            self._patience = min(4 * self._patience, _MOST_PATIENCE)
            self._cut(self._steady(self._home), now)
        elif self._good and now - self._cut_at >= _COOL_DOWN_S:
            # where nothing gets through, fewer at once would not help
            load = self.limit if in_flight is None else min(self.limit, in_flight)
            self._patience = 2
            self._cut(self._recovery(max(int(load * _CUT), 1), load), now)

    def _cut(self, course: Course, now: float) -> None:
        self._cut_at, self._cut_number = now, self._number
        self._good = self._bad = 0
        self._follow(course, now)

    def _plainly_better(self, look: Look) -> bool:
        early = self._early
        enough = early.requests >= look.limit
        return enough and look.against is not None and early.over(look.against) > _PLAIN

    def _follow(self, course: Course, now: float) -> None:
        self._course = course
        self._take_up(next(course), now)

    def _take_up(self, look: Look, now: float) -> None:
        self._look = look
        self.limit = look.limit
        self._first = self._number
        self._began_at = now
        self._seen, self._early = Throughput(look.limit), Throughput(look.limit)

    def _at_most(self, limit: int) -> int:
        return limit if self._most is None else min(limit, self._most)

    def _first_course(self, limit: int) -> Course:
        limit = yield from self._slow_start(limit)
        yield from self._steady(limit)

    def _slow_start(self, limit: int, best: Throughput | None = None) -> Climb:
        """Double while that helps; return the last limit that did."""
        self._home = limit
        if best is None:
            best = yield Look(limit, limit, Throughput(limit))
        while (higher := self._at_most(2 * limit)) > limit:
            seen = yield Look(higher, max(2 * higher, 16), best)
            helped = seen.over(best) >= 1 + (_HELPS - 1) * (higher / limit - 1)
            if not helped and not seen.prompt:
                break
            limit, best = higher, seen
            self._home = limit
        return limit

    def _steady(self, limit: int) -> Course:
        """Stay, and challenge the limit now and then: upwards, downwards, ever more rarely."""
        upwards = True
        while True:
            self._home = limit
            other = self._at_most(int(limit * _STEP) + 1) if upwards else int(limit / _STEP)
            upwards = not upwards
            before = yield Look(limit, self._patience * _enough(limit))
            if other in (0, limit) or (other < limit and before.prompt):
                continue
            seen = yield Look(other, _enough(other))
            after = yield Look(limit, _enough(limit))
            gain = seen.over(before.plus(after))
            if other > limit and (seen.prompt or gain > 1 + 0.4 * (other / limit - 1)):
                limit = yield from self._slow_start(other, seen)
                self._patience, upwards = 1, False
            elif other < limit and gain > _LOSS:
                limit, self._patience, upwards = other, 1, False  # fewer still may do
            else:
                self._patience = min(2 * self._patience, _MOST_PATIENCE)

    def _recovery(self, limit: int, ceiling: int) -> Course:
        """Climb back to just below where it was too much."""
        while limit < int(ceiling * 0.9):
            self._home = limit
            yield Look(limit, limit)
            limit += 1
        yield from self._steady(limit)


def _enough(limit: int) -> int:
    return max(4 * limit, 32)
