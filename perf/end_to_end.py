"""CPU of a whole `bakeoff run` of one-turn prompts over that of a minimal aiohttp runner.

python -m perf.end_to_end            both in turns, and where the time goes
python -m perf.end_to_end --count 5000 --repetitions 1

Both are measured as whole processes, imports and reading the suite included. The minimal runner
reads the same suite, asks with aiohttp and uvloop, tries again, scores, and appends a JSON line for
each result to a file, synced to the disk in groups before the next question of the same worker.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import aiohttp
import uvloop

from perf.fast_server import serving
from perf.measure import PARALLEL, ROOT, Reading, report, trials
from perf.workload import MODEL, write_suite

GOAL = 1 / 0.6  # the minimal runner's throughput over ours
START_BAR_MS = 150.0
TRIALS = 20_000
REPETITIONS = 3
_HEADERS = {"Content-Type": "application/json"}
# modules are compiled once, as where a package was installed
_COMPILED = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
_SAMPLE_S = 0.001
_SHOWN = 0.01  # the least share of the CPU that gets a line
_SOURCE = str(ROOT / "src" / "bakeoff") + os.sep


def measure(count: int | None = None, repetitions: int = REPETITIONS) -> list[Reading]:
    """Run the minimal runner and `bakeoff run` in turns, then once more with a profiler."""
    count = count or trials(TRIALS)
    floors, costs = [], []
    with serving() as url, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        suite = write_suite(folder, count)
        (folder / "one").mkdir()
        single = write_suite(folder / "one", 1)
        _cpu_s(["-m", *_bakeoff(url, single, folder)])  # the first start may have to compile
        for _ in range(repetitions):
            floors.append(_cpu_s(_minimal(url, suite, folder)))
            costs.append(_cpu_s(["-m", *_bakeoff(url, suite, folder)]))
        starts = [_cpu_s(["-m", *_bakeoff(url, single, folder)]) for _ in range(3)]
        shares = _where(url, suite, folder)
    return _readings(count, floors, costs, starts, shares)


def _readings(
    count: int,
    floors: list[float],
    costs: list[float],
    starts: list[float],
    shares: dict[str, float],
) -> list[Reading]:
    each, load = 1e6 / count, os.getloadavg()[0]
    ratios = [ours / floor for ours, floor in zip(costs, floors, strict=True)]
    note = f"whole process, {count:,} prompts, {PARALLEL} at once, median of {len(costs)}"
    total = sum(shares.values())
    return [
        Reading(
            name="minimal runner: CPU per trial", value=median(floors) * each, unit="µs", note=note
        ),
        Reading(
            name="bakeoff run: CPU per trial", value=median(costs) * each, unit="µs", note=note
        ),
        Reading(
            name="end to end: CPU per trial / minimal runner",
            value=median(ratios),
            unit="×",
            bar=GOAL,
            note=f"cheapest / cheapest {min(costs) / min(floors):.2f}; load {load:.0f}",
        ),
        Reading(
            name="a run of one prompt: CPU", value=min(starts) * 1000, unit="ms", bar=START_BAR_MS
        ),
        *(
            Reading(
                name=f"  {where}",
                value=share / total * median(costs) * each,
                unit="µs",
                note=f"{share / total:.0%}",
            )
            for where, share in shares.items()
            if share / total >= _SHOWN
        ),
    ]


def _minimal(url: str, suite: Path, folder: Path) -> list[str]:
    return ["-m", "perf.end_to_end", "minimal", url, str(suite), str(folder / "minimal.jsonl")]


def _bakeoff(url: str, suite: Path, folder: Path) -> list[str]:
    asked = ["--model", MODEL, "--base-url", url, "--parallel", str(PARALLEL)]
    return ["bakeoff", "run", str(suite), *asked, "--output", str(folder / "runs")]


def _cpu_s(words: list[str]) -> float:
    """Run Python with *words* and return its CPU, user and system."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=ROOT,
            env=_COMPILED,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise SystemExit(f"{words}: {output.read().decode()[-2000:]}")
    return used.ru_utime + used.ru_stime


# --- the minimal runner ---------------------------------------------------------------------------


