"""A key is sent to its server and to nobody else: no file, no screen, no report has it."""

import json
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from bakeoff.app import load_run
from support.cli import Ended, bakeoff
from support.loopback import Asked, Loopback, Reply, chat

KEY = "sk-live-0123456789abcdefABCDEF"
NAMED = "BAKEOFF_TEST_KEY"

RUN_FILE = """
name = "secrets"
[[tasks]]
id = "answer"
prompt = "say it"
expected = "it"
[[tasks]]
id = "refused"
prompt = "refuse it"
[[tasks]]
id = "broken"
prompt = "break it"
[[tasks]]
id = "garbled"
prompt = "garble it"
"""
MODEL = """
[[models]]
model = "openai-compatible/{name}"
base_url = "{url}"
settings = {{ max_retries = 1, retry_delay_s = 0.0, keep_raw = true }}
{secret}
"""

# how the model is told its secret, and what the secret is
WAYS = {
    "named-key": ('api_key = "${KEY_1}"', "sk-one-0123456789abcdef"),
    "named-header": ('headers = { "X-Custom" = "pre-${KEY_2}" }', "sk-two-0123456789abcdef"),
    "awkward": ('headers = { "X-Custom" = "${KEY_3}" }', 'pa"ss\\word/in-a-header'),
    "literal-key": ('api_key = "sk-four-0123456789abcdef"', "sk-four-0123456789abcdef"),
    "literal-header": (
        'headers = { Authorization = "Token sk-five-0123456789abcdef" }',
        "sk-five-0123456789abcdef",
    ),
    "own-header": (
        'headers = { "X-Api-Key" = "sk-six-0123456789abcdef" }',
        "sk-six-0123456789abcdef",
    ),
}
ENVIRON = {
    "KEY_1": WAYS["named-key"][1],
    "KEY_2": WAYS["named-header"][1],
    "KEY_3": WAYS["awkward"][1],
}


def run_file(path: Path, url: str, secret: str = f'api_key = "${{{NAMED}}}"') -> Path:
    path.write_text(RUN_FILE + MODEL.format(name="m", url=url, secret=secret), encoding="utf-8")
    return path


def blabbing(asked: Asked) -> Reply:
    """Repeat every header of the request, in answers and in errors of all kinds."""
    said = json.dumps(asked.headers, ensure_ascii=False)
    if asked.prompt == "say it":
        return chat(f"it: {said} {' '.join(asked.headers.values())}", headers=asked.headers)
    if asked.prompt == "garble it":
        return Reply(body=b"<html>" + " ".join(asked.headers.values()).encode())
    status = 401 if asked.prompt == "refuse it" else 500
    return Reply(status=status, body=" ".join(asked.headers.values()).encode())


def escaped(secret: str) -> str:
    return json.dumps(secret, ensure_ascii=False)[1:-1]


def assert_in_no_file(secret: str, output: Path) -> None:
    for file in (path for path in output.rglob("*") if path.is_file()):
        data = file.read_bytes()
        assert secret.encode() not in data, file
        assert escaped(secret).encode() not in data, file
    run = load_run(output=output)
    for record in run.trials():
        assert escaped(secret) not in json.dumps(msgspec.to_builtins(record), ensure_ascii=False)
    for told in (run.manifest, run.plan):
        assert escaped(secret) not in json.dumps(msgspec.to_builtins(told), ensure_ascii=False)


def assert_on_no_screen(secret: str, *printed: Ended) -> None:
    for ended in printed:
        for form in (secret, escaped(secret)):
            assert form not in ended.out
            assert form not in ended.err


