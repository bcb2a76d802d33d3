"""The same rows in every format are the same tasks; a Hub data set is pinned and read offline."""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pytest

from bakeoff.core.errors import UsageError
from bakeoff.formats.data.columns import DataOptions
from bakeoff.formats.detect import read_source
from support.cli import BAKEOFF, started
from support.servers import serving

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROWS: list[dict[str, Any]] = [
    {
        "id": f"r{n}",
        "question": f'Line {n}\nwith "quotes", ünïcode\tand {n}',
        "answer": ("Paris", n, n + 0.5, True)[n % 4],
        "category": "odd" if n % 2 else "even",
        "level": n,
        "share": n / 8,
        "flag": n % 3 == 0,
        "note": None if n % 5 else "x",
    }
    for n in range(100)
]
LOCAL = ("rows.csv", "rows.tsv", "rows.jsonl", "rows.json", "rows.parquet")


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _write(folder: Path) -> None:
    # what a column of one Parquet type cannot hold is text there, as it is in a CSV
    rows = [{**row, "answer": _text(row["answer"])} for row in ROWS]
    for name, mark in (("rows.csv", ","), ("rows.tsv", "\t")):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(ROWS[0]), delimiter=mark)
            writer.writeheader()
            writer.writerows({key: _text(value) for key, value in row.items()} for row in ROWS)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "rows.json").write_text(json.dumps(ROWS, indent=1))
    (folder / "typed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    duckdb.sql(f"COPY (FROM '{folder}/typed.jsonl') TO '{folder}/rows.parquet' (FORMAT parquet)")


def _digests(source: str | Path) -> list[str]:
    options = DataOptions(variables=True, own_prompt=False)
    return [task.digest for task in read_source(source, None, options).tasks]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with one data set, laid out as huggingface-hub does."""
    _write(tmp_path)
    folder = tmp_path / "hub" / "datasets--me--rows"
    snapshot = folder / "snapshots" / COMMIT
    (snapshot / "data").mkdir(parents=True)
    (folder / "blobs").mkdir()
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    shutil.copy(tmp_path / "rows.parquet", folder / "blobs" / "abc")
    (snapshot / "data" / "test-00000-of-00001.parquet").symlink_to("../../../blobs/abc")
    return tmp_path


def test_the_same_rows_are_the_same_tasks_in_every_format(tmp_path: Path) -> None:
    _write(tmp_path)
    digests = {name: _digests(tmp_path / name) for name in LOCAL}
    assert len(set(digests["rows.csv"])) == 100
    for name in LOCAL:
        assert digests[name] == digests["rows.csv"], name


_IN_A_PROCESS = """
import sys
from bakeoff.formats.data.columns import DataOptions
from bakeoff.formats.detect import read_source
spec = read_source(sys.argv[1], None, DataOptions(variables=True, own_prompt=False))
print(spec.sources[0].path)
print(*(task.digest for task in spec.tasks))
"""


def _in_a_process(address: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Read *address* in a process of its own: huggingface-hub reads its variables on import."""
    return subprocess.run(
        [sys.executable, "-c", _IN_A_PROCESS, address],
        env={**os.environ, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", **environ},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "address", ["hf://me/rows", "hf://me/rows:test", f"hf://me/rows@{COMMIT}:test"]
)
def test_a_hub_data_set_is_read_from_the_cache_without_a_network(cache: Path, address: str) -> None:
    done = _in_a_process(address, HF_HUB_CACHE=str(cache / "hub"), HF_HUB_OFFLINE="1")
    assert not done.returncode, done.stderr
    source, digests = done.stdout.splitlines()
    assert source == f"hf://me/rows@{COMMIT}:test"
    assert digests.split() == _digests(cache / "rows.csv")


class _Hub(BaseHTTPRequestHandler):
    """The part of the Hub's documented wire format that reading a data set needs."""

    content = b""
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        name = "data/test-00000-of-00001.parquet"
        path = self.path.partition("?")[0]
        self.asked.append(path)
        headers = {"Content-Type": "application/json"}
        if path.startswith("/api/datasets/me/rows"):
            files = [{"rfilename": name}, {"rfilename": "README.md"}]
            body = json.dumps({"id": "me/rows", "sha": COMMIT, "siblings": files}).encode()
            self._send(200, headers, body)
        elif path == f"/datasets/me/rows/resolve/{COMMIT}/{name}":
            self._send(200, {"ETag": '"abc"', "X-Repo-Commit": COMMIT}, self.content)
        else:
            self._send(404, {**headers, "X-Error-Code": "RepoNotFound"}, b"{}")

    do_HEAD = do_GET  # noqa: N815 -- the handler's name

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def hub(cache: Path) -> Iterator[str]:
    _Hub.content = (cache / "rows.parquet").read_bytes()
    _Hub.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    with serving(server):
        yield f"http://127.0.0.1:{server.server_address[1]}"


def test_a_hub_data_set_is_fetched_once_and_pinned(cache: Path, hub: str) -> None:
    environ = {"HF_HUB_CACHE": str(cache / "empty"), "HF_ENDPOINT": hub, "HF_HUB_DISABLE_XET": "1"}
    for _ in range(2):
        done = _in_a_process("hf://me/rows:test", **environ)
        assert not done.returncode, done.stderr
        source, digests = done.stdout.splitlines()
        assert source == f"hf://me/rows@{COMMIT}:test"
        assert digests.split() == _digests(cache / "rows.csv")
    assert sum("/resolve/" in path for path in _Hub.asked) <= 3  # HEAD and GET, then the cache
    offline = _in_a_process("hf://me/rows", **environ, HF_HUB_OFFLINE="1")
    assert f"hf://me/rows@{COMMIT}:test" in offline.stdout, offline.stderr


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("hf://me/nothing", "there is no data set me/nothing on the Hub"),
        ("hf://me/rows:tset", "no split 'tset'; did you mean 'test'?"),
    ],
)
def test_a_data_set_or_split_that_is_not_there_is_named(
    cache: Path, hub: str, address: str, message: str
) -> None:
    done = _in_a_process(address, HF_HUB_CACHE=str(cache / "empty"), HF_ENDPOINT=hub)
    assert message in done.stderr


