"""Recording, replay and cache, between a model and whoever asks it."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from bakeoff._lib.redact import Redactor
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import LimitReached, ProviderError, UsageError
from bakeoff.core.outcome import Completion, Request, Tool, Usage
from bakeoff.core.ports import Model
from bakeoff.core.stop import Stop
from bakeoff.core.task import Message, ToolCall
from bakeoff.models.adapters.function import FunctionModel
from bakeoff.models.recording.recorder import Recorder, Requester
from bakeoff.models.recording.replay import (
    Cache,
    Recording,
    RecordingFolders,
    RecordingModes,
    open_recording_modes,
)

SPEC = ModelSpec(provider="openai-compatible", name="m", base_url="http://127.0.0.1:1/v1")
ASKER = Requester(model=SPEC, trial="t@m#0", rollout=0)
SECRET = "sk-secret-0123456789"


def ask(*texts: str, **rest: Any) -> Request:
    return Request(messages=tuple(Message(role="user", content=t) for t in texts), **rest)


def numbered() -> Callable[[Request], str]:
    """A model that never says the same twice."""
    numbers = count()
    return lambda request: f"{next(numbers)}: {request.messages[-1].content}"


def completed(
    tapes: RecordingModes,
    asked: list[tuple[Requester, Request]],
    answer: Callable[[Request], object],
) -> list[Completion]:
    """Let each asker ask in turn, through one seat of its own."""
    seats: dict[tuple[object, object], Model] = {}

    async def main() -> list[Completion]:
        model = FunctionModel(answer)
        done = []
        for asker, request in asked:
            seat = seats.setdefault((asker.trial, asker.role), tapes.model(model, asker))
            done.append(await seat.complete(request))
        return done

    return asyncio.run(main())


def recorded(
    folder: Path, asked: list[tuple[Requester, Request]], answer: Callable[[Request], object]
) -> list[Completion]:
    with closing(RecordingModes(recorder=Recorder(folder, Redactor([SECRET])))) as tapes:
        return completed(tapes, asked, answer)


def replayed(folder: Path, asked: list[tuple[Requester, Request]]) -> list[Completion]:
    def nobody(_: Request) -> str:
        raise AssertionError("a replay asks nobody")

    with closing(RecordingModes(recording=Recording(folder, Redactor()))) as tapes:
        return completed(tapes, asked, nobody)


def diverged(folder: Path, asker: Requester, request: Request) -> str:
    with pytest.raises(ProviderError, match=r"^replay: diverged: ") as caught:
        replayed(folder, [(asker, request)])
    assert not caught.value.transient
    assert not caught.value.billable
    return str(caught.value)


# --- what is kept comes back


def test_an_answer_comes_back_as_it_was(tmp_path: Path) -> None:
    whole = Completion(
        text="text \u2028 größer",
        reasoning="because",
        tool_calls=(ToolCall(id="1", name="f", arguments='{"a": 1}'),),
        stop_reason="stop",
        model="real-name",
        usage=Usage(input_tokens=0, output_tokens=None, reasoning_tokens=3, cost_usd=0.1),
        elapsed_s=0.1 + 0.2,
        first_token_s=1 / 3,
        load_s=0.0,
        retries=2,
        flags=("truncated",),
        raw={"any": ["thing", None, 1.5]},
    )
    bare = Completion(text="", elapsed_s=0.25)
    odd = Completion(text="x", elapsed_s=0.25, raw={"not": float("inf")})
    answers = iter([whole, bare, odd])
    asked = [(ASKER, ask(text)) for text in "abc"]
    assert recorded(tmp_path, asked, lambda _: next(answers)) == [whole, bare, odd]
    assert replayed(tmp_path, asked) == [whole, bare, odd]


def test_the_same_question_twice_gets_both_answers_in_order(tmp_path: Path) -> None:
    asked = [(ASKER, ask("again")), (ASKER, ask("again")), (ASKER, ask("other"))]
    recorded(tmp_path, asked, numbered())
    assert [c.text for c in replayed(tmp_path, asked)] == ["0: again", "1: again", "2: other"]
    assert "it asked the same question more often than was recorded" in _third(tmp_path)


def _third(folder: Path) -> str:
    with pytest.raises(ProviderError) as caught:
        replayed(folder, [(ASKER, ask("again"))] * 3)
    return str(caught.value)


def test_who_asks_the_same_gets_its_own_answer_in_any_order(tmp_path: Path) -> None:
    askers = [
        ASKER,
        replace(ASKER, trial="u@m#0"),
        replace(ASKER, role="judge"),
        replace(ASKER, trial="t@m#1", rollout=1),
        replace(ASKER, trial="t@n#0", model=replace(SPEC, base_url="http://127.0.0.1:2/v1")),
    ]
    asked = [(asker, ask("same")) for asker in askers]
    texts = [c.text for c in recorded(tmp_path, asked, numbered())]
    assert [c.text for c in replayed(tmp_path, asked[::-1])] == texts[::-1]


def test_neither_server_nor_key_nor_retries_are_part_of_the_question(tmp_path: Path) -> None:
    recorded(tmp_path, [(ASKER, ask("a"))], numbered())
    moved = replace(
        SPEC,
        base_url="https://elsewhere/v1",
        api_key="${OTHER}",
        headers={"X": "y"},
        settings={"timeout_s": 3, "stream": True},
        label="renamed",
    )
    asker = Requester(model=moved, trial="renamed@other#0", rollout=0)
    assert [c.text for c in replayed(tmp_path, [(asker, ask("a"))])] == ["0: a"]


def test_a_parameter_counts_wherever_it_was_set(tmp_path: Path) -> None:
    recorded(tmp_path, [(ASKER, ask("a", parameters={"temperature": 0.5}))], numbered())
    hot = replace(ASKER, model=replace(SPEC, parameters={"temperature": 0.5}))
    asked = [(hot, ask("a")), (replace(hot, trial="u"), ask("a", parameters={"temperature": 1}))]
    assert [c.text for c in replayed(tmp_path, asked)] == ["0: a", "0: a"]


def test_the_newest_session_counts_and_the_others_fill_in(tmp_path: Path) -> None:
    recorded(tmp_path, [(ASKER, ask("a")), (ASKER, ask("b"))], lambda _: "old")
    recorded(tmp_path, [(ASKER, ask("b")), (ASKER, ask("c"))], lambda _: "new")
    asked = [(ASKER, ask(text)) for text in "abc"]
    assert [c.text for c in replayed(tmp_path, asked)] == ["old", "new", "new"]
    assert len([*tmp_path.glob("*.jsonl")]) == 2


def test_a_session_without_a_word_leaves_no_file(tmp_path: Path) -> None:
    recorded(tmp_path / "new" / "folder", [], numbered())
    assert [*(tmp_path / "new" / "folder").iterdir()] == []
    with pytest.raises(UsageError, match=r"no recording in .*; make one with --record"):
        Recording(tmp_path / "new" / "folder", Redactor())


# --- faults and cuts


@pytest.mark.parametrize("transient", [True, False])
@pytest.mark.parametrize("billable", [True, False])
def test_a_fault_is_replayed_as_that_fault(
    tmp_path: Path, *, transient: bool, billable: bool
) -> None:
    def refuse(_: Request) -> str:
        raise ProviderError("HTTP 400: no", transient=transient, billable=billable)

    with pytest.raises(ProviderError):
        recorded(tmp_path, [(ASKER, ask("a"))], refuse)
    with pytest.raises(ProviderError) as caught:
        replayed(tmp_path, [(ASKER, ask("a"))])
    said = str(caught.value), caught.value.transient, caught.value.billable
    assert said == ("HTTP 400: no", transient, billable)


def test_a_crash_of_somebodys_own_model_is_replayed_as_the_fault_it_became(tmp_path: Path) -> None:
    def crash(_: Request) -> str:
        raise ZeroDivisionError("by zero")

    for _ in range(2):
        with pytest.raises(ProviderError, match="model: ZeroDivisionError: by zero"):
            recorded(tmp_path, [(ASKER, ask("a"))], crash)
    with pytest.raises(ProviderError, match="model: ZeroDivisionError: by zero"):
        replayed(tmp_path, [(ASKER, ask("a"))])


async def _hang(request: Request) -> str:
    if request.on_retry and request.on_lost:
        await request.on_lost()
        request.on_retry("HTTP 503")
    await asyncio.sleep(60)
    return ""


def _noting(heard: list[str]) -> Callable[[], Awaitable[None]]:
    async def on_lost() -> None:
        heard.append("lost")

    return on_lost


def _cut(folder: Path, stop: Stop) -> None:
    async def main(tapes: RecordingModes) -> None:
        heard: list[str] = []
        request = ask("a", on_retry=heard.append, on_lost=_noting(heard))
        async with asyncio.timeout(0.05):
            await tapes.model(FunctionModel(_hang), ASKER).complete(request)

    tapes = open_recording_modes(RecordingFolders(record=folder), Redactor(), stop)
    with closing(tapes), pytest.raises(TimeoutError):
        asyncio.run(main(tapes))


def test_a_request_that_a_limit_cut_is_a_limit_again_without_the_wait(tmp_path: Path) -> None:
    _cut(tmp_path, Stop())
    heard: list[str] = []
    request = ask("a", on_retry=heard.append, on_lost=_noting(heard))
    with pytest.raises(LimitReached, match=r"as recorded, the request was cut after 0\.\d s"):
        replayed(tmp_path, [(ASKER, request)])
    assert heard == ["lost", "HTTP 503"]


def test_a_request_that_the_end_of_the_run_cut_is_not_kept(tmp_path: Path) -> None:
    stop = Stop()
    stop.request()
    _cut(tmp_path, stop)
    assert [*tmp_path.iterdir()] == []


# --- files that are not as they should be


def test_a_torn_last_line_costs_only_itself_and_is_told(tmp_path: Path) -> None:
    asked = [(ASKER, ask(text)) for text in "abc"]
    recorded(tmp_path, asked, numbered())
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    with closing(Recording(tmp_path, Redactor())) as recording:
        assert "were left out: 1" in recording.words()[0]
    assert [c.text for c in replayed(tmp_path, asked[:2])] == ["0: a", "1: b"]
    assert "diverged" in diverged(tmp_path, ASKER, ask("c"))
    recorded(tmp_path, asked[2:], lambda _: "anew")
    assert [c.text for c in replayed(tmp_path, asked)] == ["0: a", "1: b", "anew"]


def test_a_full_disk_costs_the_recording_and_not_the_answer(tmp_path: Path) -> None:
    with closing(Recorder(tmp_path, Redactor())) as recorder:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, recorder._file)
        os.close(full)
        answers = completed(
            RecordingModes(recorder=recorder), [(ASKER, ask("a"))], lambda _: "paid for"
        )
        assert [c.text for c in answers] == ["paid for"]
        assert recorder.words() == [
            "exchanges that could not be recorded (No space left on device): 1"
        ]


def test_no_secret_is_kept_and_its_place_does_not_diverge(tmp_path: Path) -> None:
    echo = f"your key is {SECRET}"
    asked = [(ASKER, ask("a")), (ASKER, ask("a", echo))]
    recorded(tmp_path, asked, lambda _: echo)
    assert SECRET.encode() not in b"".join(p.read_bytes() for p in tmp_path.iterdir())
    masked = "your key is [redacted]"
    answers = replayed(tmp_path, [(ASKER, ask("a")), (ASKER, ask("a", masked))])
    assert [c.text for c in answers] == [masked, masked]


# --- where a request diverged


@pytest.mark.parametrize(
    ("asker", "request_", "said"),
    [
        (
            ASKER,
            ask("hello world", "more", parameters={"temperature": 0.7}),
            "the nearest recorded request (t@m#0) differs in parameters.temperature "
            "(recorded nothing, asked 0.7)",
        ),
        (
            ASKER,
            ask("hello world", "moss"),
            "differs in message 2 from character 3 (recorded 'more', asked 'moss')",
        ),
        (ASKER, ask("hello world", "more", "even more"), "differs in message 3 (asked only)"),
        (ASKER, ask("hello world"), "differs in message 2 (recorded only)"),
        (
            ASKER,
            ask("hello world", "more", schema={"type": "object"}, api_type="completions"),
            "asked 'completions'), schema.type (recorded nothing, asked 'object')",
        ),
        (
            ASKER,
            ask("hello world", "more", tools=(Tool(name="f", description=""),)),
            "differs in tools (recorded nothing, asked [{'name': 'f', 'description': ''}])",
        ),
        (
            replace(ASKER, rollout=1, trial="t@m#1"),
            ask("hello world", "more", rollout=1),
            "differs in rollout (recorded 0, asked 1), sample (recorded 0, asked 1)",
        ),
        (
            replace(ASKER, model=replace(SPEC, name="unknown"), trial="t@unknown#0", role="judge"),
            ask("hello world", "more"),
            "no recorded answer of openai-compatible/unknown for the role 'judge'; no request to",
        ),
    ],
)
def test_a_divergence_says_where(
    tmp_path: Path, asker: Requester, request_: Request, said: str
) -> None:
    asked = [(ASKER, ask("something else")), (ASKER, ask("hello world", "more"))]
    recorded(tmp_path, asked, numbered())
    assert said in diverged(tmp_path, asker, request_)


def test_divergences_are_counted(tmp_path: Path) -> None:
    recorded(tmp_path, [(ASKER, ask("a"))], numbered())
    with closing(RecordingModes(recording=Recording(tmp_path, Redactor()))) as tapes:
        for text in "bc":
            with pytest.raises(ProviderError):
                completed(tapes, [(ASKER, ask(text))], numbered())
        assert tapes.words() == [
            f"replay: requests that diverged from {tmp_path}, and are faults: 2"
        ]


@pytest.mark.parametrize("other", ["record", "cache"])
def test_a_replay_stands_alone(tmp_path: Path, other: str) -> None:
    folders = RecordingFolders(replay=tmp_path, **{other: tmp_path / "other"})
    with pytest.raises(UsageError, match="a replay asks no model"):
        open_recording_modes(folders, Redactor(), Stop())
    assert [*tmp_path.iterdir()] == []


# --- the cache


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[RecordingModes]:
    with closing(RecordingModes(cache=Cache(tmp_path / "cache", Redactor([SECRET])))) as tapes:
        yield tapes


def test_a_cached_answer_is_marked_and_else_as_it_was(cache: RecordingModes) -> None:
    usage = Usage(output_tokens=3, cost_usd=0.1)
    first = Completion(text="a", elapsed_s=1.5, flags=("truncated",), usage=usage)
    answers = iter([first])
    twice = [(ASKER, ask("a")), (replace(ASKER, trial="another"), ask("a"))]
    fresh, kept = completed(cache, twice, lambda _: next(answers))
    assert fresh == first
    assert kept == replace(first, flags=("truncated", "cached"))
    assert cache.words()[0].startswith("cache: 1 of 2 answers came from ")


@pytest.mark.parametrize(
    ("asker", "request_"),
    [
        (replace(ASKER, rollout=1), ask("a")),
        (ASKER, ask("a", rollout=1)),
        (ASKER, ask("b")),
        (ASKER, ask("a", parameters={"seed": 1})),
        (replace(ASKER, model=replace(SPEC, base_url="http://127.0.0.1:2/v1")), ask("a")),
        (replace(ASKER, model=replace(SPEC, name="n")), ask("a")),
        (replace(ASKER, model=replace(SPEC, settings={"api_type": "completions"})), ask("a")),
    ],
)
def test_another_request_rollout_or_server_is_asked(
    cache: RecordingModes, asker: Requester, request_: Request
) -> None:
    model = numbered()
    completed(cache, [(ASKER, ask("a"))], model)
    (answer,) = completed(cache, [(asker, request_)], model)
    assert answer.text.startswith("1: ")
    assert answer.flags == ()


def test_a_fault_is_never_cached_and_a_secret_never_kept(
    cache: RecordingModes, tmp_path: Path
) -> None:
    def refuse(_: Request) -> str:
        raise ProviderError("no")

    with pytest.raises(ProviderError):
        completed(cache, [(ASKER, ask("a"))], refuse)
    (answer,) = completed(cache, [(ASKER, ask("a"))], lambda _: f"key {SECRET}")
    assert answer.text == f"key {SECRET}"
    (answer,) = completed(cache, [(ASKER, ask("a"))], refuse)
    assert answer.text == "key [redacted]"
    assert all(SECRET.encode() not in p.read_bytes() for p in (tmp_path / "cache").iterdir())


_WRITER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from bakeoff._lib.redact import Redactor
from bakeoff.models.recording.replay import Cache
from bakeoff.models.recording.replay import RecordingModes
from component.test_replay import ASKER, ask, completed

cache = Cache(Path(sys.argv[1]), Redactor())
asked = [(ASKER, ask(str(number))) for number in range(200)]
completed(RecordingModes(cache=cache), asked, lambda request: "answer " + request.messages[-1].content)
assert len(cache.words()) == 1, cache.words()
cache.close()
"""


