"""Servers that misbehave: each a clear fault within its deadline, or a bounded retry; and the run
goes on.

Every case runs a whole attempt on the real adapter and the real event loop, and then a second one
on the same model against the same server, now well-behaved.
"""

import asyncio
import gzip
import json
import shutil
import socket
import subprocess
import time
import zlib
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bakeoff.agents.direct import Direct
from bakeoff.app.run import new_event_loop
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.outcome import UNKNOWN_USAGE, Request
from bakeoff.core.ports import Model, TrialParts, close_model
from bakeoff.core.record import Attempt, Status
from bakeoff.core.task import Message
from bakeoff.engine.trial import run_attempt
from bakeoff.models.adapters.openai_compatible import build
from bakeoff.models.client.http import LARGEST_BODY, HttpClient
from bakeoff.models.client.retry import RetryableError
from support.loopback import Answerer, Asked, Loopback, Reply, chat, delta, dripping, silence, sse
from support.parts import require
from support.plans import task, trial

T = TypeVar("T")

DEADLINE_S = 1.0
SLACK_S = 4.0  # for a busy machine; a hang is far beyond it
JSON_TYPE = {"Content-Type": "application/json"}
DONE = "data: [DONE]\n\n"
QUESTION = Request(messages=(Message(role="user", content="hello"),))


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback() as running:
        yield running


def model_of(url: str, *, api_key: str | None = None, **settings: Any) -> Model:
    quick = {"timeout_s": DEADLINE_S, "max_retries": 0, "retry_delay_s": 0.01, **settings}
    return build(
        ModelSpec(
            provider="openai-compatible", name="m", base_url=url, api_key=api_key, settings=quick
        )
    )


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


async def attempt_on(model: Model, prompt: str) -> Attempt:
    rig = TrialParts(agent=Direct(), model=model, scorers=())
    return await run_attempt(trial(task(prompt=prompt)), rig, number=1)


def attempted(server: Loopback, hostile: Reply | Answerer, **settings: Any) -> Attempt:
    """Return the attempt at a hostile server, after which the next one must work as ever."""

    async def main() -> tuple[Attempt, Attempt, float]:
        model = model_of(server.url, **settings)
        server.answer = hostile if callable(hostile) else lambda _: hostile
        began = time.monotonic()
        first = await attempt_on(model, "first")
        took_s = time.monotonic() - began
        stream = settings.get("stream")
        server.answer = lambda asked: (
            sse(delta(asked.prompt, "stop"), DONE) if stream else chat(asked.prompt)
        )
        second = await attempt_on(model, "second")
        await close_model(model)
        return first, second, took_s

    first, second, took_s = run(main())
    assert took_s < settings.get("timeout_s", DEADLINE_S) + SLACK_S
    assert (second.status, second.outcome and second.outcome.answer) == (
        Status.COMPLETED,
        "second",
    )
    return first


def answer_of(attempt: Attempt) -> str:
    assert attempt.status is Status.COMPLETED, attempt.fault
    assert attempt.outcome is not None
    return attempt.outcome.answer


@dataclass(frozen=True)
class Case:
    """A misbehaviour, whether its fault may pass, and words that its message must hold."""

    name: str
    reply: Callable[[], Reply]
    transient: bool
    words: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


def check(attempt: Attempt, case: Case) -> None:
    assert attempt.status is Status.FAULTED
    assert attempt.score is None
    assert attempt.fault is not None
    assert attempt.fault.boundary == "provider"
    assert attempt.fault.transient is case.transient
    for word in case.words:
        assert word in attempt.fault.message
    assert "\n" not in attempt.fault.message
    assert len(attempt.fault.message) < 1000


def body(data: bytes | str | dict[str, Any], *, status: int = 200, **headers: str) -> Reply:
    if isinstance(data, dict):
        data = json.dumps(data)
    raw = data.encode() if isinstance(data, str) else data
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, headers={**JSON_TYPE, **given}, body=raw)