def test_without_network_and_cache_it_says_so(tmp_path: Path) -> None:
    done = _in_a_process("hf://me/rows", HF_HUB_CACHE=str(tmp_path), HF_HUB_OFFLINE="1")
    assert "the Hub cannot be reached, and the cache has no copy" in done.stderr


def test_a_hub_that_cannot_be_reached_is_no_traceback(tmp_path: Path) -> None:
    nowhere = "http://127.0.0.1:9"
    done = _in_a_process("hf://me/rows", HF_HUB_CACHE=str(tmp_path), HF_ENDPOINT=nowhere)
    assert "UsageError: hf://me/rows: the Hub cannot be reached" in done.stderr
    assert "refused" in done.stderr


def test_parquet_and_sql_leave_nothing_on_the_screen_at_the_end(cache: Path) -> None:
    """duckdb lists, at the end of a process, what has not been freed."""
    run_file = cache / "run.toml"
    run_file.write_text(
        'models = ["scripted/echo"]\n[[data]]\npath = "rows.csv"\nsql = "level > 2"\n'
    )
    for source in ("rows.parquet", "run.toml"):
        words = (*BAKEOFF, "run", cache / source, "--model", "scripted/echo", "--dry-run")
        with started(words, folder=cache / "said") as running:
            ended = running.wait()
        assert ended.code == 0
        assert [line for line in ended.err.splitlines() if not line.startswith("note: ")] == []


def test_addresses_that_say_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match=r"write it as hf://owner/name\[@revision\]\[:split\]"):
        read_source("hf://me/too/deep")
