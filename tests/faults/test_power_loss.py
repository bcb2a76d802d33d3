"""Power loss: what is announced was synced before, and so were the folders that lead to it.

Nothing here can cut the power. What a disk may lose then is what was written and not yet synced,
so the order of system calls is looked at instead.
"""

import codecs
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.cli import acknowledging, only_run, run
from support.loopback import Asked, Loopback, Reply, chat
from support.parts import require
from support.plans import write_suite

COUNT = 12
_CALL = re.compile(
    r"(?P<thread>\d+) +(?P<call>\w+)\((?P<descriptor>\d+)<(?P<path>[^>]*)>(?P<rest>.*)"
)
_RESUMED = re.compile(r"(?P<thread>\d+) +<\.\.\. (?P<call>\w+) resumed>.*= (?P<result>-?\d+)")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_SYNCS = frozenset({"fsync", "fdatasync"})


@dataclass(frozen=True)
class Call:
    """A write when it began, or a sync when it had succeeded."""

    name: str
    descriptor: int
    path: str
    data: str

    @property
    def written(self) -> bytes:
        """What was written, of which strace prints the bytes as a C string."""
        found = _STRING.search(self.data)
        return codecs.escape_decode(found[1].encode("latin-1"))[0] if found else b""


def calls(trace: Path) -> Iterator[Call]:
    """Yield the calls in the order in which they counted."""
    waiting: dict[str, Call] = {}
    for line in trace.read_text(encoding="latin-1").splitlines():
        if resumed := _RESUMED.match(line):
            call = waiting.pop(resumed["thread"], None)
            if call is not None and int(resumed["result"]) == 0:
                yield call
        elif begun := _CALL.match(line):
            call = Call(begun["call"], int(begun["descriptor"]), begun["path"], begun["rest"])
            if call.name not in _SYNCS:
                yield call
            elif "<unfinished" in call.data:
                waiting[begun["thread"]] = call
            elif call.data.endswith("= 0"):
                yield call


def answer(asked: Asked) -> Reply:
    return chat(f"the answer to: {asked.prompt}")


@pytest.fixture(params=[1, 4], ids=lambda parallel: f"{parallel} at once")
def traced(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[list[Call], Path]:
    """The writes and syncs of a run that prints each trial it announces, and its output folder."""
    require("strace", strace := shutil.which("strace"), "apt-get install strace")
    suite = write_suite(tmp_path / "suite.json", COUNT)
    output, trace = tmp_path / "new" / "runs", tmp_path / "trace"
    seen = "trace=write,pwrite64,writev,pwritev,fsync,fdatasync"
    options = ["-f", "-y", "-s", "100000", "-e", seen, "-e", "signal=none", "-o", str(trace)]
    with Loopback(answer) as server:
        program = acknowledging(suite, server.url, output, parallel=request.param)
        ended = run([str(strace), *options, *program], folder=tmp_path / "said", timeout_s=120)
    assert ended.code == 0, ended.err
    return list(calls(trace)), output


def test_a_record_is_synced_before_its_trial_is_announced(
    traced: tuple[list[Call], Path],
) -> None:
    made, output = traced
    ledger = only_run(output) / "ledger.sqlite"
    log = f"{ledger}-wal"
    with closing(sqlite3.connect(ledger)) as db:
        stored = db.execute(
            "SELECT substr(t.id, 2), a.rest FROM attempt a JOIN task t ON t.row = a.task"
        ).fetchall()
    assert len({rest for _, rest in stored}) == COUNT
    written: set[str] = set()
    durable: set[str] = set()
    announced: set[str] = set()
    for call in made:
        if call.path == log and call.name in _SYNCS:
            durable |= written
        elif call.path == log:
            written |= {number for number, rest in stored if rest in call.written}
        elif call.descriptor == 1:
            names = set(re.findall(r"\bt(\d{4})@", call.data))
            assert names <= durable, f"announced before it was synced: {names - durable}"
            announced |= names
    assert len(announced) == COUNT


def test_the_folders_of_a_new_run_are_synced_before_the_first_announcement(
    traced: tuple[list[Call], Path],
) -> None:
    made, output = traced
    first = next(place for place, call in enumerate(made) if call.descriptor == 1)
    synced = {call.path for call in made[:first] if call.name in _SYNCS}
    # a name is in the folder above it
    assert {
        str(only_run(output)),
        str(output),
        str(output.parent),
        str(output.parent.parent),
    } <= synced
