"""CPU of a trial (request, score, durable record) over CPU of the bare HTTP client's request."""

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from statistics import median

from perf.fast_server import serving
from perf.measure import PARALLEL, Reading, child, cpu_s, report, trials
from perf.workload import MODEL, Books, prompt, write_suite

BAR = 3.0
TRIALS = 10_000
REPETITIONS = 5  # short and in turns: whatever else the machine does hits both alike
_TESTS = 500


def measure() -> list[Reading]:
    """Run floor and bakeoff in turns against one server."""
    count = max(trials(TRIALS) // _TESTS, 1) * _TESTS
    floors, costs, ratios = [], [], []
    with serving() as url:
        for _ in range(REPETITIONS):
            floor = child("trial_cost", "floor", url, count)
            ours = child("trial_cost", "bakeoff", url, count)
            floors.append(floor["us"])
            costs.append(ours["us"])
            ratios.append(ours["us"] / floor["us"])
    note = f"each of {count:,} trials, {PARALLEL} at once, median of {REPETITIONS}"
    return [
        Reading(name="bare client: CPU per request", value=median(floors), unit="µs", note=note),
        Reading(name="bakeoff: CPU per trial", value=median(costs), unit="µs", note=note),
        Reading(
            name="CPU per trial / bare request",
            value=median(ratios),
            unit="×",
            bar=BAR,
            note=f"cheapest / cheapest {min(costs) / min(floors):.2f}; pairs: "
            + ", ".join(f"{r:.2f}" for r in ratios),
        ),
    ]


def floor(url: str, count: int) -> dict[str, float]:
    """Ask *count* times with aiohttp alone, set up as cheaply as it can be."""
    import aiohttp
    import uvloop

    async def ask_all() -> float:
        numbers = iter(range(count))
        bodies = [_body(number) for number in range(_TESTS)]
        headers = {"Content-Type": "application/json"}

        async def worker(session: aiohttp.ClientSession) -> None:
            for number in numbers:
                body = bodies[number % _TESTS]
                async with session.post(target, data=body, headers=headers) as response:
                    assert response.status == 200
                    await response.read()

        target = f"{url}/chat/completions"
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
        ) as session:
            began = cpu_s()
            async with asyncio.TaskGroup() as group:
                for _ in range(PARALLEL):
                    group.create_task(worker(session))
            return cpu_s() - began

    return {"us": uvloop.run(ask_all()) / count * 1e6}


def bakeoff(url: str, count: int) -> dict[str, float]:
    """Run *count* trials, from the first request to the last durable record."""
    import bakeoff as product

    books = Books(every=count)
    with tempfile.TemporaryDirectory() as folder:
        product.run(
            write_suite(Path(folder), _TESTS),
            models=[MODEL],
            base_url=url,
            rollouts=count // _TESTS,
            parallel=PARALLEL,
            output=folder,
            listener=books,
        )
    assert (books.ended, books.passed) == (count, count * 3 // 4)
    return {"us": (books.cpu[count] - books.cpu[0]) / count * 1e6}


def _body(number: int) -> bytes:
    messages = [{"role": "user", "content": prompt(number)}]
    return json.dumps({"model": MODEL, "messages": messages}, separators=(",", ":")).encode()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("part", nargs="?", choices=["floor", "bakeoff"])
    parser.add_argument("url", nargs="?")
    parser.add_argument("count", nargs="?", type=int)
    given = parser.parse_args()
    if given.part is None:
        report(measure())
    run_part = floor if given.part == "floor" else bakeoff
    print(json.dumps(run_part(given.url, given.count)))