@dataclass(frozen=True)
class Ran:
    """A run of one model for each way to tell a secret, with a server that repeats them all."""

    output: Path
    printed: tuple[Ended, ...]
    sent: dict[str, str]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("secrets")
    output, file = folder / "runs", folder / "run.toml"
    with Loopback(blabbing) as server:
        models = (
            MODEL.format(name=name, url=server.url, secret=secret)
            for name, (secret, _) in WAYS.items()
        )
        file.write_text(RUN_FILE + "".join(models), encoding="utf-8")
        run = bakeoff("run", file, "--output", output, folder=folder, env=ENVIRON)
        sent = {a.body["model"]: " ".join(a.headers.values()) for a in server.requests}
    assert run.code == 3, run.err
    words = (("show", "latest", "refused"), ("show", "latest", "answer"), ("summarize", "--json"))
    shown = [bakeoff(*these, "--output", output, folder=folder) for these in words]
    assert [ended.code for ended in shown] == [0, 0, 0], [ended.err for ended in shown]
    return Ran(output, (run, *shown), sent)


@pytest.mark.parametrize("way", WAYS)
def test_a_key_that_the_server_repeats_is_kept_in_no_file(ran: Ran, way: str) -> None:
    value = WAYS[way][1]
    assert value in ran.sent[way], "the server must get the real one"
    assert_in_no_file(value, ran.output)
    answers = [
        r.attempt.outcome.answer
        for r in load_run(output=ran.output).trials()
        if (r.candidate_id, r.task_id) == (way, "answer") and r.attempt.outcome
    ]
    assert len(answers) == 1
    assert "[redacted]" in answers[0]


@pytest.mark.parametrize("way", WAYS)
def test_a_key_that_the_server_repeats_is_on_no_screen(ran: Ran, way: str) -> None:
    assert_on_no_screen(WAYS[way][1], *ran.printed)


def test_a_run_with_a_named_key_resumes_from_its_folder_alone(tmp_path: Path) -> None:
    output, file = tmp_path / "runs", tmp_path / "run.toml"
    with Loopback(blabbing) as server:
        run_file(file, server.url)
        bakeoff("run", file, "--output", output, folder=tmp_path, env={NAMED: KEY})
        file.unlink()
        server.answer = lambda asked: chat(asked.prompt)
        seen = len(server.requests)
        words = ("run", "--resume", "latest", "--output", output)
        again = bakeoff(*words, folder=tmp_path, env={NAMED: KEY})
        sent = server.requests[seen:]
    assert again.code == 0, again.err
    assert [asked.headers["Authorization"] for asked in sent] == [f"Bearer {KEY}"] * 3
    assert_in_no_file(KEY, output)
    assert_on_no_screen(KEY, again)


def test_no_start_of_a_key_is_kept_where_an_error_is_shortened(tmp_path: Path) -> None:
    output, file = tmp_path / "runs", tmp_path / "run.toml"

    def cut_within_the_key(asked: Asked) -> Reply:
        return Reply(body=b"<html>" + b"x" * 40 + asked.headers["Authorization"].encode())

    with Loopback(cut_within_the_key) as server:
        run_file(file, server.url)
        ran = bakeoff("run", file, "--output", output, folder=tmp_path, env={NAMED: KEY})
    assert ran.code == 3, ran.err
    assert_in_no_file(KEY[:10], output)
    assert_on_no_screen(KEY[:10], ran)


def test_an_empty_key_is_refused_by_name_before_anything_runs(tmp_path: Path) -> None:
    output, suite = tmp_path / "runs", tmp_path / "suite.json"
    suite.write_text('{"tests": [{"id": "a", "prompt": "p"}]}')
    words = ("run", suite, "--model", "openai/gpt-4.1-mini", "--output", output)
    ran = bakeoff(*words, folder=tmp_path, env={"OPENAI_API_KEY": ""})
    assert ran.code == 1
    assert "the environment variable OPENAI_API_KEY is set, but empty" in ran.err
    assert not output.exists()


def test_a_missing_variable_is_named_before_anything_runs(tmp_path: Path) -> None:
    output, file = tmp_path / "runs", tmp_path / "run.toml"
    with Loopback(blabbing) as server:
        run_file(file, server.url, 'api_key = "${NO_SUCH_NAME}"')
        ran = bakeoff("run", file, "--output", output, folder=tmp_path)
    assert ran.code == 1
    assert "NO_SUCH_NAME is not set" in ran.err
    assert not server.requests
    assert not output.exists()
