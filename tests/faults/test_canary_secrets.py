"""Canary secrets, put wherever an operator may put a secret and repeated by all that sees them: no
file that a run leaves, no screen and no process list holds one, in any usual encoding."""

import base64
import gzip
import json
import re
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from bakeoff.app import load_run, report
from bakeoff.frontends.test_runner.runner import TestRunner
from bakeoff.stores.packing import inflated
from support.cli import Ended, bakeoff
from support.coding_tasks import FIX, write_fix_add
from support.loopback import Asked, Loopback, Reply, chat, delta, sse

# where a model is told its secret, and what the secret is; a name is that of a variable
SECRETS = {
    "key-by-name": "canary-key/env+1f6b0c9d8e",
    "key-literal": "canary-key-literal-2a7d9c8b",
    "header-by-name": "canary header~env=3b8e",
    "header-literal": "canary-header-literal-4c9f",
    "basic-header": "canary-basic-header-5d0a",
    "url-by-name": "canary-url/env~6e1b",
    "url-literal": "canary-url-literal-7f2c",
    "user-by-name": "canary-user-env-803d",
    "user-literal": "canary:user@literal-914e",
    "path-by-name": "canary-path-env-a25f0b1c2d3e",
    "whole-url-by-name": "canary-whole-url-b360",
}
NAMED = {
    "KEY_1": SECRETS["key-by-name"],
    "HEADER_1": SECRETS["header-by-name"],
    "QUERY_1": SECRETS["url-by-name"],
    "PASSWORD_1": SECRETS["user-by-name"],
    "PATH_TOKEN": SECRETS["path-by-name"],
}
AGENT_TOKEN = "canary-agent/environment+c471"
AGENT_URL_PASSWORD = "canary-agent-url-d582"

TASKS = """
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
id = "streamed"
prompt = "stream it"
expected = "it"
[[tasks]]
id = "cut-stream"
prompt = "cut it"
"""


def models(url: str) -> str:
    host = url.partition("://")[2]
    user = quote(SECRETS["user-literal"], safe="")
    basic = base64.b64encode(f"operator:{SECRETS['basic-header']}".encode()).decode()
    ways = {
        "key-by-name": f'base_url = "{url}"\napi_key = "${{KEY_1}}"',
        "key-literal": f'base_url = "{url}"\napi_key = "{SECRETS["key-literal"]}"',
        "header-by-name": f'base_url = "{url}"\nheaders = {{ X-Custom = "${{HEADER_1}}" }}',
        "header-literal": (
            f'base_url = "{url}"\nheaders = {{ Cookie = "id={SECRETS["header-literal"]}; a=b" }}'
        ),
        "basic-header": f'base_url = "{url}"\nheaders = {{ Authorization = "Basic {basic}" }}',
        "url-by-name": f'base_url = "{url}?x=${{QUERY_1}}"',
        "url-literal": f'base_url = "{url}?api-version=2024-10-21&key={SECRETS["url-literal"]}"',
        "user-by-name": f'base_url = "http://operator:${{PASSWORD_1}}@{host}"',
        "user-literal": f'base_url = "http://operator:{user}@{host}"',
        "path-by-name": f'base_url = "{url}/${{PATH_TOKEN}}/v1"',
        "whole-url-by-name": 'base_url = "${WHOLE_URL}"',
    }
    settings = "settings = { max_retries = 1, retry_delay_s = 0.0, keep_raw = true, stream = %s }"
    return "".join(
        f'[[models]]\nmodel = "openai-compatible/{name}"\n{way}\n'
        f"{settings % ('true' if number % 2 else 'false')}\n"
        for number, (name, way) in enumerate(ways.items())
    )


