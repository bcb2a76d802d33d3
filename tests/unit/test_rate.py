"""How fast requests go out, on a clock of our own and against servers that count in various ways."""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from bakeoff.models.limits.rate import RateLimit, RequestSpacing
from bakeoff.models.limits.rate_limit_headers import (
    RateLimitHeaders,
    parse_rate_limit_headers,
    parse_reset,
)

RATE = 20.0


class Bucket:
    """A store of credit that fills up evenly."""

    def __init__(self, rate: float, size: float) -> None:
        self.rate, self.size, self.left, self.at = rate, size, size, 0.0

    def refuses(self, now: float) -> float | None:
        self.left = min(self.size, self.left + (now - self.at) * self.rate)
        self.at = now
        if self.left >= 1:
            self.left -= 1
            return None
        return (1 - self.left) / self.rate


class Window:
    """So many in each period, counted anew at its start."""

    def __init__(self, number: float, period_s: float, phase_s: float) -> None:
        self.number, self.period_s, self.phase_s = number, period_s, phase_s
        self.index, self.count = -1, 0

    def refuses(self, now: float) -> float | None:
        at = (now + self.phase_s) / self.period_s
        if int(at) != self.index:
            self.index, self.count = int(at), 0
        if self.count < self.number:
            self.count += 1
            return None
        return (self.index + 1 - at) * self.period_s


class Log:
    """So many in any period, wherever it starts."""

    def __init__(self, number: int, period_s: float) -> None:
        self.number, self.period_s = number, period_s
        self.passed: deque[float] = deque()

    def refuses(self, now: float) -> float | None:
        while self.passed and self.passed[0] <= now - self.period_s:
            self.passed.popleft()
        if len(self.passed) < self.number:
            self.passed.append(now)
            return None
        return self.passed[0] + self.period_s - now


@dataclass
class Seen:
    passed: list[float]
    refused: list[float]

    def per_second(self, since: float, until: float) -> float:
        return sum(since <= at < until for at in self.passed) / (until - since)

    def refused_share(self, since: float, until: float) -> float:
        refused = sum(since <= at < until for at in self.refused)
        return refused / max(refused + sum(since <= at < until for at in self.passed), 1)


def drive(
    server: Bucket | Window | Log,
    *,
    seed: int,
    until: float = 60.0,
    places: int = 16,
    asked: Callable[[float], float | None] = math.ceil,
) -> Seen:
    """Press as hard as the pace and *places* let; an answer takes 20 to 80 ms, a refusal 5."""
    chance, pace, seen = random.Random(seed), RateLimit(), Seen([], [])
    events: list[tuple[float, float, float | None]] = []
    now = 0.0
    while now < until:
        wait_s = pace.wait_s(now)
        if len(events) < places and wait_s <= 0:
            pace.sent(now)
            after = server.refuses(now)
            (seen.passed if after is None else seen.refused).append(now)
            took = 0.005 if after is not None else chance.uniform(0.02, 0.08)
            heapq.heappush(events, (now + took, now, after))
            now += 0.0001
            continue
        due = now + wait_s + chance.uniform(0, 0.002) if len(events) < places else math.inf
        if events and events[0][0] <= due:
            at, sent_at, after = heapq.heappop(events)
            now = max(now, at)
            if after is not None:
                pace.refused(sent_at=sent_at, now=now, retry_after_s=asked(after))
        else:
            now = due
    return seen


SERVERS: dict[str, Callable[[int], Bucket | Window | Log]] = {
    "bucket of 20": lambda seed: Bucket(RATE, 20),
    "bucket of 40": lambda seed: Bucket(RATE, 40),
    "bucket of 1": lambda seed: Bucket(RATE, 1.2),
    "window": lambda seed: Window(RATE, 1.0, random.Random(seed).random()),
    "log": lambda seed: Log(20, 1.0),
}


def says_nothing(retry_after_s: float) -> None:
    """No Retry-After."""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("asked", [math.ceil, float, says_nothing])
def test_nearly_all_that_is_allowed_is_used_and_hardly_any_request_refused(
    kind: str, seed: int, asked: Callable[[float], float | None]
) -> None:
    seen = drive(SERVERS[kind](seed), seed=seed, asked=asked)
    strict = kind == "bucket of 1"  # nothing to learn from but its refusals, one by one
    warm = 12.0 if strict else 4.0
    assert seen.per_second(warm, 60) >= (0.85 if strict else 0.9) * RATE
    assert seen.refused_share(warm, 60) < 0.03


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["bucket of 20", "window", "log"])
def test_the_first_burst_teaches_the_rate(kind: str, seed: int) -> None:
    seen = drive(SERVERS[kind](seed), seed=seed, until=15)
    assert seen.per_second(0, 15) >= 0.9 * RATE


