"""A key is sent to its server and to nobody else: no file, no screen, no report has it."""

import json
from pathlib import Path

import pytest
from support.cli import Ended, bakeoff, only_run
from support.loopback import Asked, Loopback, Reply, chat

from bakeoff.api import load_run

KEY = "sk-live-0123456789abcdefABCDEF"
NAMED = "BAKEOFF_TEST_KEY"

RUN_FILE = """
name = "secrets"
[[models]]
model = "openai-compatible/m"
base_url = "{url}"
{secret}
settings = {{ max_retries = 1, retry_delay_s = 0.0, keep_raw = true }}
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


def blabbing(asked: Asked) -> Reply:
    """Repeat every header of the request, in answers and in errors of all kinds."""
    said = json.dumps(asked.headers, ensure_ascii=False)
    if asked.prompt == "say it":
        return chat(f"it: {said} {' '.join(asked.headers.values())}", headers=asked.headers)
    if asked.prompt == "garble it":
        return Reply(body=b"<html>" + " ".join(asked.headers.values()).encode())
    status = 401 if asked.prompt == "refuse it" else 503
    return Reply(status=status, body=" ".join(asked.headers.values()).encode())


def assert_nowhere(secret: str, output: Path, *printed: Ended) -> None:
    forms = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    for file in (path for path in output.rglob("*") if path.is_file()):
        for form in forms:
            assert form.encode() not in file.read_bytes(), file
    run = load_run(output=output)
    for record in run.trials():
        for form in forms:
            assert form not in repr(record)
    assert secret not in repr(run.manifest)
    assert secret not in repr(run.plan)
    for ended in printed:
        for form in forms:
            assert form not in ended.out
            assert form not in ended.err


@pytest.mark.parametrize(
    ("secret", "value"),
    [
        (f'api_key = "${{{NAMED}}}"', KEY),
        (f'headers = {{ "X-Custom" = "pre-${{{NAMED}}}" }}', KEY),
        (f'headers = {{ "X-Custom" = "${{{NAMED}}}" }}', 'pa"ss\\word/in-a-header'),
        (f'api_key = "{KEY}"', KEY),
        (f'headers = {{ Authorization = "Token {KEY}" }}', KEY),
        (f'headers = {{ "X-Api-Key" = "{KEY}" }}', KEY),
    ],
    ids=["named key", "named header", "awkward", "literal key", "literal header", "own header"],
)
def test_a_key_that_the_server_repeats_is_in_no_file_and_on_no_screen(
    tmp_path: Path, secret: str, value: str
) -> None:
    output, file, env = tmp_path / "runs", tmp_path / "run.toml", {NAMED: value}
    with Loopback(blabbing) as server:
        file.write_text(RUN_FILE.format(url=server.url, secret=secret))
        ran = bakeoff("run", file, "--output", output, folder=tmp_path, env=env)
        sent = [" ".join(asked.headers.values()) for asked in server.requests]
    assert ran.code == 3, ran.err
    assert all(value in headers for headers in sent), "the server must get the real one"
    name = only_run(output).name
    shown = [
        bakeoff(*words, "--output", output, folder=tmp_path)
        for words in (
            ("show", name),
            ("show", name, "answer"),
            ("show", name, "refused"),
            ("summarize", name, "--json"),
        )
    ]
    assert {ended.code for ended in shown} == {0}, [ended.err for ended in shown]
    assert_nowhere(value, output, ran, *shown)
    answer = next(r for r in load_run(output=output).trials() if r.task_id == "answer")
    assert answer.attempt.outcome is not None
    assert "[redacted]" in answer.attempt.outcome.answer


def test_a_run_with_a_named_key_resumes_from_its_folder_alone(tmp_path: Path) -> None:
    output, file = tmp_path / "runs", tmp_path / "run.toml"
    with Loopback(blabbing) as server:
        file.write_text(RUN_FILE.format(url=server.url, secret=f'api_key = "${{{NAMED}}}"'))
        bakeoff("run", file, "--output", output, folder=tmp_path, env={NAMED: KEY})
        file.unlink()
        server.answer = lambda asked: chat(asked.prompt)
        seen = len(server.requests)
        words = ("run", "--resume", "latest", "--output", output)
        again = bakeoff(*words, folder=tmp_path, env={NAMED: KEY})
        sent = server.requests[seen:]
    assert again.code == 0, again.err
    assert [asked.headers["Authorization"] for asked in sent] == [f"Bearer {KEY}"] * 3
    assert_nowhere(KEY, output, again)


def test_a_missing_variable_is_named_before_anything_runs(tmp_path: Path) -> None:
    output, file = tmp_path / "runs", tmp_path / "run.toml"
    with Loopback(blabbing) as server:
        file.write_text(RUN_FILE.format(url=server.url, secret='api_key = "${NO_SUCH_NAME}"'))
        ran = bakeoff("run", file, "--output", output, folder=tmp_path)
    assert ran.code == 1
    assert "NO_SUCH_NAME is not set" in ran.err
    assert not server.requests
    assert not output.exists()
