"""What refusals are about, in simulated time, with the real limiter and real retries."""

import asyncio
import random
import threading
import time
from collections.abc import Callable

import pytest

from bakeoff.core.outcome import Completion, Request
from bakeoff.core.task import Message
from bakeoff.models.adapters.openai_compatible import build
from bakeoff.models.client.retry import Overload, RetryableError
from bakeoff.models.limits.limiter import UNLIMITED, EndpointLimiter
from bakeoff.models.limits.settings import Limiters
from component.test_limits import ask_all, spec_of
from support.chances import chances
from support.loopback import Asked, Loopback, Reply, chat
from support.simulated_endpoint import Endpoint, again, minimal, simulate, with_limiter


def varied(mean_s: float) -> Callable[[random.Random], float]:
    """A latency that differs from answer to answer."""
    return lambda chance: mean_s * chance.lognormvariate(-0.125, 0.5)


class Requests:
    """Requests through a limiter, each answered or refused when the test says so."""

    def __init__(self) -> None:
        self.limiter = EndpointLimiter(clock=asyncio.get_running_loop().time)
        self._fates: dict[int, asyncio.Future[Completion]] = {}
        self._tasks: list[asyncio.Task[Completion]] = []
        self.sent: list[int] = []

    def rate(self) -> float | None:
        """Return the rate that was learned."""
        return self.limiter.rate

    async def ask(self, count: int) -> None:
        """Hand *count* more requests to the limiter."""
        for number in range(len(self._tasks), len(self._tasks) + count):
            self._tasks.append(asyncio.create_task(self._send(number)))
        await asyncio.sleep(0.001)

    async def _send(self, number: int) -> Completion:
        def once() -> "asyncio.Future[Completion]":
            self.sent.append(number)
            self._fates[number] = asyncio.get_running_loop().create_future()
            return self._fates[number]

        question = Request(messages=(Message(role="user", content=str(number)),))
        return await self.limiter.send(once, question)

    async def answer(self, *numbers: int) -> None:
        """Answer requests that were sent."""
        for number in numbers:
            self._fates[number].set_result(Completion(text="ok"))
            await asyncio.sleep(0.001)

    async def refuse(self, *numbers: int, retry_after_s: float | None = 1.0) -> None:
        """Refuse requests that were sent."""
        for number in numbers:
            error = RetryableError(
                "refused", overload=Overload.RATE, billable=False, retry_after_s=retry_after_s
            )
            self._fates[number].set_exception(error)
            with pytest.raises(RetryableError):
                await self._tasks[number]


def test_a_refusal_is_about_one_request_until_three_in_a_row_are_refused() -> None:
    async def main() -> None:
        requests = Requests()
        await requests.ask(8)
        await requests.answer(0, 1, 2, 3)
        await requests.ask(4)
        await requests.refuse(9, 10)
        await requests.ask(1)
        assert requests.sent[-1] == 12  # nobody waits
        assert requests.rate() is None
        await requests.refuse(11, 12)
        await requests.ask(1)
        assert requests.sent[-1] == 12  # now everybody does
        assert requests.rate() is not None
        await asyncio.sleep(1.1)
        assert requests.sent[-1] == 12  # it may be that too many were in flight
        await requests.answer(4)
        assert requests.sent[-1] == 13

    simulate(main())


def test_an_answer_to_something_sent_later_takes_a_refusal_back() -> None:
    async def main() -> None:
        requests = Requests()
        await requests.ask(8)
        await requests.answer(0, 1)
        await requests.refuse(5, 6)
        await requests.answer(7)
        await requests.ask(2)
        await requests.refuse(8, 9)
        await requests.ask(1)
        assert requests.sent[-1] == 10
        assert requests.rate() is None

    simulate(main())


def test_if_something_is_answered_that_was_sent_after_all_that_were_refused_it_was_chance() -> None:
    async def main() -> None:
        requests = Requests()
        await requests.ask(8)
        await requests.answer(0, 1)
        await requests.ask(2)
        await requests.refuse(2, 3, 4, 5)  # of eight
        assert requests.rate() is not None
        await requests.ask(1)
        assert requests.sent[-1] == 9  # it waits
        await requests.answer(6)
        assert requests.rate() is None
        assert requests.sent[-1] == 10

    simulate(main())


@pytest.mark.parametrize("seed", range(3))
def test_scattered_refusals_leave_concurrency_and_rate_alone(seed: int) -> None:
    server = Endpoint(refused=0.05, retry_after_s=0.2, seed=seed)
    result = with_limiter(server, 2000)
    assert result.limiter is not None
    assert result.limiter.rate is None
    limits = [limit for _, limit in result.limits]
    assert limits == sorted(limits)
    assert limits[-1] >= 64


