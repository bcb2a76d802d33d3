"""Record once, replay with the server stopped; cached answers; keys from a `.env` file."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from support.cli import Ended, bakeoff, only_run, summary
from support.loopback import Asked, Loopback, Reply, chat, delta, dripping, sse

KEY = "sk-live-0123456789abcdef"
RUN_FILE = """
name = "taped"
rollouts = 2
[[tasks]]
id = "streamed"
category = "a"
prompt = "stream: say four"
expected = "four"
[[tasks]]
id = "twin"
category = "a"
prompt = "stream: say four"
expected = "no such thing"
[[tasks]]
id = "judged"
category = "b"
prompt = "write a line"
scorers = [{ scorer = "judge", settings = { rubric = "Is it a line?" } }]
[[tasks]]
id = "refused"
category = "b"
prompt = "refuse this"
expected = "anything"
[[tasks]]
id = "slow"
category = "c"
prompt = "hang"
expected = "anything"
time_s = 0.3
[[tasks]]
id = "flaky"
category = "c"
prompt = "break once"
expected = "whole"
[[models]]
model = "openai-compatible/m"
base_url = "${BAKEOFF_URL}"
api_key = "${BAKEOFF_TEST_KEY}"
settings = { stream = true, max_retries = 0 }
[roles.judge]
model = "openai-compatible/j"
base_url = "${BAKEOFF_URL}"
api_key = "${BAKEOFF_TEST_KEY}"
settings = { max_retries = 0 }
"""

Cli = Callable[..., Ended]


def _call(
    folder: Path, *words: str | Path, code: int = 0, env: dict[str, str] | None = None
) -> Ended:
    ended = bakeoff(*words, cwd=folder, env=env)
    assert ended.code == code, ended
    assert "Traceback" not in ended.err, ended.err
    assert KEY not in ended.out + ended.err
    return ended


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return partial(_call, tmp_path)


class Moody:
    """Answers each question in its own way, and no two alike."""

    def __init__(self) -> None:
        self.broken = False

    def __call__(self, asked: Asked) -> Reply:
        if asked.body["model"] == "j":
            return chat(json.dumps({"reasoning": "so so", "score": 3 + asked.number % 5}))
        match asked.prompt:
            case "refuse this":
                said = f"no: {asked.headers['Authorization']}"
                return Reply(status=400, body=said.encode())
            case "hang":
                return replace(sse(), chunks=dripping(b": wait\n\n", every_s=0.1, lasting_s=1.5))
            case "break once" if not self.broken:
                self.broken = True
                return Reply(status=503, body=b"later")
            case "break once":
                return sse(delta("whole", "stop"), "data: [DONE]\n\n")
            case _:
                text = "four" if asked.number % 2 else "five"
                usage = {"usage": {"prompt_tokens": 3, "completion_tokens": asked.number}}
                return sse(delta(text, "stop") | usage, "data: [DONE]\n\n")


def _said(output: Path, folder: Path) -> str:
    """The summary to the byte, without what must differ: its name, the bill, how long it took."""
    run = only_run(output)
    found = summary(run, folder=folder)
    assert found.pop("run") == run.name
    found.pop("billed", None)
    assert found["pace"].pop("seconds") > 0
    return json.dumps(found)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recorded run in `one`; its server is stopped."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "bakeoff.toml").write_text(RUN_FILE)
    with Loopback(Moody()) as server:
        env = {"BAKEOFF_URL": server.url, "BAKEOFF_TEST_KEY": KEY}
        words = ("--record", "tape", "--output", "one", "--parallel", "8")
        _call(folder, "run", "bakeoff.toml", *words, code=3, env=env)
        assert len(server.requests) == 6 * 2 + 2 + 1  # two verdicts, and one attempt more
    return folder


@pytest.fixture
def taped(recorded: Path, tmp_path: Path) -> Path:
    """The run file of a recorded run, everything beside it."""
    shutil.copytree(recorded, tmp_path, dirs_exist_ok=True)
    return tmp_path / "bakeoff.toml"


def test_a_replay_without_the_server_gives_the_same_summary(
    cli: Cli, taped: Path, tmp_path: Path
) -> None:
    # no URL and no key is set here, and nothing listens anywhere
    ended = cli("run", taped, "--replay", "tape", "--output", "two", "--parallel", "8", code=3)
    assert "diverged" not in ended.err
    before, after = (_said(tmp_path / output, tmp_path) for output in ("one", "two"))
    assert before == after
    buckets = json.loads(after)["buckets"]
    assert (buckets["scored"], buckets["limited"], buckets["model_error"]) == (8, 2, 2)
    shown = cli("show", "latest", "refused", "--output", "two").out
    assert "HTTP 400 from 127.0.0.1: no: Bearer [redacted]" in shown


def test_trials_at_once_get_their_own_answers(cli: Cli, taped: Path, tmp_path: Path) -> None:
    cli("run", taped, "--replay", "tape", "--output", "two", "--parallel", "8", code=3)
    found = []
    for output in ("one", "two"):
        groups = json.loads(_said(tmp_path / output, tmp_path))["candidates"][0]["categories"]
        found.append([(g["buckets"], g["score"], g["tokens"]["output"]) for g in groups])
    assert found[0] == found[1]


def test_no_key_is_in_a_recording(taped: Path, tmp_path: Path) -> None:
    (tape,) = (tmp_path / "tape").iterdir()
    data = tape.read_bytes()
    assert KEY.encode() not in data
    assert b"[redacted]" in data
    assert len([json.loads(line) for line in data.splitlines()]) == 15


def test_a_changed_scorer_costs_nothing_and_a_changed_prompt_is_told(
    cli: Cli, taped: Path, tmp_path: Path
) -> None:
    text = taped.read_text()
    taped.write_text(text.replace('expected = "no such thing"', 'expected = ["four", "five"]'))
    ended = cli("run", taped, "--replay", "tape", "--output", "two", code=3)
    assert "diverged" not in ended.err
    taped.write_text(text.replace("write a line", "write a word"))
    ended = cli("run", taped, "--replay", "tape", "--output", "three", code=3)
    assert "fault (provider) judged@m#1: replay: diverged: no recorded answer of" in ended.err
    assert "differs in message 1 from character 9" in ended.err
    assert "replay: requests that diverged from tape, and are faults: 2" in ended.err
    buckets = summary(only_run(tmp_path / "three"), folder=tmp_path)["buckets"]
    assert (buckets["scored"], buckets["model_error"]) == (6, 4)


def test_a_replay_needs_a_recording(cli: Cli, taped: Path, tmp_path: Path) -> None:
    ended = cli("run", taped, "--replay", "nothing", code=1)
    assert "there is no recording in nothing; make one with --record nothing" in ended.err
    ended = cli("run", taped, "--replay", "tape", "--record", "other", code=1)
    assert "a replay asks no model" in ended.err
    assert not (tmp_path / "runs").exists()


def test_a_cached_run_asks_nothing_and_says_so(cli: Cli, tmp_path: Path) -> None:
    suite = tmp_path / "suite.json"
    tests = [{"id": f"t{n}", "prompt": f"say {n}", "expected": f"say {n}"} for n in range(5)]
    suite.write_text(json.dumps({"tests": tests}))
    with Loopback() as server:
        words = ("run", suite, "-m", "m", "--base-url", server.url, "--cache", "kept")
        first = cli(*words, "--rollouts", "2", "--output", "one")
        assert "cache: 0 of 10 answers came from kept" in first.err
        second = cli(*words, "--rollouts", "2", "--output", "two", "--record", "tape")
        assert "cache: 10 of 10 answers came from kept" in second.err
        assert len(server.requests) == 10
        third = cli(*words, "--rollouts", "3", "--output", "three", "--json")
        assert "cache: 10 of 15 answers came from kept" in third.err
        assert len(server.requests) == 15
    runs = [only_run(tmp_path / name) for name in ("one", "two")]
    cli("run", *words[1:-2], "--rollouts", "2", "--output", "four", "--replay", "tape")
    shown = json.loads(cli("show", runs[1], "t0@m#0", "--output", runs[1].parent, "--json").out)
    assert "cached" in json.dumps(shown)


# --- .env


@pytest.fixture
def keyed(tmp_path: Path) -> Path:
    path = tmp_path / "keyed.toml"
    path.write_text(
        '[[tasks]]\nid = "t"\nprompt = "hello"\n[[models]]\nmodel = "m"\n'
        'base_url = "${BAKEOFF_URL}"\napi_key = "${BAKEOFF_TEST_KEY}"\n'
    )
    return path


def test_a_key_comes_from_env_and_the_shell_wins(cli: Cli, keyed: Path, tmp_path: Path) -> None:
    with Loopback() as server:
        (tmp_path / ".env").write_text(f"BAKEOFF_URL={server.url}\nBAKEOFF_TEST_KEY='{KEY}'\n")
        (tmp_path / "other.env").write_text(
            f"export BAKEOFF_URL={server.url}\nBAKEOFF_TEST_KEY=other-{KEY}\n"
        )
        ended = cli("run", keyed)
        assert "read from .env: BAKEOFF_URL, BAKEOFF_TEST_KEY\n" in ended.err
        ended = cli("run", keyed, env={"BAKEOFF_TEST_KEY": f"shell-{KEY}"})
        assert "read from .env: BAKEOFF_URL (the shell has its own BAKEOFF_TEST_KEY)" in ended.err
        cli("run", keyed, "--env-file", "other.env")
        sent = [asked.headers["Authorization"] for asked in server.requests]
    assert sent == [f"Bearer {KEY}", f"Bearer shell-{KEY}", f"Bearer other-{KEY}"]
    kept = [p for p in (tmp_path / "runs").rglob("*") if p.is_file()]
    assert all(KEY.encode() not in path.read_bytes() for path in kept)


def test_a_named_env_file_must_be_there(cli: Cli, keyed: Path, tmp_path: Path) -> None:
    ended = cli("run", keyed, "--env-file", "none.env", code=1)
    assert "none.env cannot be read: No such file or directory" in ended.err
    (tmp_path / "bad.env").write_text(f"A=1\n{KEY}\n")
    ended = cli("run", keyed, "--env-file", "bad.env", code=1)
    assert "bad.env:2: not NAME=value" in ended.err