def encodings(secret: str) -> set[str]:
    """How a secret may be written: what no file may hold."""
    data = secret.encode()
    found = {secret, quote(secret, safe=""), quote(secret), data.hex(), data.hex().upper()}
    for before in range(3):
        text = base64.b64encode(b"x" * before + data + b"yyy").decode()
        own = text[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
        found |= {own, own.replace("+", "-").replace("/", "_")}
    return found | {json.dumps(form)[1:-1] for form in found}


def repeated(words: Iterator[str]) -> str:
    """Every word, as it is and in every encoding, at every alignment of base64."""
    parts = []
    for word in words:
        data = unquote(word).encode()
        parts += [
            word,
            unquote(word),
            data.hex(),
            data.hex().upper(),
            quote(unquote(word), safe=""),
        ]
        for before in (b"", b"1", b"12"):
            parts.append(base64.b64encode(before + data).decode())
            parts.append(base64.urlsafe_b64encode(before + data + b"after").decode())
    return " it ".join(parts)


@dataclass
class Parrot:
    """A server that repeats all that it is sent, and looks who can be seen in the process list."""

    seen: dict[str, str] = field(default_factory=dict)
    command_lines: set[bytes] = field(default_factory=set)

    def __call__(self, asked: Asked) -> Reply:
        text = repeated(self._words(asked))
        self.seen[str(asked.body.get("model"))] = text
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                self.command_lines.add(process.read_bytes())
            except OSError:
                continue  # it ended meanwhile
        if asked.body.get("stream"):
            return self._streamed(asked.prompt, text)
        if asked.prompt in {"refuse it", "break it"}:
            return Reply(status=401 if asked.prompt == "refuse it" else 500, body=text.encode())
        if asked.prompt == "cut it":
            return Reply(body=b"<html>" + text.encode())
        return chat(text, repeated=text, **{text: 1})

    def _words(self, asked: Asked) -> Iterator[str]:
        path, _, query = asked.path.partition("?")
        yield from (asked.path, *path.split("/"), *query.split("&"))
        yield from (part.partition("=")[2] for part in query.split("&"))
        for value in asked.headers.values():
            yield from (value, *value.split(), *re.split(r"[;=\s]+", value))
            if value.startswith("Basic "):
                pair = base64.b64decode(value.removeprefix("Basic ")).decode()
                yield from (pair, *pair.split(":", 1))

    def _streamed(self, prompt: str, text: str) -> Reply:
        if prompt in {"refuse it", "break it"}:
            return sse({"error": {"message": text, "code": 401 if "refuse" in prompt else 500}})
        if prompt == "cut it":
            cut = sse(delta(text[: len(text) // 2]))
            cut.then_close = True
            return cut
        return sse(delta(text), delta(" it", "stop"), "data: [DONE]\n\n")


def held(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file below a folder by name, and each value of a database inflated."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        yield str(path), path.name.encode() + b"\n" + path.read_bytes()
        if path.read_bytes().startswith(b"SQLite format 3"):
            yield str(path), b"\n".join(_values(path))
        if path.suffix == ".gz":
            yield str(path), gzip.decompress(path.read_bytes())


def _values(path: Path) -> Iterator[bytes]:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        tables = [n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in db.execute(f"SELECT * FROM {table}"):
                yield from (_inflated(value) for value in row)
    db.close()


def _inflated(value: object) -> bytes:
    if not isinstance(value, bytes):
        return str(value).encode()
    with suppress(ValueError, zlib.error):
        return value + inflated(value)  # as a ledger keeps records
    for start in (0, 1):
        try:
            return value + zlib.decompress(value[start:])
        except zlib.error:
            continue
    return value


@dataclass(frozen=True, kw_only=True)
class Left:
    """What a run left behind."""

    folder: Path
    printed: tuple[Ended, ...]
    command_lines: frozenset[bytes] = frozenset()

    def hits(self, secret: str) -> list[str]:
        """Where *secret* can be read, in whatever encoding."""
        forms = [form.encode() for form in encodings(secret)]
        places = [*held(self.folder / "runs"), *held(self.folder / "kept"), *self._screens()]
        places += [*held(self.folder / "tmp"), *(("ps", line) for line in self.command_lines)]
        assert len(places) > 3
        return [f"{name}: {form!r}" for name, data in places for form in forms if form in data]

    def _screens(self) -> Iterator[tuple[str, bytes]]:
        for ended in self.printed:
            yield "standard output", ended.out.encode()
            yield "standard error", ended.err.encode()


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """A run of one model for each place of a secret, with everything on that keeps something."""
    folder = tmp_path_factory.mktemp("canaries")
    kept, output, parrot = folder / "kept", folder / "runs", Parrot()
    (folder / "tmp").mkdir()
    with Loopback(parrot) as server:
        (folder / "run.toml").write_text(TASKS + models(server.url), encoding="utf-8")
        host = server.url.partition("://")[2]
        env = {
            **NAMED,
            "WHOLE_URL": f"http://{SECRETS['whole-url-by-name']}@{host}",
            "TMPDIR": str(folder / "tmp"),
        }
        words = ("--record", kept / "recording", "--cache", kept / "cache", "--output", output)
        ran = bakeoff("run", folder / "run.toml", *words, folder=folder, env=env)
    assert ran.code == 3, ran.err
    for name, secret in SECRETS.items():
        assert encodings(secret) & set(parrot.seen[name].split(" it ")), f"{name} was not sent"
    report(output=output, to=kept / "report", formats=("html", "json", "csv", "junit", "md"))
    shown = [
        bakeoff("show", "latest", trial, "--output", output, folder=folder)
        for trial in ("answer", "refused", "cut-stream")
    ]
    return Left(
        folder=folder,
        printed=(ran, *shown),
        command_lines=frozenset(parrot.command_lines),
    )


@pytest.mark.parametrize("place", SECRETS)
def test_a_secret_that_the_server_repeats_is_nowhere_afterwards(asked: Left, place: str) -> None:
    assert asked.hits(SECRETS[place]) == []


def test_what_is_no_secret_is_kept(asked: Left) -> None:
    run = load_run(output=asked.folder / "runs")
    urls = {c.id: c.model.base_url or "" for c in run.plan.candidates}
    assert "api-version=2024-10-21&key=[redacted]" in urls["url-literal"]
    assert urls["url-by-name"].endswith("?x=${QUERY_1}")
    assert urls["user-literal"].startswith("http://[redacted]@127.0.0.1:")
    answers = [r.attempt.outcome.answer for r in run.trials() if r.attempt.outcome]
    assert any(" it " in (answer or "") for answer in answers)


def test_a_secret_of_an_agent_is_nowhere_afterwards(tmp_path: Path) -> None:
    write_fix_add(tmp_path)
    script = (
        f"{FIX}; echo $DEPLOY_TOKEN; echo $DATABASE >&2; echo $DEPLOY_TOKEN > note.txt; "
        "for before in '' 1 12; do printf %s \"$before$DEPLOY_TOKEN\" | base64 -w0; echo; done; "
        "printf %s \"$DEPLOY_TOKEN\" | od -An -tx1 | tr -d ' \\n'"
    )
    variables = (
        f'{{ DEPLOY_TOKEN = "{AGENT_TOKEN}", MODE = "thorough", '
        f'DATABASE = "postgres://agent:{AGENT_URL_PASSWORD}@db/x" }}'
    )
    (tmp_path / "run.toml").write_text(
        'suites = ["fix-add"]\nsandbox = "local"\nmodels = ["scripted/echo"]\n'
        f"[[agents]]\nagent = 'command'\n[agents.settings]\n"
        f"command = ['sh', '-c', {json.dumps(script)}]\nenvironment = {variables}\n"
    )
    (tmp_path / "tmp").mkdir()
    words = ("run", tmp_path / "run.toml", "--output", tmp_path / "runs")
    env = {"TMPDIR": str(tmp_path / "tmp")}
    ran = bakeoff(*words, folder=tmp_path, env=env)
    assert ran.code == 0, ran.err
    left = Left(folder=tmp_path, printed=(ran,))
    report(output=tmp_path / "runs", to=tmp_path / "kept", formats=("html", "json", "csv"))
    assert left.hits(AGENT_TOKEN) == []
    assert left.hits(AGENT_URL_PASSWORD) == []
    data = b"".join(data for _, data in held(tmp_path / "runs"))
    assert b"[redacted]" in data
    assert b"thorough" in data, "an ordinary variable is kept"
    again = bakeoff(*words, "--resume", "latest", folder=tmp_path, env=env)
    assert again.code == 0, again.err
    assert "differs" not in again.err
    alone = ("run", "--resume", "latest", "--output", tmp_path / "runs")
    refused = bakeoff(*alone, folder=tmp_path, env=env)
    assert refused.code == 1
    assert "the secret in its variable DEPLOY_TOKEN was written out in the config" in refused.err


def test_a_secret_of_test_runner_is_nowhere_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suite.json").write_text(
        json.dumps({"tests": [{"id": i, "prompt": f"{i} it"} for i in ("say", "refuse", "break")]})
    )
    config = {
        "api_defaults": {"retry_attempts": 0},
        "execution_defaults": {"sequential_delay": 0},
        "output_settings": {"results_directory": "runs"},
        "logging": {"level": "DEBUG", "file": "kept/log.txt"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    url_secret, user_secret = SECRETS["url-literal"], SECRETS["user-by-name"]
    with Loopback(Parrot()) as server:
        runner = TestRunner("config.json")
        assert runner.load_test_suite("suite.json")
        host = server.url.partition("://")[2]
        runner.configure_api(f"http://operator:{user_secret}@{host}?key={url_secret}", "m")
        results = runner.execute_sequential()
        assert runner.save_results(results)
        runner.close()
    assert [result.success for result in results] == [True, False, False]
    left = Left(folder=tmp_path, printed=())
    assert left.hits(url_secret) == []
    assert left.hits(user_secret) == []