def test_it_starts_with_eight_and_doubles_each_round_trip() -> None:
    round_trip_s = 0.101
    result = with_limiter(Endpoint(latency=lambda _: 0.1), 1000, workers=100)
    assert sum(at <= round_trip_s for at in result.server.answers) == 8
    reached = {limit: at / round_trip_s for at, limit in result.limits}
    assert reached[16] < 1.01
    assert reached[32] - reached[16] < 1.5  # what a round adds is sent spread over half of it
    assert reached[64] - reached[32] < 1.5


# --- what it comes to, against a runner that only retries

DAYS = {
    "refusals and failures": Endpoint(
        latency=varied(0.12), refused=0.08, failed=0.02, cut=0.01, retry_after_s=0.3
    ),
    "slow answers, quick refusals": Endpoint(latency=varied(2.0), refused=0.06),
    "overloaded now and then": Endpoint(latency=varied(0.4), refused=0.04, status=503),
    "failures alone": Endpoint(latency=varied(0.2), failed=0.07, reset=0.02),
    "many refusals": Endpoint(latency=varied(0.1), refused=0.15, retry_after_s=0.1),
}


@pytest.mark.parametrize("seed", [11, 12])
@pytest.mark.parametrize("day", DAYS)
def test_a_bad_day_costs_little_more_than_its_retries(day: str, seed: int) -> None:
    server = DAYS[day]
    server.seed = seed
    least = minimal(again(server), 1500, workers=40)
    result = with_limiter(again(server), 1500, workers=40)
    assert result.took_s <= 2 * least.took_s
    assert result.faults <= 3


@pytest.mark.parametrize("places", [3, 10, 25])
def test_a_server_that_refuses_more_than_so_many_at_once_is_kept_busy(places: int) -> None:
    server = Endpoint(places=places, latency=varied(0.1))
    result = with_limiter(server, 100 * places, workers=48)
    assert result.rate >= 0.8 * places / 0.1
    assert len(server.refusals) < 0.2 * len(server.answers)
    assert result.limiter is not None
    assert result.limiter.rate is None  # it is a limit on concurrency, not on the rate


@pytest.mark.parametrize("per_second", [12, 60, 350])
def test_a_server_that_takes_so_many_in_a_second_gets_nearly_as_many(per_second: int) -> None:
    server = Endpoint(per_second=per_second, retry_after_s=1, latency=varied(0.08))
    result = with_limiter(server, 20 * per_second, workers=48)
    assert result.rate >= 0.85 * per_second
    assert len(server.refusals) <= 48


def test_a_server_that_refuses_everything_and_then_nothing_is_back_at_full_speed_at_once() -> None:
    server = Endpoint(shut=lambda now: 5 < now < 125)
    result = with_limiter(server, 20_000)
    first = next(at for at in server.answers if at > 125)
    assert first - 125 <= 12.5  # one probe: every ten seconds, a quarter more by chance
    assert server.per_second_in(first + 2, first + 4) >= 0.9 * server.per_second_in(2, 4)
    assert sum(at > 6 for at in server.refusals) < 30
    assert result.faults == 0


@chances(3)
def test_a_bad_day_at_a_real_server_costs_little_more_than_its_retries() -> None:
    def took_s(*, limited: bool) -> float:
        chance, lock = random.Random(5), threading.Lock()

        def reply(_: Asked) -> Reply:
            with lock:
                number = chance.random()
            if number < 0.07:
                return Reply(status=429, headers={"Retry-After": "0.1"}, body=b"slow down")
            time.sleep(0.04)
            return Reply(status=500, body=b"oops") if number < 0.1 else chat("ok")

        async def main(server: Loopback) -> float:
            spec = spec_of(server)
            model = build(spec, Limiters().of(spec) if limited else UNLIMITED)
            began = time.monotonic()
            try:
                await asyncio.wait_for(ask_all(model, 400, workers=16), 120)
            finally:
                await model.close()
            return time.monotonic() - began

        with Loopback(reply) as server:
            return asyncio.run(main(server))

    least_s, limited_s = took_s(limited=False), took_s(limited=True)
    print(f"{limited_s:.2f} s; without a limiter {least_s:.2f} s")
    assert limited_s <= 2.5 * least_s


def test_a_server_with_one_slow_slot_is_not_asked_more_at_once_than_meet_their_deadlines() -> None:
    result = with_limiter(Endpoint(workers=1, latency=lambda _: 60.0), 30, deadline_s=600.0)
    assert result.faults == 0
