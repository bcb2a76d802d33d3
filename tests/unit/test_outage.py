"""When an endpoint counts as down, and when it is tried again."""

import pytest

from bakeoff._lib.phrasing import format_duration, parse_duration
from bakeoff.core.candidate import Patience
from bakeoff.core.errors import ProviderError
from bakeoff.models.client.retry import Overload, RetryableError, UnreachableError
from bakeoff.models.limits.outage import CircuitBreaker, Failure

PATIENCE = Patience(give_up_after_s=100, first_probe_s=1, longest_probe_s=4)


def outage(patience: Patience = PATIENCE) -> CircuitBreaker:
    made = CircuitBreaker(patience, jitter=lambda: 0.0)
    made.reached = True
    return made


def fail(
    it: CircuitBreaker,
    number: int,
    *,
    sent: int | None = None,
    now: float = 0.0,
    question: object = None,
) -> None:
    error = RetryableError("HTTP 500", billable=False)
    it.failed(Failure(error, number, question or number, sent or number), now)


def test_three_failures_in_a_row_are_an_outage() -> None:
    it = outage()
    for number in (1, 2):
        fail(it, number)
        assert not it.down
    fail(it, 3)
    assert it.down


def test_an_answer_to_something_sent_later_means_that_it_is_up() -> None:
    it = outage()
    fail(it, 1)
    fail(it, 2)
    it.answered(3)
    fail(it, 4)
    assert not it.down


def test_failures_among_many_that_are_under_way_are_no_outage() -> None:
    it = outage()
    for number in (1, 2, 3):
        fail(it, number, sent=64)
    assert not it.down


def test_one_question_that_always_fails_is_no_outage_unless_the_status_says_so() -> None:
    it = outage()
    for number in range(1, 10):
        fail(it, number, question="the same")
    assert not it.down
    error = RetryableError("HTTP 503", overload=Overload.LOAD, billable=False)
    it.failed(Failure(error, 10, "the same", 10), 0.0)
    assert it.down


def test_probes_come_ever_more_rarely_and_an_answer_ends_it() -> None:
    it = outage()
    for number in (1, 2, 3):
        fail(it, number)
    waits = []
    for number in (4, 5, 6, 7):
        it.probe, now = number, it.probe_at
        fail(it, number, now=now)
        waits.append(it.probe_at - now)
    assert waits == [2, 4, 4, 4]
    it.answered(8)
    assert not it.down


def test_it_is_given_up_after_the_patience_or_where_it_asks_for_longer() -> None:
    it = outage()
    for number in (1, 2, 3):
        fail(it, number)
    assert it.give_up_reason(50) is None
    assert "no answer for 1 min 40 s" in (it.give_up_reason(100) or "")
    it = outage()
    error = RetryableError("HTTP 429", retry_after_s=86_400, overload=Overload.RATE, billable=False)
    it.failed(Failure(error, 1, "a", 1), 0.0)
    assert it.down
    assert "left alone for 24 h (Retry-After)" in (it.give_up_reason(0) or "")


def test_a_server_that_nobody_has_reached_is_given_up_sooner_unless_told_to_keep_going() -> None:
    for keep_going, given_up in ((False, True), (True, False)):
        it = outage(Patience(keep_going=keep_going))
        it.reached = False
        for number in (1, 2, 3):
            it.failed(Failure(UnreachableError("nothing answers"), number, "a", number), 0.0)
        assert it.give_up_reason(5) is None
        assert (it.give_up_reason(10) is not None) is given_up


def test_equal_faults_count_only_where_nothing_has_succeeded() -> None:
    def rejections(it: CircuitBreaker) -> list[bool]:
        return [it.record_rejection(ProviderError("HTTP 401")) is not None for _ in range(5)]

    assert rejections(outage()) == [False, False, False, False, True]
    it = outage()
    it.answered_ever = True
    assert not any(rejections(it))


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("1.5h", 5400), (" 2 min ", 120)]
)
def test_a_duration_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "-1s"])
def test_what_is_no_duration_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="write it as 90s, 15m or 2h"):
        parse_duration(text)


def test_a_duration_is_told_in_its_two_largest_units() -> None:
    told = [format_duration(s) for s in (0.42, 42.4, 125, 3600, 86_400, 5_430)]
    assert told == ["0.4 s", "42 s", "2 min 5 s", "1 h", "24 h", "1 h 30 min"]
