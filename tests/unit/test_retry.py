"""How often, how soon, and by when at the latest."""

import asyncio
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.core.errors import ProviderError
from bakeoff.models.client.retry import (
    RetryableError,
    RetryPolicy,
    is_retryable,
    retry_after,
    with_retries,
)

QUICK = RetryPolicy(max_retries=3, delay_s=0.001, deadline_s=5)
chances = st.floats(0, 1, exclude_max=True)
delays = st.floats(0, 1000)


def failing(times: int, error: Exception | None = None) -> Callable[[], "asyncio.Future[str]"]:
    """Something that fails *times* times and then answers "ok"."""
    left = [times]

    async def once() -> str:
        if left[0]:
            left[0] -= 1
            raise error or RetryableError("busy")
        return "ok"

    return once  # type: ignore[return-value]


def attempt(once: object, policy: RetryPolicy = QUICK, **rest: object) -> tuple[str, int]:
    return asyncio.run(with_retries(once, policy, **rest))  # type: ignore[arg-type]


# --- how often


@pytest.mark.parametrize("times", [0, 1, 3])
def test_the_number_of_further_tries_is_counted(times: int) -> None:
    assert attempt(failing(times)) == ("ok", times)


def test_the_last_fault_is_told_with_how_often_it_came() -> None:
    with pytest.raises(ProviderError, match=r"^busy \(4 times\)$") as caught:
        attempt(failing(99))
    assert caught.value.transient


def test_without_retries_the_fault_stands_alone() -> None:
    with pytest.raises(ProviderError, match=r"^busy$"):
        attempt(failing(1), RetryPolicy(max_retries=0))


def test_a_fault_that_will_not_pass_is_not_tried_again() -> None:
    heard: list[str] = []
    with pytest.raises(ProviderError, match="no such model") as caught:
        attempt(failing(1, ProviderError("no such model")), on_retry=heard.append)
    assert not caught.value.transient
    assert heard == []


def test_every_further_try_is_announced_with_its_reason() -> None:
    heard: list[str] = []
    attempt(failing(2), on_retry=heard.append)
    assert heard == ["busy", "busy"]


def test_nothing_is_announced_where_no_further_try_follows() -> None:
    heard: list[str] = []
    with pytest.raises(ProviderError):
        attempt(failing(9), RetryPolicy(max_retries=0), on_retry=heard.append)
    assert heard == []


# --- how soon


@given(st.floats(0.001, 10), st.floats(1, 10), st.integers(0, 40), chances)
def test_a_pause_grows_up_to_the_longest(
    delay_s: float, backoff: float, retries: int, chance: float
) -> None:
    policy = RetryPolicy(delay_s=delay_s, backoff=backoff, longest_s=60)
    busy = RetryableError("busy")
    now, later = (
        policy.backoff_delay(retries, busy, chance),
        policy.backoff_delay(retries + 1, busy, chance),
    )
    assert now <= later <= 60


@given(delays, st.integers(0, 10), chances)
def test_chance_takes_away_at_most_half_of_a_pause(
    delay_s: float, retries: int, chance: float
) -> None:
    policy = RetryPolicy(delay_s=delay_s)
    full = min(delay_s * policy.backoff**retries, policy.longest_s)
    assert full / 2 <= policy.backoff_delay(retries, RetryableError("busy"), chance) <= full


@given(st.floats(0, 1e300), st.floats(1, 1e300), st.integers(0, 10_000), chances)
def test_a_pause_is_always_a_number_of_seconds(
    delay_s: float, backoff: float, retries: int, chance: float
) -> None:
    pause = RetryPolicy(delay_s=delay_s, backoff=backoff).backoff_delay(
        retries, RetryableError("x"), chance
    )
    assert 0 <= pause <= 60


@given(st.floats(0.001, 1e6), delays, chances)
def test_whoever_asks_for_a_pause_gets_it_and_a_little_more(
    asked_s: float, delay_s: float, chance: float
) -> None:
    pause = RetryPolicy(delay_s=delay_s).backoff_delay(
        3, RetryableError("busy", retry_after_s=asked_s), chance
    )
    assert asked_s <= pause <= 1.25 * asked_s


