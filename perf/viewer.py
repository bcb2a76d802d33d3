"""The viewer over 100,000 trials of 20 candidates, and beside a run that goes on."""

import argparse
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
import threading
import urllib.request
from contextlib import closing, suppress
from http.cookiejar import CookieJar
from pathlib import Path
from statistics import median
from time import perf_counter

from perf.measure import PARALLEL, ROOT, Reading, child, cpu_s, peak_rss_mb, report, trials
from perf.workload import write_suite

CANDIDATES = 20
TRIALS = 100_000
LIVE_TRIALS = 20_000
PAIRS = 3
_VIEWS = (
    {"category": "group-3", "result": "failed"}, {"status": "faulted"},
    {"task": "0042"}, {"least": "0.5"}, {"text": "capital of france"}, {"text": "nothing has this"},
)  # fmt: skip


def measure() -> list[Reading]:
    """Make the pages of a large run, then watch a run that is going on."""
    with tempfile.TemporaryDirectory() as folder:
        child("viewer", "write", folder, trials(TRIALS))
        pages = child("viewer", "pages", folder)
        made = child("viewer", "report", folder)
        live = _live(Path(folder))
    size = f"{trials(TRIALS):,} trials of {CANDIDATES} candidates"
    return [
        Reading(name="viewer: CPU of the page of a run with its parts", value=pages["run_s"], unit="s", bar=1.0, note=size),
        Reading(name="viewer: the dearest filter or scroll", value=1000 * pages["view_s"], unit="ms", bar=200),
        Reading(name="viewer: CPU of one trial beside three others", value=1000 * pages["trial_s"], unit="ms"),
        Reading(name="viewer: peak memory", value=pages["peak_mb"], unit="MB", bar=300),
        Reading(name="HTML report: CPU", value=made["cpu_s"], unit="s", bar=30, note=size),
        Reading(name="HTML report: size", value=made["size_mb"], unit="MB", bar=5),
        Reading(name="a run with an open page: its CPU", value=live["ratio"], unit="× without", bar=1.05,
                note=f"{live['rate']:,.0f} trials per second; median of {PAIRS} pairs in turns"),
        Reading(name="the open page: how far it is behind", value=live["behind_s"], unit="s", bar=2.0),
        Reading(name="the viewer meanwhile: CPU", value=live["viewer_share"], unit="of a core"),
    ]  # fmt: skip


# --- in processes of their own


