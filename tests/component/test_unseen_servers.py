"""Servers that the limiter was not tuned on, in simulated time, against what each allows at most."""

import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from bakeoff.core.outcome import Completion
from support.simulated_endpoint import Endpoint, again, minimal, time_s, with_limiter


@dataclass
class TokenBucket(Endpoint):
    """Refills evenly, and holds a store for bursts."""

    rate: float = 30.0
    size: float = 90.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._left, self._at = self.size, 0.0

    def _refuses(self, now: float) -> bool:
        self._left = min(self.size, self._left + (now - self._at) * self.rate)
        self._at = now
        if self._left < 1:
            return True
        self._left -= 1
        return False


@dataclass
class SlidingWindow(Endpoint):
    """So many in any `period_s`; the number may change."""

    number: int = 150
    period_s: float = 5.0
    halves_at: float = float("inf")
    rises_at: float = float("inf")
    _log: deque[float] = field(default_factory=deque)

    def _refuses(self, now: float) -> bool:
        while self._log and self._log[0] <= now - self.period_s:
            self._log.popleft()
        halved = self.halves_at < now <= self.rises_at
        if len(self._log) >= self.number / (2 if halved else 1):
            return True
        self._log.append(now)
        return False


@dataclass
class FixedWindow(Endpoint):
    """So many in each period of the clock, and Retry-After says when the next begins."""

    number: int = 50
    period_s: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._current, self._taken = -1, 0

    def _refuses(self, now: float) -> bool:
        window = int(now // self.period_s)
        if window != self._current:
            self._current, self._taken = window, 0
        self.retry_after_s = max((window + 1) * self.period_s - now, 0.1)
        self._taken += self._taken < self.number
        return self._taken >= self.number


@dataclass
class SharedKey(SlidingWindow):
    """Others use the same key, at `others` requests per second; who comes first is served."""

    number: int = 100
    period_s: float = 1.0
    others: float = 30.0
    _others_until: float = 0.0

    def _refuses(self, now: float) -> bool:
        while self._others_until < now:
            self._others_until += self._chance.expovariate(self.others)
            super()._refuses(min(self._others_until, now))
        return super()._refuses(now)


@dataclass
class WarmingUp(Endpoint):
    """Takes ever more at once; the rest is refused."""

    async def answer(self) -> Completion:
        self.places = int(2 + 2 * time_s())
        return await super().answer()


@dataclass
class Strained(Endpoint):
    """Answers slow down above `comfortable`, and more and more are turned away by chance."""

    comfortable: int = 20

    async def answer(self) -> Completion:
        over = max(self._under_way - self.comfortable, 0) / self.comfortable
        self.refused = min(0.5 * over, 0.6)
        self.latency = lambda chance: 0.1 * (1 + over) * chance.uniform(0.9, 1.1)
        return await super().answer()


def test_a_token_bucket_with_a_burst_is_emptied_and_then_kept_to() -> None:
    server = TokenBucket(retry_after_s=1)
    result = with_limiter(server, 1200)
    assert result.took_s <= 1.15 * (1200 - server.size) / server.rate
    assert len(server.refusals) < 0.05 * 1200


@pytest.mark.parametrize("retry_after_s", [1.0, 5.0])
def test_a_sliding_window_of_five_seconds_is_used_well(retry_after_s: float) -> None:
    server = SlidingWindow(retry_after_s=retry_after_s)
    result = with_limiter(server, 1500)
    assert result.rate >= 0.75 * server.number / server.period_s
    assert len(server.refusals) < 0.1 * 1500


def test_a_cap_on_concurrency_without_retry_after_is_kept_busy() -> None:
    server = Endpoint(places=13, latency=lambda chance: chance.uniform(0.1, 0.3))
    result = with_limiter(server, 1500)
    assert result.rate >= 0.8 * 13 / 0.2
    assert result.faults == 0


@pytest.mark.parametrize("seed", range(3))
def test_overload_that_slows_answers_and_turns_some_away_loses_nothing(seed: int) -> None:
    server = Strained(status=503, seed=seed)
    result = with_limiter(server, 1500)
    assert result.faults == 0
    assert result.rate >= 0.6 * server.comfortable / 0.1


def test_a_rate_that_halves_in_mid_run_is_found_again() -> None:
    server = SlidingWindow(number=40, period_s=1.0, halves_at=15.0, retry_after_s=1)
    with_limiter(server, 1000)
    assert server.per_second_in(5, 14) >= 0.85 * 40
    assert server.per_second_in(20, 30) >= 0.8 * 20
    assert len(server.refusals) < 0.05 * 1000


def test_a_window_of_a_minute_with_retry_after_is_kept_to() -> None:
    server = SlidingWindow(number=300, period_s=60.0, retry_after_s=60)
    result = with_limiter(server, 900, deadline_s=3600.0)
    assert result.faults == 0
    assert result.took_s <= 1.3 * 180


def varied(chance: random.Random) -> float:
    return 0.1 * chance.lognormvariate(-0.125, 0.5)


@pytest.mark.parametrize("number", [25, 90, 250])
def test_a_rate_is_found_without_retry_after(number: int) -> None:
    server = SlidingWindow(number=number, period_s=1.0, latency=varied)
    result = with_limiter(server, 30 * number)
    assert result.rate >= 0.9 * number
    assert result.faults == 0
    assert len(server.refusals) <= 30


@pytest.mark.parametrize(("rate", "retry_after_s"), [(5.0, None), (2.0, 0.5), (1.0, 1.0)])
def test_a_low_rate_without_bursts_loses_nothing(rate: float, retry_after_s: float | None) -> None:
    server = TokenBucket(rate=rate, size=1, retry_after_s=retry_after_s, latency=varied)
    result = with_limiter(server, int(40 * rate), deadline_s=3600.0)
    assert result.faults == 0
    assert result.rate >= 0.5 * rate
    assert len(server.refusals) < len(server.answers)


@pytest.mark.parametrize("places", [5, 20, 40])
def test_503_above_so_many_at_once_is_a_limit_on_concurrency_whatever_it_asks_for(
    places: int,
) -> None:
    server = Endpoint(places=places, status=503, retry_after_s=1.0, latency=varied)
    result = with_limiter(server, 150 * places)
    assert result.rate >= 0.9 * places / 0.1
    assert result.faults == 0
    assert len(server.refusals) <= 30


@pytest.mark.parametrize("retry_after_s", [0.1, 1.0])
@pytest.mark.parametrize(("places", "latency_s"), [(5, 0.1), (16, 0.05), (40, 0.5), (16, 5.0)])
def test_a_limit_on_concurrency_that_asks_for_time_is_not_taken_for_a_rate(
    places: int, latency_s: float, retry_after_s: float
) -> None:
    server = Endpoint(
        places=places,
        retry_after_s=retry_after_s,
        latency=lambda chance: latency_s * varied(chance) / 0.1,
    )
    result = with_limiter(server, 200 * places)
    assert result.rate >= 0.8 * places / latency_s
    assert result.faults == 0
    assert len(server.refusals) <= 60


@pytest.mark.parametrize("latency_s", [0.05, 1.0, 3.0])
def test_a_rate_that_asks_for_time_is_not_taken_for_a_limit_on_concurrency(
    latency_s: float,
) -> None:
    server = SlidingWindow(
        number=20,
        period_s=1.0,
        retry_after_s=1,
        latency=lambda chance: latency_s * varied(chance) / 0.1,
    )
    result = with_limiter(server, 2000, deadline_s=3600.0)
    assert result.rate >= 0.75 * 20
    assert result.faults == 0
    assert len(server.refusals) <= 40


@pytest.mark.parametrize("period_s", [5.0, 60.0])
def test_a_fixed_window_that_says_when_it_ends_is_used_up_and_waited_for(period_s: float) -> None:
    server = FixedWindow(period_s=period_s, number=int(10 * period_s), latency=varied)
    result = with_limiter(server, 1500, deadline_s=3600.0)
    assert result.faults == 0
    assert result.took_s <= 1.4 * 1500 / 10
    assert len(server.refusals) < 0.03 * 1500


@pytest.mark.parametrize(("others", "part"), [(30.0, 0.7), (60.0, 0.5)])
@pytest.mark.parametrize("retry_after_s", [None, 1.0])
def test_beside_others_with_the_same_key_it_gets_much_of_what_they_leave(
    others: float, part: float, retry_after_s: float | None
) -> None:
    server = SharedKey(others=others, retry_after_s=retry_after_s, latency=varied)
    result = with_limiter(server, 2000, deadline_s=3600.0)
    assert result.faults == 0
    assert result.rate >= part * (server.number - others)
    assert len(server.refusals) < 0.1 * 2000


def test_a_rate_that_rises_in_mid_run_is_found() -> None:
    server = SlidingWindow(number=80, period_s=1.0, halves_at=0.0, retry_after_s=1, latency=varied)
    server.rises_at = 20.0
    with_limiter(server, 4500)
    assert server.per_second_in(5, 19) >= 0.85 * 40
    assert server.per_second_in(60, 65) >= 0.85 * 80


def test_a_server_that_warms_up_is_followed() -> None:
    server = WarmingUp(latency=varied)
    result = with_limiter(server, 3000)
    assert result.faults == 0
    assert result.took_s <= 1.6 * 16.3  # as long as it takes to have had so many places
    assert len(server.refusals) < 0.05 * 3000


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("retry_after_s", [None, 0.1, 1.0])
def test_refusals_by_chance_never_become_a_downward_spiral(
    share: float, retry_after_s: float | None
) -> None:
    for seed in range(5, 9):
        server = Endpoint(refused=share, retry_after_s=retry_after_s, seed=seed, latency=varied)
        least = minimal(again(server), 1000)
        assert with_limiter(again(server), 1000).took_s <= 4 * least.took_s, seed
