"""How many requests are let in at once, on a clock of our own and against servers of all kinds."""

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from bakeoff.models.limits.concurrency import AdaptiveConcurrency

Service = Callable[[random.Random], tuple[float, int | None]]


def steady(took_s: float) -> Service:
    """Every answer takes the same."""
    return lambda chance: (took_s, None)


def like_a_language_model(mean_s: float) -> Service:
    """Answers differ widely in length, and take 10 ms a token, give or take."""

    def service(chance: random.Random) -> tuple[float, int]:
        tokens = max(int(mean_s * 100 * chance.lognormvariate(-0.5, 1.0)), 1)
        return tokens * 0.01 * chance.uniform(0.8, 1.25), tokens

    return service


@dataclass
class Server:
    """Works on `slots` at once; more wait, or are told that it is overloaded."""

    service: Service
    slots: int = 10**9
    turns_away: bool = False
    stray_faults: float = 0.0
    down: tuple[float, float] = (0.0, 0.0)


@dataclass
class Seen:
    limits: list[tuple[float, int]] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)
    overloaded: int = 0

    def typical_limit(self, since: float, until: float) -> float:
        """The limit, averaged over time."""
        total, at, limit = 0.0, since, next(n for t, n in reversed(self.limits) if t <= since)
        for t, n in self.limits:
            if since < t < until:
                total += (t - at) * limit
                at, limit = t, n
        return (total + (until - at) * limit) / (until - since)

    def per_second(self, since: float, until: float) -> float:
        return sum(since <= at < until for at in self.answered) / (until - since)

    def first_at(self, limit: int) -> float:
        return next(t for t, n in self.limits if n >= limit)


class Simulation:
    """A closed loop: so many workers, each with one request at a time, always another one to ask."""

    def __init__(self, server: Server, *, workers: int, seed: int) -> None:
        self.server, self.workers = server, workers
        self.chance, self.control = random.Random(seed), AdaptiveConcurrency()
        self.seen = Seen([(0.0, self.control.limit)])
        self.ends: list[tuple[float, int, float, int | None, bool]] = []
        self.waiting: deque[tuple[int, float]] = deque()
        self.away: list[float] = []
        self.in_service = 0

    def run(self, until: float) -> Seen:
        now = 0.0
        while now < until:
            self.let_in(now)
            if self.away and (not self.ends or self.away[0] < self.ends[0][0]):
                now = heapq.heappop(self.away)
                continue
            now, number, sent_at, tokens, fine = heapq.heappop(self.ends)
            self.end(now, number, sent_at, tokens, fine)
        return self.seen

    @property
    def in_flight(self) -> int:
        return len(self.ends) + len(self.waiting)

    def let_in(self, now: float) -> None:
        while self.in_flight < min(self.control.limit, self.workers - len(self.away)):
            number = self.control.admit()
            server = self.server
            down = server.down[0] <= now < server.down[1]
            full = self.in_service >= server.slots
            if down or (full and server.turns_away) or self.chance.random() < server.stray_faults:
                heapq.heappush(self.ends, (now + 0.005, number, now, None, False))
            elif full:
                self.waiting.append((number, now))
            else:
                self.serve(now, number, now)

    def serve(self, now: float, number: int, sent_at: float) -> None:
        took_s, tokens = self.server.service(self.chance)
        self.in_service += 1
        heapq.heappush(self.ends, (now + took_s, number, sent_at, tokens, True))

    def end(self, now: float, number: int, sent_at: float, tokens: int | None, fine: bool) -> None:
        before, in_flight = self.control.limit, self.in_flight + 1
        if fine:
            self.in_service -= 1
            self.seen.answered.append(now)
            self.control.answered(number)
            if in_flight >= before:
                self.control.measured(number, now - sent_at, tokens, now)
            if self.waiting:
                self.serve(now, *self.waiting.popleft())
        else:
            self.seen.overloaded += 1
            heapq.heappush(self.away, now + self.chance.uniform(0.25, 0.5))  # before it tries again
            self.control.overloaded(number, now=now, in_flight=in_flight)
        if self.control.limit != before:
            self.seen.limits.append((now, self.control.limit))


def simulate(server: Server, *, seed: int, until: float, workers: int = 64) -> Seen:
    return Simulation(server, workers=workers, seed=seed).run(until)


seeds = pytest.mark.parametrize("seed", range(5))


@seeds
@pytest.mark.parametrize("slots", [1, 3, 8, 32])
def test_the_limit_settles_where_more_at_once_bring_no_more(slots: int, seed: int) -> None:
    seen = simulate(Server(steady(0.05), slots), seed=seed, until=60)
    assert slots / 2 <= seen.typical_limit(30, 60) <= slots * 2
    assert seen.per_second(1, 60) >= 0.95 * slots / 0.05


@seeds
@pytest.mark.parametrize("slots", [8, 32])
def test_answers_of_very_different_length_do_not_mislead_it(slots: int, seed: int) -> None:
    seen = simulate(Server(like_a_language_model(2.0), slots), seed=seed, until=600)
    assert slots / 2 <= seen.typical_limit(300, 600) <= slots * 2
    assert min(limit for _, limit in seen.limits) >= min(slots / 2, 4)


@seeds
def test_without_token_counts_it_wavers_but_does_not_collapse(seed: int) -> None:
    def service(chance: random.Random) -> tuple[float, None]:
        return like_a_language_model(2.0)(chance)[0], None

    seen = simulate(Server(service, 8), seed=seed, until=900)
    assert 4 <= seen.typical_limit(450, 900) <= 16
    assert seen.per_second(100, 900) >= 0.8 * 4


@seeds
def test_a_server_that_scales_soon_works_for_everybody(seed: int) -> None:
    seen = simulate(Server(steady(0.05)), seed=seed, until=5)
    assert seen.first_at(64) < 1
    assert seen.per_second(1, 5) >= 0.97 * 64 / 0.05


def test_where_we_are_the_slow_side_everybody_may_ask_at_once() -> None:
    seen = simulate(Server(steady(0.0004), 2), seed=1, until=3)  # 5000 per second, whatever we do
    assert seen.first_at(64) < 1
    assert seen.typical_limit(1, 3) >= 32


@seeds
def test_it_keeps_just_below_where_a_server_turns_requests_away(seed: int) -> None:
    seen = simulate(Server(steady(0.05), 8, turns_away=True), seed=seed, until=60)
    assert 4 <= seen.typical_limit(10, 60) <= 10
    assert seen.per_second(1, 60) >= 0.9 * 8 / 0.05
    assert seen.overloaded < 0.05 * len(seen.answered)


@seeds
def test_stray_faults_do_not_wear_it_down(seed: int) -> None:
    seen = simulate(Server(steady(0.05), stray_faults=0.03), seed=seed, until=60)
    assert seen.typical_limit(20, 60) >= 48


@seeds
def test_after_a_while_without_any_answer_it_is_soon_back(seed: int) -> None:
    seen = simulate(Server(steady(0.05), down=(3.0, 13.0)), seed=seed, until=20)
    assert min(limit for _, limit in seen.limits[6:]) >= 16
    assert seen.per_second(17, 20) >= 0.9 * 64 / 0.05


def test_a_fixed_limit_is_never_passed() -> None:
    control = AdaptiveConcurrency(most=6)
    for n in range(2000):
        control.measured(control.admit(), 0.05, None, n * 0.01)
        assert control.limit <= 6