def write(folder: Path, count: int) -> dict[str, float]:
    """Run *count* trials of the scripted model, asked in twenty ways."""
    import bakeoff

    bakeoff.run(
        write_suite(folder, count // CANDIDATES),
        models=["scripted/echo"],
        prompts=[f"Variant {number}. {{{{prompt}}}}" for number in range(CANDIDATES)],
        parallel=PARALLEL,
        output=folder / "runs",
    )
    return {}


def pages(folder: Path) -> dict[str, float]:
    """Make the pages of the run as a browser asks for them: all parts of its page, views of its trials, a trial."""
    from bakeoff.web import run_page, trial_pages
    from bakeoff.web.runs import Runs

    runs = Runs(folder / "runs")
    run = runs.find(runs.entries()[0].folder.name)
    assert run is not None
    before_s = cpu_s()
    for make in (run_page.run_page, run_page.results_part, run_page.distributions_part):
        assert make(run)
    assert run_page.matrix_part(run, {})
    run_s = cpu_s() - before_s
    entries = run.queries.trials(trial_pages.TrialView().columns(run), limit=trials(TRIALS))
    scrolled = [{"part": "more", "after": str(entries[n].key)} for n in (0, len(entries) // 2, len(entries) - 2)]  # fmt: skip
    took = []
    views = ({"candidate": entries[0].candidate_id}, *_VIEWS)
    for view in (*scrolled, *({"part": "rows", **view} for view in views)):
        began = perf_counter()
        assert trial_pages.trials_page(run, view)
        took.append(perf_counter() - began)
    before_s = cpu_s()
    last = entries[-1]
    assert trial_pages.trial_page(run, {"of": last.task_id, "by": last.candidate_id, "beside": "all"})  # fmt: skip
    return {
        "run_s": run_s,
        "view_s": max(took),
        "trial_s": cpu_s() - before_s,
        "peak_mb": peak_rss_mb(),
    }


def report_once(folder: Path) -> dict[str, float]:
    """Write the HTML report of the run."""
    import bakeoff

    before_s = cpu_s()
    (path,) = bakeoff.report("latest", output=folder / "runs")
    return {"cpu_s": cpu_s() - before_s, "size_mb": path.stat().st_size / 1e6}


def run_once(folder: Path, count: int) -> dict[str, float]:
    """Run *count* trials of the scripted model, as fast as it goes."""
    import bakeoff

    suite = write_suite(folder, count)
    before_s, began = cpu_s(), perf_counter()
    bakeoff.run(suite, models=["scripted/echo"], parallel=PARALLEL, output=folder / "runs")
    return {"cpu_s": cpu_s() - before_s, "wall_s": perf_counter() - began}


# --- a run that is watched


def _live(folder: Path) -> dict[str, float]:
    count = trials(LIVE_TRIALS)
    ratios, rates, behind, shares = [], [], [0.0], []
    for number in range(PAIRS):
        alone = child("viewer", "run", _fresh(folder, f"alone{number}"), count)
        place = _fresh(folder, f"watched{number}")
        with _Watcher(place / "runs") as watcher:
            watched = child("viewer", "run", place, count)
        ratios.append(watched["cpu_s"] / alone["cpu_s"])
        rates.append(count / watched["wall_s"])
        behind += watcher.behind_s
        shares.append(watcher.cpu_s / watched["wall_s"])
    return {
        "ratio": median(ratios),
        "rate": median(rates),
        "behind_s": max(behind),
        "viewer_share": median(shares),
    }


def _fresh(folder: Path, name: str) -> Path:
    (folder / name / "runs").mkdir(parents=True)
    return folder / name


class _Watcher:
    """A viewer in a process of its own, and what an open page asks it for while a run goes on."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._over = threading.Event()
        self._counts: list[tuple[float, int]] = []
        self.behind_s: list[float] = []
        self.cpu_s = 0.0

    def __enter__(self) -> "_Watcher":
        command = [sys.executable, "-m", "bakeoff", "view", str(self._runs), "--no-open"]
        self._viewer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._viewer.stdout is not None
        self._url = self._viewer.stdout.readline().strip()
        self._threads = [threading.Thread(target=t) for t in (self._look, self._count)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        fields = Path(f"/proc/{self._viewer.pid}/stat").read_text().rpartition(")")[2].split()
        self.cpu_s = (int(fields[11]) + int(fields[12])) / 100
        self._viewer.terminate()
        self._viewer.wait()

    def _ledger(self) -> Path | None:
        return next(self._runs.glob("*/ledger.sqlite"), None)

    def _count(self) -> None:
        while not self._over.wait(0.05):
            if (path := self._ledger()) is None:
                continue
            with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:  # fmt: skip
                ended = db.execute("SELECT count(*) FROM attempt").fetchone()[0]
                self._counts.append((perf_counter(), ended))

    def _look(self) -> None:
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        opener.open(self._url).read()
        origin, seconds = self._url.partition("/?")[0], 0
        while not self._over.wait(1.0):
            if (path := self._ledger()) is None or not (path.parent / "manifest.json").is_file():
                continue
            page = f"{origin}/run/{path.parent.name}"
            text = opener.open(f"{page}/live").read().decode()
            found = re.search(r"<b>([\d,]+)</b>", text)
            if found and "Stop" in text:
                self._compare(int(found[1].replace(",", "")))
            if seconds % 10 == 0:
                opener.open(f"{page}/results").read()
            seconds += 1

    def _compare(self, shown: int) -> None:
        earlier = [at for at, ended in self._counts if ended <= shown]
        if earlier:
            self.behind_s.append(perf_counter() - max(earlier))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=("write", "pages", "report", "run"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("count", nargs="?", type=int)
    given = parser.parse_args()
    if given.part is None:
        report(measure())
    elif given.part == "write":
        print(json.dumps(write(given.folder, given.count)))
    elif given.part == "run":
        print(json.dumps(run_once(given.folder, given.count)))
    else:
        part = {"pages": pages, "report": report_once}[given.part]
        print(json.dumps(part(given.folder)))
