"""Endpoints that go down, refuse everything or were never there: what a run makes of it."""

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff.app import Run
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.events import Event, Notice, RunEnded
from bakeoff.core.outcome import Request
from bakeoff.core.stop import Stop
from bakeoff.core.task import Task
from bakeoff.stats.summary import Buckets
from support.cli import until
from support.loopback import Asked, Loopback, Reply, chat

TASKS = 24


def write_suite(folder: Path, count: int = TASKS) -> Path:
    tests = [{"id": f"t{n:03}", "prompt": f"say {n}"} for n in range(count)]
    path = folder / "suite.json"
    path.write_text(json.dumps({"tests": tests}))
    return path


def model(server: Loopback, name: str = "m", **settings: Any) -> ModelSpec:
    """A model whose requests have few tries: in an outage they would be spent in no time."""
    settings = {"max_retries": 2, "retry_delay_s": 0.05, **settings}
    return ModelSpec(
        provider="openai-compatible", name=name, base_url=server.url, settings=settings
    )


class Listening:
    """What a run told while it went."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.ended: RunEnded | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Notice):
            self.notices.append(event.text)
        if isinstance(event, RunEnded):
            self.ended = event


def run(folder: Path, *models: ModelSpec, **options: Any) -> tuple[Run, Listening]:
    listening = Listening()
    suite = options.pop("suite", None) or write_suite(folder)
    done = bakeoff.run(
        suite, models=models, output=folder / "runs", listener=listening, parallel=4, **options
    )
    return done, listening


def buckets(run: Run) -> Buckets:
    return run.summary().buckets


class DownFor:
    """Answers a few, then fails everything for a while; counts who came meanwhile."""

    def __init__(self, seconds: float, reply: Reply, *, after: int = 6) -> None:
        self._seconds = seconds
        self._reply = reply
        self._after = after
        self._lock = threading.Lock()
        self._since: float | None = None
        self.failed: list[float] = []

    def __call__(self, asked: Asked) -> Reply:
        with self._lock:
            now = time.monotonic()
            if self._since is None and asked.number >= self._after:
                self._since = now
            if self._since is not None and now - self._since < self._seconds:
                self.failed.append(now)
                return self._reply
        time.sleep(0.01)
        return chat("ok")


# --- down for a while


@pytest.mark.parametrize("status", [500, 503, 429])
def test_an_endpoint_that_is_down_for_a_while_faults_no_trial(tmp_path: Path, status: int) -> None:
    down = DownFor(1.2, Reply(status=status, body=b"down"))
    with Loopback(down) as server:
        done, _ = run(tmp_path, model(server))
    assert buckets(done).unchecked == TASKS
    # a few that were under way when it began, then one probe after the other
    assert 3 <= len(down.failed) <= 12


def test_while_an_endpoint_is_down_one_probe_at_a_time_goes_out(tmp_path: Path) -> None:
    down, probes, lock = DownFor(2.5, Reply(status=503)), [], threading.Lock()
    at_once, known_from = 0, 0.0

    def answer(asked: Asked) -> Reply:
        nonlocal at_once, known_from
        arrived = time.monotonic()
        with lock:
            at_once += 1
            known_from = known_from or arrived + 0.8  # the first failures are back long before
        reply = down(asked)
        if reply.status == 503 and arrived > known_from:
            probes.append(at_once)
        time.sleep(0.05)
        with lock:
            at_once -= 1
        return reply

    with Loopback(answer) as server:
        done, _ = run(tmp_path, model(server, max_retries=3))
    assert buckets(done).unchecked == TASKS
    assert set(probes) == {1}


def test_a_server_that_is_started_again_faults_no_trial(tmp_path: Path) -> None:
    def answer(_: Asked) -> Reply:
        time.sleep(0.02)
        reply = chat("ok")
        reply.headers["Connection"] = "close"  # or it would live on in its connections
        return reply

    def restart() -> None:
        until(lambda: len(first.requests) >= 6)
        first.__exit__()
        time.sleep(0.8)
        second.append(Loopback(answer, port=first.port).__enter__())

    first = Loopback(answer).__enter__()
    second: list[Loopback] = []
    restarting = threading.Thread(target=restart, daemon=True)
    restarting.start()
    done, _ = run(tmp_path, model(first))
    restarting.join(60)
    second[0].__exit__()
    assert buckets(done).unchecked == TASKS
    assert len(first.requests) + len(second[0].requests) >= TASKS
    assert len(second[0].requests) > 1


def test_a_long_outage_is_told_and_so_is_its_end(tmp_path: Path) -> None:
    down = DownFor(3.2, Reply(status=503, body=b"under maintenance"))
    with Loopback(down) as server:
        done, listening = run(tmp_path, model(server), give_up_after=60)
    where = server.url.removesuffix("/v1")
    assert buckets(done).unchecked == TASKS
    began, over = listening.notices
    assert began.startswith(f"{where} is down, and no trial faults for that")
    assert "--give-up-after" in began
    assert "under maintenance" in began
    assert over.startswith(f"{where} answers again after")


def test_one_question_that_an_endpoint_always_fails_is_that_trials_fault(tmp_path: Path) -> None:
    def answer(asked: Asked) -> Reply:
        return Reply(status=500) if asked.prompt == "say 3" else chat("ok")

    with Loopback(answer) as server:
        done, listening = run(tmp_path, model(server))
    assert buckets(done).infrastructure_fault == 1
    assert buckets(done).unchecked == TASKS - 1
    assert listening.notices == []


def test_a_model_without_quota_faults_while_another_at_its_endpoint_goes_on(
    tmp_path: Path,
) -> None:
    def answer(asked: Asked) -> Reply:
        time.sleep(0.01)
        if asked.body["model"] == "spent":
            return Reply(status=429, headers={"Retry-After": "86400"}, body=b"no quota")
        return chat("ok")

    with Loopback(answer) as server:
        suite = write_suite(tmp_path, 6)
        models = (model(server, "spent", timeout_s=1), model(server, "fine"))
        done, _ = run(tmp_path, *models, suite=suite, give_up_after=3)
    counts = buckets(done)
    assert counts.unchecked >= 1
    assert counts.unchecked + counts.infrastructure_fault + counts.not_run == 12


# --- given up


def test_an_endpoint_that_stays_down_ends_the_run_and_a_resume_runs_the_rest(
    tmp_path: Path,
) -> None:
    down = DownFor(1e9, Reply(status=503, body=b"closed"))
    with Loopback(down) as server:
        done, listening = run(tmp_path, model(server), give_up_after=1)
        counts = buckets(done)
        assert (counts.unchecked, counts.not_run) == (6, TASKS - 6)
        assert listening.ended is not None
        assert listening.ended.stopped_early
        (why,) = listening.ended.given_up
        assert "no answer for" in why
        assert "closed" in why
        server.answer = lambda _: chat("ok")
        again = bakeoff.run(resume=str(done.folder))
    assert buckets(again).unchecked == TASKS


def test_a_retry_after_of_a_day_ends_the_run_at_once_and_faults_no_trial(tmp_path: Path) -> None:
    reply = Reply(status=429, headers={"Retry-After": "86400"}, body=b"quota of the day")
    with Loopback(lambda _: reply) as server:
        began = time.monotonic()
        done, listening = run(tmp_path, model(server))
        assert time.monotonic() - began < 10
    assert buckets(done).not_run == TASKS
    assert listening.ended is not None
    (why,) = listening.ended.given_up
    assert "left alone for 24 h (Retry-After)" in why
    assert "quota of the day" in why


def test_the_run_file_says_how_long_to_wait(tmp_path: Path) -> None:
    with Loopback(lambda _: Reply(status=503)) as server:
        (tmp_path / "run.toml").write_text(
            f'models = [{{model = "m", base_url = "{server.url}"}}]\n'
            'tasks = [{id = "a", prompt = "2+2"}, {id = "b", prompt = "1+3"}]\n'
            "give_up_after_s = 0.5\n"
        )
        done = bakeoff.run(tmp_path / "run.toml", output=tmp_path / "runs")
    assert buckets(done).not_run == 2
    assert done.manifest.patience.give_up_after_s == 0.5  # a resume without the file keeps it


def test_a_time_limit_does_not_run_while_the_endpoint_is_down(tmp_path: Path) -> None:
    down = DownFor(1.5, Reply(status=503))
    with Loopback(down) as server:
        done, _ = run(tmp_path, model(server), overrides={"limits.time_s": "0.8"})
    assert buckets(done).unchecked == TASKS


# --- no use from the start


def equal_refusals() -> list[Callable[[Asked], Reply]]:
    def wrong_key(asked: Asked) -> Reply:
        body = {"error": {"message": "wrong key"}, "request_id": f"req_{asked.number:08}"}
        return Reply(status=401, body=json.dumps(body).encode())

    return [wrong_key, lambda _: Reply(status=404, body=b"no such model")]


@pytest.mark.parametrize("answer", equal_refusals())
def test_an_endpoint_that_refuses_everything_alike_ends_the_run_after_a_few(
    tmp_path: Path, answer: Callable[[Asked], Reply]
) -> None:
    suite = write_suite(tmp_path, 200)
    with Loopback(answer) as server:
        done, listening = run(tmp_path, model(server), suite=suite)
        counts = buckets(done)
        # ten while an earlier one may still succeed, and the three that are under way by then
        assert 5 <= counts.model_error <= 10 + 4 - 1
        assert counts.model_error + counts.not_run == 200
        assert listening.ended is not None
        (why,) = listening.ended.given_up
        assert "failed alike and none has succeeded" in why
        server.answer = lambda _: chat("ok")  # the key is right now
        again = bakeoff.run(resume=str(done.folder))
    assert buckets(again).unchecked == 200


def test_a_dead_server_ends_the_run_with_one_message_and_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    spec = ModelSpec(provider="openai-compatible", name="m", base_url=url)
    done, listening = run(tmp_path, spec, give_up_after=1)
    assert buckets(done).not_run == TASKS
    assert listening.ended is not None
    (why,) = listening.ended.given_up
    assert "connection refused" in why


def test_with_keep_going_every_trial_is_tried(tmp_path: Path) -> None:
    with Loopback(lambda _: Reply(status=401, body=b"wrong key")) as server:
        done, listening = run(tmp_path, model(server), keep_going=True)
    assert buckets(done).model_error == TASKS
    assert listening.ended is not None
    assert not listening.ended.given_up


def test_an_endpoint_where_something_succeeded_is_not_given_up(tmp_path: Path) -> None:
    def answer(asked: Asked) -> Reply:
        return chat("ok") if asked.prompt == "say 0" else Reply(status=400, body=b"bad question")

    with Loopback(answer) as server:
        done, _ = run(tmp_path, model(server), rollouts=2)
    assert (buckets(done).unchecked, buckets(done).model_error) == (2, 2 * (TASKS - 1))


def test_faults_that_differ_do_not_end_a_run(tmp_path: Path) -> None:
    def answer(asked: Asked) -> Reply:
        return Reply(status=400, body=f"cannot do {'x' * asked.number}".encode())

    with Loopback(answer) as server:
        done, _ = run(tmp_path, model(server))
    assert buckets(done).model_error == TASKS


def test_candidates_at_other_endpoints_go_on(tmp_path: Path) -> None:
    with Loopback(lambda _: Reply(status=401)) as wrong, Loopback(lambda _: chat("ok")) as right:
        models = (model(wrong, "without-a-key"), model(right, "with-one"))
        done, listening = run(tmp_path, *models)
    with_key, without = (
        next(c.total.buckets for c in done.summary().candidates if c.candidate == name)
        for name in ("with-one", "without-a-key")
    )
    assert with_key.unchecked == TASKS
    assert without.model_error + without.not_run == TASKS
    assert without.not_run > 0
    assert any(notice.startswith("given up, the others go on: ") for notice in listening.notices)


def test_a_judge_whose_endpoint_is_given_up_ends_the_run_before_more_is_paid(
    tmp_path: Path,
) -> None:
    with Loopback(lambda _: Reply(status=401)) as judge, Loopback() as candidate:
        (tmp_path / "run.toml").write_text(
            f'models = [{{model = "m", base_url = "{candidate.url}"}}]\n'
            f'roles.judge = {{model = "j", base_url = "{judge.url}"}}\n'
            "parallel = 2\n"
            'scorers = [{scorer = "judge", settings = {rubric = "is it good?"}}]\n'
            "tasks = [\n"
            + "".join(f'{{id = "t{n}", prompt = "say {n}"}},\n' for n in range(60))
            + "]\n"
        )
        done = bakeoff.run(tmp_path / "run.toml", output=tmp_path / "runs")
        assert len(candidate.requests) < 12
    assert buckets(done).not_run > 45


# --- stopped


def test_a_stop_from_another_thread_lets_go_of_all_that_waits(tmp_path: Path) -> None:
    """As `TestRunner.cancel_execution` and every front door ask for it."""
    stop = Stop()

    def answer(asked: Asked) -> Reply:
        if asked.number == 2:
            threading.Thread(target=stop.request, daemon=True).start()
        return chat("ok")

    with Loopback(answer) as server:
        began = time.monotonic()
        done, listening = run(tmp_path, model(server, rpm=60), stop=stop)
        assert time.monotonic() - began < 4  # two seconds for the first three
    assert len(server.requests) == 3
    assert (buckets(done).unchecked, buckets(done).not_run) == (3, TASKS - 3)
    assert listening.ended is not None
    assert not listening.ended.given_up


def test_a_trial_that_has_had_an_answer_is_finished_after_a_stop(tmp_path: Path) -> None:
    stop = Stop()

    async def twice(task: Task, model: Any) -> str:
        first = await model.complete(Request(messages=task.messages))
        stop.request()
        second = await model.complete(Request(messages=task.messages))
        return f"{first.text} {second.text}"

    with Loopback(lambda _: chat("ok")) as server:
        done, _ = run(tmp_path, model(server, rpm=600), agents=[twice], stop=stop)
    assert {r.attempt.outcome.answer for r in done.trials() if r.attempt.outcome} == {"ok ok"}
    assert buckets(done).not_run == TASKS - buckets(done).unchecked > 0


def test_a_retry_that_is_waited_for_is_not_sent_after_a_stop(tmp_path: Path) -> None:
    stop = Stop()

    def answer(_: Asked) -> Reply:
        threading.Timer(0.2, stop.request).start()
        return Reply(status=500)

    suite = write_suite(tmp_path, 1)
    with Loopback(answer) as server:
        began = time.monotonic()
        done, _ = run(tmp_path, model(server, retry_delay_s=30), suite=suite, stop=stop)
        assert time.monotonic() - began < 10
    assert len(server.requests) == 1
    assert buckets(done).not_run == 1