class _Log:
    """Appends lines to a file; `append` returns when the line is on the disk."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")
        self._lines: list[bytes] = []
        self._synced: asyncio.Future[None] | None = None
        self._flushing: asyncio.Task[None] | None = None

    async def append(self, line: bytes) -> None:
        self._lines.append(line)
        if self._synced is None:
            self._synced = asyncio.get_running_loop().create_future()
        synced = self._synced
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        await synced

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while self._synced is not None:
            await asyncio.sleep(0)  # whoever is about to append goes along
            synced, self._synced = self._synced, None
            self._file.write(b"".join(self._lines))
            self._lines.clear()
            self._file.flush()
            await loop.run_in_executor(None, os.fdatasync, self._file.fileno())
            synced.set_result(None)
        self._flushing = None


async def _ask(session: aiohttp.ClientSession, url: str, body: bytes) -> Any:
    """Return the answer to *body*; ask again where that fails."""
    for number in range(5):
        try:
            async with session.post(url, data=body, headers=_HEADERS) as response:
                data = await response.read()
                if response.status == 200:
                    return json.loads(data)
        except aiohttp.ClientError as error:
            print(error, file=sys.stderr)
        await asyncio.sleep(0.5 * 2**number * random.uniform(1, 1.25))
    raise SystemExit("no answer")


async def minimal(url: str, suite: Path, log: Path) -> None:
    """Ask every test of *suite* with aiohttp alone; score each, and append what came of it to *log*."""
    tests = iter(json.loads(suite.read_text(encoding="utf-8"))["tests"])
    results, counts = _Log(log), Counter[bool]()

    async def worker() -> None:
        for test in tests:
            messages = [{"role": "user", "content": test["prompt"]}]
            body = json.dumps({"model": MODEL, "messages": messages}).encode()
            answer = await _ask(session, f"{url}/chat/completions", body)
            text = answer["choices"][0]["message"]["content"]
            passed = test["expected"].casefold() in text.casefold()
            counts[passed] += 1
            record = {"id": test["id"], "answer": text, "passed": passed, "usage": answer["usage"]}
            await results.append(json.dumps(record).encode() + b"\n")

    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(PARALLEL):
            group.create_task(worker())
    print(json.dumps({"passed": counts[True], "failed": counts[False]}))


# --- where the time goes ----------------------------------------------------------------------------


def _where(url: str, suite: Path, folder: Path) -> dict[str, float]:
    """Return how many samples of a run lie in each part of it, the most first."""
    shares = folder / "shares.json"
    _cpu_s(["-m", "perf.end_to_end", "sampled", str(shares), *_bakeoff(url, suite, folder)])
    counts: dict[str, float] = json.loads(shares.read_text(encoding="utf-8"))
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def sampled(shares: Path, words: list[str]) -> None:
    """Run a command of Bakeoff in this process; write down where its CPU goes, by samples."""
    import atexit
    import runpy

    counts: Counter[str] = Counter()

    def sample(_: int, frame: FrameType | None) -> None:
        counts[_part(frame)] += 1

    def write() -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        shares.write_text(json.dumps(counts), encoding="utf-8")

    atexit.register(write)
    signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, _SAMPLE_S, _SAMPLE_S)
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def _part(frame: FrameType | None) -> str:
    """Return the part of the program that *frame* belongs to: the innermost one that is named."""
    part = None
    while frame is not None:
        file = frame.f_code.co_filename
        if file == "<frozen importlib._bootstrap>":
            return "imports"
        if part is None:
            part = _part_of_file(file)
        frame = frame.f_back
    return part or "event loop and others"


def _part_of_file(file: str) -> str | None:
    if file.startswith(_SOURCE):
        words = Path(file.removeprefix(_SOURCE).removesuffix(".py")).parts
        return ".".join(words[:2] if words[0] in {"models", "stores", "app", "core"} else words[:1])
    for package in ("aiohttp", "msgspec", "yarl", "rich"):
        if f"{os.sep}{package}{os.sep}" in file:
            return "aiohttp" if package == "yarl" else package
    return None


if __name__ == "__main__":
    if sys.argv[1:2] == ["minimal"]:
        uvloop.run(minimal(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])))
    elif sys.argv[1:2] == ["sampled"]:
        sampled(Path(sys.argv[2]), sys.argv[3:])
    else:
        parser = argparse.ArgumentParser()
        parser.add_argument("--count", type=int)
        parser.add_argument("--repetitions", type=int, default=REPETITIONS)
        given = parser.parse_args()
        report(measure(given.count, given.repetitions))