def head(*lines: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()


def choice(message: dict[str, Any], finish: str | None = "stop") -> Reply:
    return body({"choices": [{"message": message, "finish_reason": finish}]})


GOOD = chat("good").body
HTML = "<!doctype html>\n<html><body>Please log in</body></html>"


# --- whole answers

WHOLE = [
    Case("empty choices", lambda: body({"choices": []}), True, ("no choices",)),
    Case("null choices", lambda: body({"choices": None}), True, ("no choices",)),
    Case("no choices at all", lambda: body({"id": 1}), True, ("no choices",)),
    Case("null content", lambda: choice({"content": None}), True, ("no content",)),
    Case("an empty message", lambda: choice({}), True, ("no content",)),
    Case("null finish_reason", lambda: choice({"content": "4"}, None), True, ("not complete",)),
    Case("finish_reason error", lambda: choice({"content": "4"}, "error"), True, ("broke off",)),
    Case("an empty body", lambda: body(b""), True, ("empty",)),
    Case("blanks for a body", lambda: body(b" \n\n "), True, ("empty",)),
    Case("204", lambda: Reply(status=204), True, ("empty",)),
    Case("half of the JSON", lambda: body(GOOD[:60]), True, ("broken JSON", "cut", "{")),
    Case(
        "an error with 200",
        lambda: body({"error": {"message": "runner died", "type": "api_error"}}),
        True,
        ("an error instead of an answer", "runner died"),
    ),
    Case("an error text with 200", lambda: body({"error": "no GPU"}), True, ("no GPU",)),
    Case(
        "an error with 200 that will stay",
        lambda: body({"error": {"code": 402, "message": "no credits left"}}),
        False,
        ("no credits left",),
    ),
    Case(
        "HTML with 200",
        lambda: Reply(headers={"Content-Type": "text/html"}, body=HTML.encode()),
        False,
        ("not JSON (text/html)", "<!doctype html>", "is the base URL right?"),
    ),
    Case("a bare list", lambda: body("[1, 2]"), False, ("wrong shape", "array")),
    Case("a bare null", lambda: body("null"), False, ("wrong shape",)),
    Case(
        "choices of numbers", lambda: body('{"choices": [1]}'), False, ("wrong shape", "$.choices")
    ),
    Case(
        "a number beyond all",
        lambda: body('{"choices": [{"text": "4", "index": 1e999}]}'),
        False,
        ("wrong shape", "$.choices[0].index"),
    ),
    Case("content of a number", lambda: choice({"content": 4}), False, ("wrong shape",)),
    Case("NaN for a text", lambda: body('{"choices": [{"text": NaN}]}'), False, ("wrong shape",)),
    Case(
        "not UTF-8",
        lambda: body(b'{"choices": [{"message": {"content": "caf\xe9"}}]}'),
        False,
        ("not UTF-8",),
    ),
    Case("bytes", lambda: body(bytes(range(256)) * 10), False, ("not",)),
    Case(
        "100,000 levels",
        lambda: body(b'{"choices":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        False,
        ("answer",),
    ),
    Case(
        "100,000 levels in what nobody reads",
        lambda: body(b'{"x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}"),
        False,
        ("nested too deeply",),
    ),
    Case(
        "900 levels of error",
        lambda: body(b'{"error":' + b"[" * 900 + b"]" * 900 + b"}"),
        True,
        ("an error instead of an answer",),
    ),
]


@pytest.mark.parametrize("case", WHOLE, ids=str)
def test_an_answer_that_is_none_is_a_clear_fault(server: Loopback, case: Case) -> None:
    check(attempted(server, case.reply()), case)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(headers={"Content-Type": "text/html; charset=x"}, body=GOOD),
        Reply(headers={"Content-Type": ";;;\x01"}, body=GOOD),
        Reply(body=GOOD),
        body(GOOD, status=201),
        body(b"\xef\xbb\xbf" + GOOD),
        body(b"\n\n" + GOOD + b"\n"),
        body(GOOD[:-1] + b', "logprobs": NaN, "x": -Infinity}'),
        body(gzip.compress(GOOD), Content_Encoding="gzip"),
        body(zlib.compress(GOOD), Content_Encoding="deflate"),
        body(GOOD, Content_Encoding="Identity"),
        Reply(headers=JSON_TYPE, chunks=[GOOD[i : i + 1] for i in range(len(GOOD))]),
        Reply(raw=head() + GOOD),
        Reply(raw=b"HTTP/1.0 200 OK\r\n\r\n" + GOOD),
    ],
    ids=[
        "wrong content type",
        "a content type of garbage",
        "no content type",
        "201",
        "a byte order mark",
        "blanks around it",
        "NaN in what nobody reads",
        "gzip that was not asked for",
        "deflate that was not asked for",
        "identity, named",
        "byte by byte",
        "no length, ended by closing",
        "HTTP/1.0",
    ],
)
def test_a_good_answer_in_odd_clothes_is_taken(server: Loopback, reply: Reply) -> None:
    assert answer_of(attempted(server, reply)) == "good"


def test_half_characters_are_replaced_so_that_the_answer_can_be_kept(server: Loopback) -> None:
    data = b'{"model": "m\\udfff", "choices": [{"message": {"content": "a\\ud83db", '
    data += b'"reasoning": "\\ud800"}, "finish_reason": "\\udc00"}]}'
    attempt = attempted(server, body(data), keep_raw=True)
    assert answer_of(attempt) == "a\N{REPLACEMENT CHARACTER}b"
    assert attempt.outcome is not None
    repr(attempt).encode()
    json.dumps(attempt.outcome.raw, ensure_ascii=False).encode()


@pytest.mark.parametrize("count", ["NaN", "-1", "1" + "0" * 40, "-Infinity", "null"])
def test_a_count_that_cannot_be_is_unknown(server: Loopback, count: str) -> None:
    usage = ', "usage": {"prompt_tokens": N, "completion_tokens": N, "cost": N}}'.replace(
        "N", count
    )
    attempt = attempted(server, body(b'{"choices": [{"text": "4"}]' + usage.encode()))
    assert answer_of(attempt) == "4"
    usage_kept = attempt.spent.usage
    assert (usage_kept.input_tokens, usage_kept.output_tokens) == (None, None)
    assert usage_kept.cost_usd is None or usage_kept.cost_usd == float(count)


def test_a_raw_answer_too_deep_to_keep_is_kept_as_text(server: Loopback) -> None:
    deep = b', "x": ' + b"[" * 500 + b"]" * 500 + b"}"
    attempt = attempted(server, body(GOOD[:-1] + deep), keep_raw=True)
    assert answer_of(attempt) == "good"
    assert attempt.outcome is not None
    assert isinstance(attempt.outcome.raw, str)


def test_a_model_that_answers_under_another_name_is_recorded_under_it(server: Loopback) -> None:
    attempt = attempted(server, chat("4", model="another"))
    assert attempt.outcome is not None
    assert attempt.outcome.model == "another"


# --- too much of it


def megabytes(count: int) -> Iterator[bytes]:
    block = b" " * (1 << 20)
    for _ in range(count):
        yield block


BOMB = gzip.compress(bytes(LARGEST_BODY + (1 << 20)), compresslevel=1)
HUGE = [
    Case("a huge body", lambda: Reply(chunks=megabytes(80)), False, ("larger than 64 MiB",)),
    Case(
        "a huge body announced",
        lambda: Reply(raw=[head("Content-Length: 999999999999"), b"{"]),
        False,
        ("larger than 64 MiB",),
    ),
    Case(
        "a length beyond all numbers",
        lambda: Reply(raw=[head("Content-Length: " + "9" * 5000), b"{"]),
        False,
        ("HTTP",),
    ),
    Case(
        "a gzip bomb",
        lambda: body(BOMB, Content_Encoding="gzip"),
        False,
        ("larger than 64 MiB",),
    ),
    Case(
        "a gzip bomb in an error",
        lambda: body(BOMB, status=400, Content_Encoding="gzip"),
        False,
        ("larger than 64 MiB",),
    ),
    Case(
        "gzip that is none",
        lambda: body(GOOD, Content_Encoding="gzip"),
        False,
        ("not valid gzip",),
    ),
    Case(
        "half of the gzip",
        lambda: body(gzip.compress(GOOD)[:-20], Content_Encoding="gzip"),
        True,
        ("cut",),
    ),
    Case(
        "a packing nobody knows",
        lambda: body(GOOD, Content_Encoding="br"),
        False,
        ("'br'", "not asked for"),
    ),
    Case(
        "a header of 10 MB",
        lambda: Reply(raw=head("X-Big: " + "x" * 10_000_000) + GOOD),
        False,
        ("not valid HTTP",),
    ),
    Case(
        "a million headers",
        lambda: Reply(
            raw=chain([b"HTTP/1.1 200 OK\r\n"], dripping(b"X-More: 1\r\n" * 9999, every_s=0.001))
        ),
        False,
        ("not valid HTTP",),
    ),
]


@pytest.mark.parametrize("case", HUGE, ids=str)
def test_more_than_an_answer_may_have_is_not_taken(server: Loopback, case: Case) -> None:
    check(attempted(server, case.reply(), timeout_s=20.0), case)


# --- HTTP itself

BROKEN = [
    Case(
        "another protocol", lambda: Reply(raw=b"SSH-2.0-OpenSSH_9\r\n"), False, ("not valid HTTP",)
    ),
    Case("nothing but an end", lambda: Reply(raw=b""), True, ("connection was lost",)),
    Case("half of the headers", lambda: Reply(raw=b"HTTP/1.1 200 OK\r\nCont"), True, ("lost",)),
    Case(
        "less than its length",
        lambda: Reply(raw=head(f"Content-Length: {len(GOOD) + 10}") + GOOD),
        True,
        ("cut",),
    ),
    Case(
        "more than its length",
        lambda: Reply(raw=head(f"Content-Length: {len(GOOD) - 10}") + GOOD),
        False,
        ("not valid HTTP",),
    ),
    Case(
        "a negative length",
        lambda: Reply(raw=head("Content-Length: -5")),
        False,
        ("not valid HTTP",),
    ),
    Case(
        "a chunk without a size",
        lambda: Reply(raw=head("Transfer-Encoding: chunked") + b"zz\r\n"),
        False,
        ("not valid HTTP", "chunk size"),
    ),
    Case(
        "no last chunk",
        lambda: Reply(chunks=[GOOD], then_close=True),
        True,
        ("cut",),
    ),
    Case("a reset", lambda: Reply(raw=b"", then_reset=True), True, ("connection was lost",)),
    Case(
        "a reset in the body",
        lambda: Reply(raw=head("Content-Length: 9999") + GOOD, then_reset=True),
        True,
        ("cut", "reset by peer"),
    ),
    Case(
        "100 Continue for ever",
        lambda: Reply(raw=dripping(b"HTTP/1.1 100 Continue\r\n\r\n")),
        True,
        ("no whole answer within 1 s",),
    ),
]


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_broken_http_is_a_clear_fault(server: Loopback, case: Case) -> None:
    check(attempted(server, case.reply()), case)


# --- statuses

REFUSALS = [
    Case(
        "a wrong key",
        lambda: body({"error": {"message": "Incorrect API key"}}, status=401),
        False,
        ("HTTP 401", "Incorrect API key", "is the API key right?"),
    ),
    Case(
        "an unknown model",
        lambda: body({"error": {"message": "model 'm' not found"}}, status=404),
        False,
        ("HTTP 404", "model 'm' not found", "/v1"),
    ),
    Case(
        "a prompt too long",
        lambda: body({"error": {"message": "exceeds the context size (2048)"}}, status=400),
        False,
        ("HTTP 400", "context size"),
    ),
    Case(
        "a full queue",
        lambda: body({"error": "server busy, maximum pending requests exceeded"}, status=503),
        True,
        ("HTTP 503", "server busy"),
    ),
    Case(
        "429 without Retry-After",
        lambda: body("slow down", status=429),
        True,
        ("HTTP 429", "slow down"),
    ),
    Case(
        "an error page",
        lambda: Reply(status=502, headers={"Content-Type": "text/html"}, body=HTML.encode()),
        True,
        ("HTTP 502", "Please log in"),
    ),
    Case("an error of bytes", lambda: body(b"\xff\x1b[31m\x00", status=500), True, ("HTTP 500",)),
    Case("an error without a word", lambda: body(b"", status=500), True, ("HTTP 500", "Server")),
    Case("an error of 10 MB", lambda: body(b"x" * 10_000_000, status=400), False, ("HTTP 400",)),
]


@pytest.mark.parametrize("case", REFUSALS, ids=str)
def test_a_refusal_is_told_in_the_words_of_the_server(server: Loopback, case: Case) -> None:
    attempt = attempted(server, case.reply())
    check(attempt, case)
    assert attempt.fault is not None
    assert attempt.fault.message.isprintable()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_told_and_not_followed_and_the_key_stays(
    server: Loopback, status: int
) -> None:
    with Loopback() as elsewhere:
        place = f"{elsewhere.url}/chat/completions"

        async def main() -> Attempt:
            model = model_of(server.url, api_key="sk-secret", max_retries=3)
            server.answer = lambda _: Reply(status=status, headers={"Location": place})
            attempt = await attempt_on(model, "hello")
            await close_model(model)
            return attempt

        attempt = run(main())
        case = Case("", Reply, False, (f"HTTP {status}", repr(place), "not followed"))
        check(attempt, case)
        assert len(server.requests) == 1
        assert elsewhere.requests == []
    assert attempt.fault is not None
    assert "sk-secret" not in attempt.fault.message


# --- retries


def after(failures: list[Reply]) -> Answerer:
    """Answer with the failures first, one after another, and then well."""
    left = list(failures)
    return lambda asked: left.pop(0) if left else chat(asked.prompt)


def soon(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    "failure",
    [
        lambda: body("busy", status=500),
        lambda: body("busy", status=503),
        lambda: body("busy", status=429),
        lambda: body("busy", status=429, Retry_After="0"),
        lambda: body("busy", status=429, Retry_After="0.05"),
        lambda: body("busy", status=429, Retry_After_Ms="50"),
        lambda: body("busy", status=429, Retry_After=soon(0.5)),
        lambda: body("busy", status=429, Retry_After=soon(-3600)),
        lambda: body("busy", status=429, Retry_After="in a while"),
        lambda: body("busy", status=429, Retry_After="nan"),
        lambda: body(GOOD[:40]),
        lambda: body({"choices": []}),
        lambda: body({"error": "runner died"}),
        lambda: choice({"content": "4"}, None),
        lambda: Reply(raw=b"", then_reset=True),
        lambda: Reply(chunks=[GOOD], then_close=True),
    ],
)
def test_what_passes_is_tried_again_and_counted(
    server: Loopback, failure: Callable[[], Reply]
) -> None:
    hostile = after([failure(), failure()])
    attempt = attempted(server, hostile, max_retries=2, timeout_s=10.0)
    assert answer_of(attempt) == "first"
    assert attempt.spent.retries == 2
    assert attempt.spent.requests == 1


def test_retries_end(server: Loopback) -> None:
    attempt = attempted(server, body("busy", status=500), max_retries=3)
    check(attempt, Case("", Reply, True, ("HTTP 500", "busy", "(4 times)")))
    assert len(server.requests) == 4 + 1


@pytest.mark.parametrize(
    "wish", ["3600", "1e300", "inf", pytest.param(soon(10**7), id="next spring")]
)
def test_an_absurd_wish_to_wait_is_told_at_once(server: Loopback, wish: str) -> None:
    began = time.monotonic()
    hostile = body("busy", status=429, Retry_After=wish)
    attempt = attempted(server, hostile, max_retries=5, timeout_s=30.0)
    assert time.monotonic() - began < SLACK_S
    check(attempt, Case("", Reply, True, ("HTTP 429", "waiting", "deadline of 30 s", "timeout_s")))


def test_what_will_stay_is_not_tried_again(server: Loopback) -> None:
    attempted(server, body("no", status=400), max_retries=5)
    assert len(server.requests) == 1 + 1


# --- slow ones

SLOW = [
    Case("silence", lambda: Reply(raw=silence()), True, ()),
    Case(
        "a head that drips",
        lambda: Reply(raw=chain([b"HTTP/1.1 200 OK\r\nX-Slow: "], dripping(b"x"))),
        True,
        (),
    ),
    Case("a body that drips", lambda: Reply(chunks=dripping(b" ")), True, ()),
    Case("an error that drips", lambda: Reply(status=500, chunks=dripping(b"x")), True, ()),
    Case("a body that stops", lambda: Reply(chunks=chain([GOOD[:9]], silence())), True, ()),
]


@pytest.mark.parametrize("case", SLOW, ids=str)
def test_a_slow_answer_ends_with_its_deadline(server: Loopback, case: Case) -> None:
    attempt = attempted(server, case.reply())
    check(attempt, Case("", Reply, True, ("no whole answer within 1 s", "timeout_s")))
    assert attempt.elapsed_s >= DEADLINE_S * 0.9


@pytest.mark.parametrize("stream", [False, True])
def test_a_cancelled_request_lets_go_of_its_connection(server: Loopback, stream: bool) -> None:
    drip = f"data: {json.dumps(delta('x'))}\n\n".encode() if stream else b" "
    server.answer = lambda _: Reply(chunks=dripping(drip, every_s=0.02))

    async def main() -> None:
        model = model_of(server.url, stream=stream, timeout_s=60.0)
        request = asyncio.create_task(model.complete(QUESTION))
        await asyncio.sleep(0.3)
        assert server.in_flight == 1
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        for _ in range(100):
            if not server.in_flight:
                break
            await asyncio.sleep(0.02)
        assert server.in_flight == 0
        await close_model(model)

    run(main())


# --- streams

CUT = [
    Case("no events", sse, True, ("no finish_reason",)),
    Case("only [DONE]", lambda: sse(DONE), True, ("no finish_reason",)),
    Case("a clean end too early", lambda: sse(delta("a")), True, ("no finish_reason",)),
    Case("[DONE] too early", lambda: sse(delta("a"), DONE), True, ("no finish_reason",)),
    Case(
        "a cut",
        lambda: Reply(chunks=sse(delta("a"), delta("b")).chunks, then_close=True),
        True,
        ("cut",),
    ),
    Case(
        "a reset",
        lambda: Reply(chunks=sse(delta("a"), delta("b")).chunks, then_reset=True),
        True,
        ("cut", "reset by peer"),
    ),
    Case(
        "a cut in an event",
        lambda: sse(delta("a"), 'data: {"choices": [{"del'),
        True,
        ("broken JSON",),
    ),
    Case(
        "an error as the last line",
        lambda: sse(delta("a"), '{"error": "llama runner process has terminated"}\n'),
        True,
        ("llama runner process has terminated",),
    ),
    Case(
        "an error over many lines",
        lambda: Reply(body=json.dumps({"error": {"message": "died"}}, indent=2).encode()),
        True,
        ("died",),
    ),
    Case(
        "an error as an event",
        lambda: sse(delta("a"), {"error": {"message": "overloaded", "code": 503}}),
        True,
        ("the stream broke", "overloaded"),
    ),
    Case(
        "an error as an event that will stay",
        lambda: sse({"error": {"message": "too long", "type": "invalid_request_error"}}),
        False,
        ("the stream broke", "too long"),
    ),
    Case("finish_reason error", lambda: sse(delta("a", "error"), DONE), True, ("broke off",)),
    Case(
        "HTML",
        lambda: Reply(headers={"Content-Type": "text/html"}, body=HTML.encode()),
        False,
        ("not JSON", "<!doctype html>", "is the base URL right?"),
    ),
    Case("an empty body", lambda: body(b""), True, ("no finish_reason",)),
    Case("events of text", lambda: sse("data: hello\n\n"), False, ("not JSON", "hello")),
    Case(
        "events that are not UTF-8",
        lambda: Reply(chunks=[b'data: {"model": "\xff"}\n\n']),
        False,
        ("UTF-8",),
    ),
    Case("a refusal", lambda: body("slow down", status=429), True, ("HTTP 429", "slow down")),
    Case(
        "gzip cut in the middle",
        lambda: body(
            gzip.compress(b"data: " + json.dumps(delta("a", "stop")).encode() + b"\n\n")[:-9],
            Content_Encoding="gzip",
        ),
        True,
        ("cut",),
    ),
    Case(
        "a gzip bomb",
        lambda: body(BOMB, Content_Encoding="gzip"),
        False,
        ("larger than",),
    ),
    Case("an endless line", lambda: Reply(chunks=megabytes(80)), False, ("larger than",)),
    Case("a drip", lambda: sse_drip(delta("x")), True, ("no whole answer within",)),
    Case(
        "keep-alives for ever",
        lambda: Reply(chunks=dripping(b": ping\n\n")),
        True,
        ("no whole answer within",),
    ),
]


def sse_drip(event: dict[str, Any]) -> Reply:
    return Reply(chunks=dripping(f"data: {json.dumps(event)}\n\n".encode()))


@pytest.mark.parametrize("case", CUT, ids=str)
def test_half_a_stream_is_never_taken_for_an_answer(server: Loopback, case: Case) -> None:
    timeout_s = 1.0 if "within" in case.words[0] else 20.0
    check(attempted(server, case.reply(), stream=True, timeout_s=timeout_s), case)


def test_a_stream_without_usage_has_unknown_usage(server: Loopback) -> None:
    attempt = attempted(server, sse(delta("a", "stop"), DONE), stream=True)
    assert answer_of(attempt) == "a"
    assert attempt.spent.usage == UNKNOWN_USAGE


def test_a_gzipped_stream_is_unpacked(server: Loopback) -> None:
    data = gzip.compress(b"data: " + json.dumps(delta("a", "stop")).encode() + b"\n\n")
    reply = Reply(headers={"Content-Encoding": "gzip"}, chunks=[data[:20], data[20:]])
    assert answer_of(attempted(server, reply, stream=True)) == "a"


def test_a_stream_that_stays_open_after_its_end_is_left(server: Loopback) -> None:
    def chunks() -> Iterator[bytes]:
        yield f"data: {json.dumps(delta('a', 'stop'))}\n\n{DONE}".encode()
        yield from dripping(b": still here\n\n", every_s=1.0)

    attempt = attempted(server, Reply(chunks=chunks()), stream=True, timeout_s=20.0)
    assert answer_of(attempt) == "a"
    assert attempt.elapsed_s < 10  # it would go on to the timeout


def test_what_follows_the_end_is_nobodys_answer(server: Loopback) -> None:
    late = sse(delta("a", "stop"), DONE, delta("b"), "garbage\n")
    assert answer_of(attempted(server, late, stream=True)) == "a"


# --- connections


def test_nobody_there_is_a_fault_that_may_pass() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"

        async def main() -> Attempt:
            model = model_of(url, max_retries=2)
            attempt = await attempt_on(model, "hello")
            await close_model(model)
            return attempt

        attempt = run(main())
    check(
        attempt,
        Case(
            "",
            Reply,
            True,
            ("nothing answers at http://127.0.0.1", "connection refused", "(3 times)"),
        ),
    )


def test_a_host_that_does_not_pick_up_is_a_fault_that_may_pass() -> None:
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for caller in (first, second):  # they fill the queue, so that nobody else gets in
            caller.setblocking(False)
            caller.connect_ex(deaf.getsockname())

        async def main() -> None:
            client = HttpClient({}, connect_s=0.3)
            try:
                await client.post(f"http://127.0.0.1:{deaf.getsockname()[1]}/v1", b"{}")
            finally:
                await client.close()

        began = time.monotonic()
        with pytest.raises(RetryableError, match=r"cannot connect: .*timeout"):
            run(main())
        assert time.monotonic() - began < SLACK_S


def test_a_server_that_closes_between_requests_costs_nothing(server: Loopback) -> None:
    server.answer = lambda asked: Reply(
        headers=JSON_TYPE, body=chat(asked.prompt).body, then_close=True
    )

    async def main() -> list[Attempt]:
        model = model_of(server.url, max_retries=2)
        attempts = []
        for prompt in ["a", "b", "c"]:
            attempts.append(await attempt_on(model, prompt))
            await asyncio.sleep(0.05)
        await close_model(model)
        return attempts

    attempts = run(main())
    assert [answer_of(attempt) for attempt in attempts] == ["a", "b", "c"]
    assert [attempt.spent.retries for attempt in attempts] == [0, 0, 0]


def test_bytes_behind_an_answer_never_become_the_next_one(server: Loopback) -> None:
    evil = chat("evil").body
    forged = head(f"Content-Length: {len(evil)}") + evil

    def pieces() -> Iterator[bytes]:
        yield head(f"Content-Length: {len(GOOD)}") + GOOD + forged
        time.sleep(0.3)

    # `attempted` checks that the second question gets its own answer
    assert answer_of(attempted(server, Reply(raw=pieces()))) == "good"


def test_a_certificate_nobody_knows_is_told_as_one(tmp_path: Path) -> None:
    require("openssl", shutil.which("openssl"), "apt install openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-days",
        "2",
    ]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    certificate.write_text(key.read_text() + certificate.read_text())
    with Loopback(certificate=certificate) as server:

        async def main() -> Attempt:
            # a busy machine takes a second to read the certificates that it trusts
            model = model_of(server.url, max_retries=3, timeout_s=30)
            attempt = await attempt_on(model, "hello")
            await close_model(model)
            return attempt

        check(run(main()), Case("", Reply, False, ("certificate", "self", server.url)))
        assert server.requests == []


def test_https_to_a_server_without_it_is_a_clear_fault(server: Loopback) -> None:
    async def main() -> Attempt:
        model = model_of(server.url.replace("http:", "https:"))
        attempt = await attempt_on(model, "hello")
        await close_model(model)
        return attempt

    check(run(main()), Case("", Reply, True, ("cannot connect", "ssl")))


def test_one_hostile_answer_among_many_harms_no_other(server: Loopback) -> None:
    def mixed(asked: Asked) -> Reply:
        number = int(asked.prompt)
        if number % 10 == 0:
            return Reply(raw=b"SSH-2.0\r\n")
        if number % 10 == 1:
            return Reply(chunks=[GOOD[:20]], then_close=True)
        return chat(asked.prompt)

    server.answer = mixed

    async def main() -> list[Attempt]:
        model = model_of(server.url, timeout_s=20.0)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(attempt_on(model, str(i))) for i in range(60)]
        await close_model(model)
        return [attempt.result() for attempt in running]

    for number, attempt in enumerate(run(main())):
        if number % 10 < 2:
            assert attempt.status is Status.FAULTED
        else:
            assert answer_of(attempt) == str(number)


def test_half_a_character_in_a_prompt_is_told_before_anything_is_sent(server: Loopback) -> None:
    async def main() -> Attempt:
        model = model_of(server.url)
        attempt = await attempt_on(model, "half \ud83d")
        await close_model(model)
        return attempt

    check(run(main()), Case("", Reply, False, ("half a character",)))
    assert server.requests == []