def test_an_endpoint_that_asks_for_no_pause_is_not_hammered() -> None:
    assert (
        RetryPolicy(delay_s=2).backoff_delay(0, RetryableError("busy", retry_after_s=0.0), 0.0)
        == 1.0
    )


def test_a_pause_really_passes() -> None:
    began = time.monotonic()
    attempt(failing(1, RetryableError("busy", retry_after_s=0.2)))
    assert time.monotonic() - began >= 0.2


# --- by when at the latest


def test_a_try_that_does_not_end_is_ended() -> None:
    began = time.monotonic()
    with pytest.raises(ProviderError, match=r"no whole answer within 0\.1 s") as caught:
        attempt(lambda: asyncio.sleep(9, "late"), RetryPolicy(deadline_s=0.1))
    assert time.monotonic() - began < 5  # to its end it would take nine
    assert caught.value.transient


def test_the_deadline_is_one_for_all_tries_and_tells_what_happened_before_it() -> None:
    tries = [0]

    async def once() -> str:
        tries[0] += 1
        if tries[0] == 1:
            raise RetryableError("busy")
        await asyncio.sleep(9)
        return "late"

    began = time.monotonic()
    with pytest.raises(ProviderError, match=r"within 0\.3 s .*before that: busy"):
        attempt(once, RetryPolicy(delay_s=0.05, deadline_s=0.3))
    assert time.monotonic() - began < 5  # to its end it would take nine


@pytest.mark.parametrize("asked_s", [30.0, 86_400.0, math.inf])
def test_a_pause_beyond_the_deadline_is_not_begun(asked_s: float) -> None:
    heard: list[str] = []
    began = time.monotonic()
    with pytest.raises(ProviderError, match=r"busy; waiting .* would pass the deadline") as caught:
        attempt(
            failing(1, RetryableError("busy", retry_after_s=asked_s)),
            RetryPolicy(deadline_s=10),
            on_retry=heard.append,
        )
    assert time.monotonic() - began < 5  # the deadline is at ten
    assert caught.value.transient
    assert heard == []


def test_a_cancelled_request_stays_cancelled() -> None:
    async def main() -> None:
        task = asyncio.create_task(with_retries(failing(99), RetryPolicy(delay_s=5)))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


# --- what a Retry-After header says


@pytest.mark.parametrize(
    ("value", "milliseconds", "seconds"),
    [
        ("7", None, 7.0),
        ("0.5", None, 0.5),
        (" 2 ", None, 2.0),
        ("-5", None, 0.0),
        ("1e9", None, 1e9),
        ("1e999", None, math.inf),
        (None, "1500", 1.5),
        ("7", "1500", 1.5),
        ("7", "soon", 7.0),
        ("7", "", 7.0),
        (None, None, None),
        ("", None, None),
        ("nan", None, None),
        ("soon", None, None),
        ("Mon, 99 Foo 2026 99:99:99 GMT", None, None),
        ("Mon, 01 Jan 99999 00:00:00 GMT", None, None),
        ("Mon, 01 Jan 2001 00:00:00 GMT", None, 0.0),
    ],
)
def test_a_retry_after_header_is_read(
    value: str | None, milliseconds: str | None, seconds: float | None
) -> None:
    assert retry_after(value, milliseconds=milliseconds) == seconds


@pytest.mark.parametrize("zone", [timedelta(0), timedelta(hours=5)])
def test_a_retry_after_date_is_so_many_seconds_from_now(zone: timedelta) -> None:
    date = format_datetime((datetime.now(UTC) + timedelta(seconds=90)).replace(microsecond=0))
    if zone:
        date = date.replace("+0000", "-0000")  # "no time zone", which is read as UTC
    seconds = retry_after(date)
    assert seconds is not None
    assert 85 <= seconds <= 90


@given(st.text() | st.none(), st.text() | st.none())
def test_no_header_breaks_the_reader(value: str | None, milliseconds: str | None) -> None:
    seconds = retry_after(value, milliseconds=milliseconds)
    assert seconds is None or seconds >= 0


# --- what may pass


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 522, 529, 530])
def test_a_status_that_may_pass(status: int) -> None:
    assert is_retryable(status)


@pytest.mark.parametrize("status", [204, 301, 307, 400, 401, 402, 403, 404, 413, 422, 501, 505])
def test_a_status_that_stays(status: int) -> None:
    assert not is_retryable(status)
