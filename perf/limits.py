"""How long a run takes at servers that refuse, fail or queue, over a minimal runner's time."""

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from perf.limit_server import Rule, counts, serving
from perf.measure import Reading, child, report, trials
from perf.trial_cost import _body
from perf.workload import MODEL, Books, write_suite

_Seen = tuple[dict[str, float], dict[str, float]]  # by the runner, and by the server


@dataclass(frozen=True, kw_only=True)
class Row:
    """A server, how much is asked of it, and what must be reached.

    Without `ideal` (answers per second) the minimal runner's time in the same run is the floor. Where
    chance decides, it is the median of so many `rounds`: a prompt that fails five times waits for 3 s.
    """

    name: str
    rule: Rule
    tests: int = 2000
    parallel: int = 64
    ideal: float | None = None
    bar: float = 1.3
    most_refused: int | None = None
    rounds: int = 1


BAD_DAY = Rule(refused=0.05, failed=0.03, reset=0.01, cut=0.01, retry_after_s=0.1)
ROWS = {
    "bad_day": Row(name="5 % 429, 3 % 500, 1 % reset, 1 % cut", rule=BAD_DAY, rounds=5),
    "twenty": Row(
        name="20/s, 429 + Retry-After 1",
        rule=Rule(per_second=20, retry_after_s=1),
        tests=300,
        ideal=20,
        bar=1 / 0.95,
        most_refused=10,
    ),
    "two_hundred": Row(
        name="200/s, 429 + Retry-After 1",
        rule=Rule(per_second=200, retry_after_s=1),
        ideal=200,
        bar=1 / 0.95,
        most_refused=10,
    ),
    "queues": Row(name="queues above 8", rule=Rule(workers=8), tests=1500, ideal=160, bar=1 / 0.9),
    "places": Row(name="refuses above 16 under way", rule=Rule(places=16), ideal=320, bar=1 / 0.85),
    "places_wait": Row(
        name="refuses above 16 under way, Retry-After 1",
        rule=Rule(places=16, retry_after_s=1),
        tests=4000,
        ideal=320,
        bar=1 / 0.85,
    ),
    "clean_64": Row(name="clean, 64 at once", rule=Rule(), ideal=1280, bar=1 / 0.9),
    "clean_256": Row(
        name="clean, 256 at once",
        rule=Rule(),
        tests=20_000,
        parallel=256,
        ideal=5120,
        bar=1 / 0.9,
    ),
    "shut": Row(name="429 on everything for 20 s, then fine", rule=Rule(shut_s=20.0)),
    "shut_long": Row(name="429 on everything for 5 min, then fine", rule=Rule(shut_s=300.0)),
}
QUICK = [name for name in ROWS if name != "shut_long"]


def measure(only: list[str] | None = None) -> list[Reading]:
    """Run every row, the minimal runner first, each against a server of its own."""
    readings = []
    for row in [ROWS[name] for name in only or QUICK]:
        pairs = [(_run("floor", row), _run("bakeoff", row)) for _ in range(row.rounds)]
        (floor, _), (ours, seen) = (_median(runs) for runs in zip(*pairs, strict=True))
        readings += _readings(row, floor, ours, seen)
    return readings


def _median(runs: Iterable[_Seen]) -> _Seen:
    """Return the run that took longer than half of the others."""
    ordered = sorted(runs, key=lambda run: run[0]["s"])
    return ordered[len(ordered) // 2]


def _run(part: str, row: Row) -> _Seen:
    with serving(row.rule) as url:
        done = child("limits", part, url, trials(row.tests), row.parallel)
        return done, counts(url)


def _readings(
    row: Row, floor: dict[str, float], ours: dict[str, float], seen: dict[str, float]
) -> list[Reading]:
    tests, load = trials(row.tests), os.getloadavg()[0]
    rate = seen["answered"] / max(seen["answers_s"], 0.001)
    note = (
        f"{tests:,} tests in {ours['s']:.1f} s (minimal {floor['s']:.1f} s); "
        f"{rate:,.0f} answers/s; refused {seen['refused']:.0f}, faults {ours['faults']:.0f}; "
        f"load {load:.0f}"
    )
    if row.rule.shut_s:
        late_s = seen["first_answer_s"] - row.rule.shut_s
        return [
            Reading(name=f"{row.name}: answered again after", value=late_s, unit="s", bar=12.5),
            Reading(name=f"{row.name}: then", value=seen["answers_s"], unit="s", note=note),
        ]
    if row.ideal is None:
        value, name = ours["s"] / floor["s"], f"{row.name}: time / minimal runner"
    else:
        value, name = row.ideal / rate, f"{row.name}: ideal rate / rate"
    readings = [Reading(name=name, value=value, unit="×", bar=row.bar, note=note)]
    if row.most_refused is not None:
        readings.append(
            Reading(name=f"{row.name}: refused", value=seen["refused"], bar=row.most_refused)
        )
    return readings


def floor(url: str, count: int, parallel: int) -> dict[str, float]:
    """Ask *count* times with aiohttp alone, as many at once as may be, each until it is answered."""
    import aiohttp
    import uvloop

    async def ask(session: aiohttp.ClientSession, body: bytes) -> None:
        delay_s = 0.1
        while True:
            try:
                async with session.post(f"{url}/chat/completions", data=body) as response:
                    text = await response.read()
                    if response.status == 200:
                        assert json.loads(text)["choices"]
                        return
                    after = response.headers.get("Retry-After")
            except aiohttp.ClientError:
                after = None
            await asyncio.sleep((float(after) if after else delay_s) * random.uniform(1, 1.25))
            delay_s = min(2 * delay_s, 10)

    async def ask_all() -> float:
        numbers = iter(range(count))

        async def worker() -> None:
            for number in numbers:
                await ask(session, _body(number))

        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            began = time.monotonic()
            async with asyncio.TaskGroup() as group:
                for _ in range(parallel):
                    group.create_task(worker())
            return time.monotonic() - began

    return {"s": uvloop.run(ask_all())}


def bakeoff(url: str, count: int, parallel: int) -> dict[str, float]:
    """Run *count* tests, and return how long that took from the first trial to the last."""
    import bakeoff as product

    books = Books(every=count)
    began = 0.0

    def listen(event: object) -> None:
        nonlocal began
        if type(event).__name__ == "RunStarted":
            began = time.monotonic()
        books(event)

    with tempfile.TemporaryDirectory() as folder:
        product.run(
            write_suite(Path(folder), count),
            models=[MODEL],
            base_url=url,
            parallel=parallel,
            output=folder,
            listener=listen,
        )
        took_s = time.monotonic() - began
    assert books.ended == count
    return {"s": took_s, "faults": count * 3 // 4 - books.passed}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "part", nargs="?", default="measure", choices=["floor", "bakeoff", "measure"]
    )
    parser.add_argument("url", nargs="?")
    parser.add_argument("count", nargs="?", type=int)
    parser.add_argument("parallel", nargs="?", type=int)
    parser.add_argument("--only", nargs="+", choices=ROWS)
    given = parser.parse_args()
    if given.part == "measure":
        report(measure(given.only))
    run_part = floor if given.part == "floor" else bakeoff
    print(json.dumps(run_part(given.url, given.count, given.parallel)))