def test_a_limit_per_minute_is_found_by_how_long_it_asks_to_wait() -> None:
    seen = drive(Window(60, 60.0, 0.0), seed=1, until=600)
    assert seen.per_second(0, 600) >= 0.8
    assert seen.refused_share(120, 600) < 0.1


def test_a_limit_that_is_lifted_is_found_out() -> None:
    server = Bucket(RATE, 20)
    pace, now, sent = RateLimit(), 0.0, 0
    while now < 120:
        now += max(pace.wait_s(now), 0.001)
        pace.sent(now)
        sent += 1
        server.rate = 10 * RATE if now > 10 else RATE
        if server.refuses(now) is not None:
            pace.refused(sent_at=now, now=now, retry_after_s=1.0)
    assert pace.rate is not None
    assert pace.rate > 5 * RATE


def test_one_episode_is_learned_from_once_however_many_were_under_way() -> None:
    pace = RateLimit()
    for n in range(100):
        pace.sent(n * 0.01)
    for _ in range(10):
        pace.refused(sent_at=0.985, now=1.0, retry_after_s=1.0)
    assert pace.rate == pytest.approx(89, rel=0.02)
    assert pace.paused_s(1.0) == 1.0


# --- a rate that was set


def test_a_set_rate_is_kept_in_any_second_and_late_timers_do_not_cost_any() -> None:
    spacing, chance, now, gone = RequestSpacing(50.0), random.Random(1), 0.0, []
    while now < 60:
        now += max(spacing.wait_s(now), 0) + chance.uniform(0, 0.008)
        spacing.take(now)
        gone.append(now)
    assert len(gone) == pytest.approx(3000, abs=10)
    for start in range(59):
        assert sum(start <= at < start + 1 for at in gone) <= 51


def test_amounts_count_and_are_put_right_afterwards() -> None:
    spacing = RequestSpacing(1000.0)
    spacing.take(0.0, 2000)
    assert spacing.wait_s(0.0) == pytest.approx(2.0, abs=0.02)
    spacing.correct(0.5, -1500)
    assert spacing.wait_s(0.5) == pytest.approx(0.0, abs=0.02)


def test_a_cap_ends() -> None:
    spacing = RequestSpacing()
    spacing.cap(10.0, until=1.0)
    spacing.take(0.5)
    assert spacing.wait_s(0.5) == pytest.approx(0.1, abs=0.03)
    spacing.take(1.5)
    assert spacing.wait_s(1.5) <= 0
    assert not spacing.limited


# --- what headers say


def test_openais_headers_are_read() -> None:
    headers = {
        "x-ratelimit-limit-requests": "600",
        "x-ratelimit-remaining-requests": "10",
        "x-ratelimit-reset-requests": "59s",
        "x-ratelimit-limit-tokens": "90000",
        "x-ratelimit-remaining-tokens": "89000",
        "x-ratelimit-reset-tokens": "667ms",
    }
    requests, tokens = parse_rate_limit_headers(headers)
    assert requests == RateLimitHeaders(unit="requests", limit=600, remaining=10, reset_s=59)
    assert requests.low
    assert requests.rate == 10
    assert not tokens.low


def test_anthropics_headers_are_read() -> None:
    headers = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2099-01-01T00:00:00Z",
    }
    (requests,) = parse_rate_limit_headers(headers)
    assert requests.low
    assert requests.reset_s > 1e9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6m0s", 360),
        ("12ms", 0.012),
        ("1h2m3.5s", 3723.5),
        ("20", 20),
        ("1.5", 1.5),
        ("2d", 172800),
    ],
)
def test_a_reset_is_read_in_every_form(text: str, expected: float) -> None:
    assert parse_reset(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", [None, "", "soon", "-1", "nan", "inf", "1e99", "9" * 50, "٣s"])
def test_a_reset_that_says_nothing_is_none(text: str | None) -> None:
    assert parse_reset(text) in (None, 3.0)


@pytest.mark.parametrize("left", ["", "many", "-5", "nan"])
def test_headers_that_make_no_sense_are_left_alone(left: str) -> None:
    headers = {
        "x-ratelimit-limit-requests": "600",
        "x-ratelimit-remaining-requests": left,
        "x-ratelimit-reset-requests": "1s",
    }
    assert not list(parse_rate_limit_headers(headers))