def test_several_processes_share_one_cache(tmp_path: Path) -> None:
    script = _WRITER.format(tests=str(Path(__file__).parents[1]))
    command = [sys.executable, "-c", script, str(tmp_path / "cache")]
    with ThreadPoolExecutor(4) as pool:
        ended = pool.map(
            lambda _: subprocess.run(
                command, check=False, stderr=subprocess.PIPE, text=True, timeout=60
            ),
            range(4),
        )
    assert [(writer.returncode, writer.stderr) for writer in ended] == [(0, "")] * 4
    with closing(Cache(tmp_path / "cache", Redactor())) as cache:
        asked = [(ASKER, ask(str(number))) for number in range(200)]
        answers = completed(RecordingModes(cache=cache), asked, lambda _: "nobody")
    assert [c.text for c in answers] == [f"answer {number}" for number in range(200)]


def test_those_who_open_a_new_cache_in_the_same_instant_all_get_it(tmp_path: Path) -> None:
    for number in range(50):
        together = Barrier(8)

        def opened(_: int, folder: Path = tmp_path / str(number), at: Barrier = together) -> bool:
            at.wait(60)
            with closing(Cache(folder, Redactor())) as cache:
                return asyncio.run(cache.get("nothing")) is None

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(opened, range(8)))


def test_a_file_that_is_no_cache_is_an_error_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "answers.sqlite").write_text(json.dumps(["not a database"] * 100))
    with pytest.raises(UsageError, match="cannot be used as a cache: file is not a database"):
        Cache(tmp_path, Redactor())
