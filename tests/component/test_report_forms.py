"""Reports of runs in a real ledger: every form, what is missing, what is not over, what is hostile."""

import asyncio
import csv
import json
import re
import resource
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import bakeoff
from bakeoff.core.candidate import Candidate
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.record import Attempt, Status
from bakeoff.core.run_spec import Adaptive
from bakeoff.reports.html import trials
from bakeoff.reports.html import trials as selection
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.ledger_writer import SqliteStore
from bakeoff.stores.writing import FolderLock, being_written
from support.cli import started, until
from support.plans import attempt, candidate, plan, scored_by, task, tasks
from support.reports import write_run

FORMS = ("html", "csv", "json", "junit", "md")
FORMULAS = ("=1+1", "+1", "-1", "@x", "\t=2", "\r=3")


def bench(count: int = 12, rollouts: int = 2, names: tuple[str, ...] = ("good", "bad")) -> Plan:
    given = tasks(count, scorers=scored_by("exact"), category="easy")
    return plan(*given, candidates=[candidate(name) for name in names], rollouts=rollouts)


def mostly(trial: Trial) -> Attempt:
    """Good is right but once, bad is wrong but once, and a trial of bad breaks."""
    number, is_good = int(trial.task.id[1:]), trial.candidate.id == "good"
    if not is_good and number == 3 and trial.rollout == 1:
        return attempt(status=Status.FAULTED, message="the queue is full")
    odd = number == 5
    return attempt(score=float(is_good != odd), answer=f"an answer of {trial.candidate.id}")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def words(html: str) -> str:
    """The text of a page as a reader would see it, roughly."""
    return " ".join(re.sub(r"<[^>]+>", " ", html.rpartition("</head>")[2]).split())


# --- the forms


def test_each_form_is_a_file_in_the_run_folder_and_all_agree(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r1", bench(), mostly)
    html, table, data, junit, page = bakeoff.report(run, formats=FORMS)
    assert [p.name for p in (html, table, data, junit, page)] == [
        "report.html", "report.csv", "report.json", "junit.xml", "report.md",
    ]  # fmt: skip
    assert {p.parent for p in (html, table, data, junit, page)} == {run}
    told = "good solves 83.3 of 100 tasks more than bad"
    assert told in words(read(html))
    assert told in read(page)
    found = json.loads(read(data))
    assert (found["running"], found["standing"]) == (False, None)
    assert found["summary"]["buckets"]["scored"] == 47
    assert len(found["trials"]) == 48 == len(list(csv.DictReader(read(table).splitlines())))
    suites = ET.fromstring(read(junit))
    assert {name: int(suites.attrib[name]) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": 48, "failures": 2 + 21, "errors": 1, "skipped": 0,
    }  # fmt: skip


def test_the_counts_in_junit_are_those_of_its_elements(tmp_path: Path) -> None:
    def some(trial: Trial) -> Attempt | None:
        number = int(trial.task.id[1:])
        ends = (
            attempt(score=None), attempt(score=0.0, status=Status.LIMITED), None,
            attempt(status=Status.CANCELLED), attempt(score=1.0, status=Status.LIMITED),
            attempt(score=None, status=Status.LIMITED), attempt(score=0.5),
        )  # fmt: skip
        return ends[number % len(ends)]

    run = write_run(tmp_path / "r1", bench(count=14), some)
    (path,) = bakeoff.report(run, formats=["junit"])
    for suite in ET.parse(path).getroot():
        inside = [child.tag for case in suite for child in case]
        assert int(suite.attrib["tests"]) == len(suite) == 28
        assert int(suite.attrib["failures"]) == inside.count("failure") == 12
        assert int(suite.attrib["errors"]) == inside.count("error") == 0
        assert int(suite.attrib["skipped"]) == inside.count("skipped") == 12


def test_the_csv_has_a_line_for_each_planned_trial_and_says_what_was_not_run(
    tmp_path: Path,
) -> None:
    run = write_run(tmp_path / "r1", bench(), lambda t: mostly(t) if t.rollout == 0 else None)
    (path,) = bakeoff.report(run, formats=["csv"])
    rows = list(csv.DictReader(read(path).splitlines()))
    assert len(rows) == 48
    assert sum(row["status"] == "not run" for row in rows) == 24
    assert {row["passed"] for row in rows} == {"true", "false", ""}
    assert len({(r["task"], r["candidate"], r["rollout"]) for r in rows}) == 48


def test_the_page_shows_scores_differences_passes_tasks_trials_and_settings(tmp_path: Path) -> None:
    given = bench()
    mixed = tuple(
        replace(t, category="hard" if n % 2 else "easy") for n, t in enumerate(given.tasks)
    )
    block = replace(given.blocks[0], tasks=mixed)
    run = write_run(tmp_path / "r1", replace(given, blocks=(block,)), mostly)
    (path,) = bakeoff.report(run)
    page = read(path)
    for head in ("Scores", "Differences", "pass@k and pass^k", "By category",
                 "Time, tokens and cost", "Tasks", "Trials", "How it was measured"):  # fmt: skip
        assert f">{head}</h2>" in page
    text = words(page)
    for part in ("48 planned = 47 scored + 1 infrastructure fault", "ask t0003", "an answer of bad",
                 "provider: the queue is full", "bakeoff run suite.json --rollouts 2",
                 "easy", "hard", "1 fault"):  # fmt: skip
        assert part in text, part
    assert page.count("</details>") == page.count("<details")
    assert page.count("</div>") == page.count("<div")


def test_the_page_asks_for_nothing_and_runs_nothing(tmp_path: Path) -> None:
    (path,) = bakeoff.report(write_run(tmp_path / "r1", bench(), mostly))
    page = read(path)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    assert policy[1].startswith("default-src 'none'; style-src 'sha256-")
    assert not re.search(r"<script|<link(?! rel=\"icon\")|\bon\w+=|https?:|style=|url\(", page)


def test_a_run_of_an_earlier_version_has_a_report(tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden" / "ledger_1"
    paths = bakeoff.report(golden, to=tmp_path, formats=FORMS)
    assert [path.parent for path in paths] == [tmp_path] * len(FORMS)
    assert "How it was measured" in read(tmp_path / "report.html")


def test_of_more_than_two_the_ranks_are_told_that_the_data_leave_open(tmp_path: Path) -> None:
    def ended(trial: Trial) -> Attempt:
        return attempt(score=float(trial.candidate.id != "bad"))

    run = write_run(tmp_path / "r1", bench(rollouts=1, names=("bad", "one", "two")), ended)
    (path,) = bakeoff.report(run)
    scores = words(read(path).partition(">Scores</h2>")[2].partition("<h2")[0])
    assert "No decision: the best is one of one, two." in words(read(path))
    assert re.findall(r"(one|two|bad) (1–2|3) ", scores) == [
        ("one", "1–2"),
        ("two", "1–2"),
        ("bad", "3"),
    ]


# --- adaptive runs


def test_what_an_adaptive_run_did_not_need_is_shown_as_that(tmp_path: Path) -> None:
    rule = Adaptive()
    given = bench(count=60, rollouts=1)
    order = [one.id for one in given.drawn_tasks(rule.seed)]
    first = frozenset(order[:30])
    run = write_run(
        tmp_path / "r1", given,
        lambda t: attempt(score=float(t.candidate.id == "good")) if t.task.id in first else None,
        adaptive=rule,
    )  # fmt: skip
    html, table, data, junit, _ = bakeoff.report(run, formats=FORMS)
    text = words(read(html))
    assert "good solves 58.5 to 100 of 100 tasks more than bad" in text
    assert "120 planned = 60 scored + 60 not needed" in text
    assert "So far" not in text
    assert "It is not finished" not in text
    assert "anytime-valid" in text
    assert '<span class="mark none">not needed</span>' in read(html)
    assert sum(",not needed," in line for line in read(table).splitlines()) == 60
    statuses = [trial["status"] for trial in json.loads(read(data))["trials"]]
    assert statuses.count("not_needed") == 60
    assert ET.parse(junit).getroot().attrib["skipped"] == "60"


# --- runs that are not over


def test_a_run_that_was_cut_off_is_reported_with_what_is_there_and_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r1", bench(), lambda t: mostly(t) if t.rollout == 0 else None)
    html, page = bakeoff.report(run, formats=["html", "md"])
    for text in (words(read(html)), read(page)):
        assert "It is not finished: 24 of 48 trials are missing. Resume it" in text
    assert "So far: good solves 83.3 of 100 tasks more than bad" in words(read(html))


def test_a_run_of_which_nothing_is_recorded_has_a_report(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r1", bench(), lambda _: None)
    for path in bakeoff.report(run, formats=FORMS):
        assert path.stat().st_size
    assert "No candidates can be compared." in words(read(run / "report.html"))


def test_a_run_that_goes_on_says_that_it_was_still_running(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r1", bench(), lambda t: mostly(t) if t.rollout == 0 else None)
    lock = FolderLock(run)
    try:
        (path,) = bakeoff.report(run, formats=["json"])
    finally:
        lock.release()
    found = json.loads(read(path))
    assert found["running"] is True
    assert found["standing"].endswith("24 of 48 trials were missing then.")
    assert "still running at 20" in found["standing"]


def test_all_parts_of_a_report_are_of_one_moment(tmp_path: Path) -> None:
    given = bench()
    run = write_run(tmp_path / "r1", given, lambda t: mostly(t) if t.rollout == 0 else None)
    store = SqliteStore(run)
    try:
        ledger = SqliteLedger(run)
        with ledger.at_one_moment():
            before = sum(1 for _ in ledger.rows())
            _append(store, given)
            assert sum(1 for _ in ledger.rows()) == before == 24
        assert sum(1 for _ in ledger.rows()) == 48
    finally:
        _close(store)


def _append(store: SqliteStore, given: Plan) -> None:
    store.freeze(given)

    async def rest() -> None:
        for trial in given:
            if trial.rollout == 1:
                await store.append(trial, mostly(trial))

    asyncio.run(rest())


def _close(store: SqliteStore) -> None:
    asyncio.run(store.close())


def test_a_lock_is_held_by_a_process_that_lives_and_by_no_other(tmp_path: Path) -> None:
    assert not being_written(tmp_path), "nobody ever wrote there"
    program = (
        "import sys, time; from pathlib import Path; from bakeoff.stores.writing import FolderLock; "
        "lock = FolderLock(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    )
    with started([sys.executable, "-c", program, tmp_path], folder=tmp_path / "out") as holder:
        until(lambda: "held" in holder.out)
        assert being_written(tmp_path)
        holder.process.kill()
        holder.process.wait(60)
        assert not being_written(tmp_path)


# --- mistakes


def test_a_format_that_there_is_not_is_named_with_those_there_are(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r1", bench(), mostly)
    with pytest.raises(UsageError, match=r"a report has no format 'htm'; .*html"):
        bakeoff.report(run, formats=["csv", "htm"])
    assert not (run / "report.csv").exists(), "nothing is written before all is known to be right"


def test_a_run_that_there_is_not_is_a_mistake_in_words(tmp_path: Path) -> None:
    write_run(tmp_path / "r1", bench(), mostly)
    with pytest.raises(UsageError, match="no run 'rr' in"):
        bakeoff.report("rr", output=tmp_path)


def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r1", bench(), mostly)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match=r"file.report\.html cannot be written: .*--to"):
        bakeoff.report(run, to=tmp_path / "file")


def test_a_run_that_never_began_has_nothing_to_report(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r1", bench(), mostly)
    (run / "manifest.json").unlink()
    with pytest.raises(UsageError, match="cut off before its first trial"):
        bakeoff.report(run)


def test_a_report_that_breaks_leaves_the_old_one_and_no_litter(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r1", bench(count=1), mostly)
    to = tmp_path / "to"
    (path,) = bakeoff.report(run, to=to)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))  # as on a disk that is full
    try:
        with pytest.raises(UsageError, match="cannot be written"):
            bakeoff.report(run, to=to)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert list(to.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# --- what others wrote

HOSTILE = "<script>alert(1)</script></pre></details><img src=x onerror=alert(2)>&\x1b[31m\x00\u202ex\ufffe]]>"


def _hostile() -> Plan:
    named = [*(f"{formula}<b>" for formula in FORMULAS), HOSTILE, "a|b", "`x`"]
    given = [
        replace(task(name, prompt=HOSTILE, scorers=scored_by("exact")), name=HOSTILE,
                category=HOSTILE, target=HOSTILE)
        for name in named
    ]  # fmt: skip
    odd = [replace(candidate("m"), id="=cmd|' /C calc'!A0"), replace(candidate("n"), id=HOSTILE)]
    return plan(*given, candidates=[_distinct(c, n) for n, c in enumerate(odd)])


def _distinct(one: Candidate, number: int) -> Candidate:
    return replace(one, model=replace(one.model, parameters={"temperature": number}))


def test_what_others_wrote_is_text_in_every_form(tmp_path: Path) -> None:
    def ended(trial: Trial) -> Attempt:
        if trial.task.id == "a|b":
            return attempt(status=Status.FAULTED, message=HOSTILE)
        return attempt(score=0.0, answer=HOSTILE)

    run = write_run(tmp_path / "r1", _hostile(), ended, name=HOSTILE)
    html, table, data, junit, page = bakeoff.report(run, formats=FORMS)
    text = read(html)
    assert "<script" not in text
    assert "<img" not in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", text)
    for row in csv.reader(read(table).splitlines()):
        assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in row)
    assert json.loads(read(data))["manifest"]["name"] == HOSTILE
    assert {suite.attrib["tests"] for suite in ET.fromstring(read(junit))} == {"9"}
    assert "<script" not in read(page).replace(r"\<script", "")
    for line in read(page).splitlines():
        if line.startswith("| "):
            assert len(re.findall(r"(?<!\\)\|", line)) in {6, 7, 8, 9}, line


def test_no_form_has_a_secret_of_the_environment_or_of_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, written = 'sk-"quoted"-0123456789<abc>', "sk-literal-0123456789"
    monkeypatch.setenv("REPORT_TEST_KEY", key)
    spec = candidate("m")
    named = replace(
        spec,
        model=replace(spec.model, api_key="${REPORT_TEST_KEY}", headers={"X-Api-Key": written}),
    )
    given = plan(
        task("t1", prompt=f"my key is {key}", target=written, scorers=scored_by("exact")),
        candidates=[named],
    )
    run = write_run(
        tmp_path / "r1", given, lambda _: attempt(score=0.0, answer=f"{key} and {written}, yes")
    )
    assert key in next(iter(SqliteLedger(run).records())).attempt.outcome.answer, (
        "or it tests nothing"
    )
    for path in bakeoff.report(run, formats=FORMS):
        text = read(path)
        assert "0123456789" not in text, path.name
    assert "[redacted] and [redacted], yes" in words(read(run / "report.html"))


# --- many


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that has room for very little."""
    monkeypatch.setattr(selection, "MOST_ROWS", 5)
    monkeypatch.setattr(selection, "MOST_TRIALS", 8)
    monkeypatch.setattr(selection, "MOST_TRIALS_OF_A_TASK", 4)


@pytest.mark.usefixtures("few")
def test_a_large_run_shows_the_tasks_that_tell_most_and_says_so(tmp_path: Path) -> None:
    def ended(trial: Trial) -> Attempt:
        differs = trial.task.id in {"t0007", "t0011"} and trial.candidate.id == "bad"
        return attempt(score=float(not differs), answer=f"said of {trial.name}")

    run = write_run(tmp_path / "r1", bench(rollouts=3), ended)
    (path,) = bakeoff.report(run)
    page = read(path)
    grid = page.partition(">Tasks</h2>")[2].partition(">Trials</h2>")[0]
    assert grid.count("<tr>") == 1 + 5
    assert {"t0007", "t0011"} <= set(re.findall(r"t\d{4}", grid))
    assert "5 of 12 tasks, those on which the candidates differ most" in words(page)
    assert "2 tasks, the most informative, 2 rollouts of each" in words(page)
    told = re.findall(r"said of (t\d+@\w+#\d)", page)
    assert sorted(told) == sorted(
        f"{t}@{c}#{r}" for t in ("t0007", "t0011") for c in ("good", "bad") for r in (0, 1)
    )


def test_a_page_that_is_long_enough_says_where_the_rest_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_MOST_EVIDENCE", 30_000)
    run = write_run(tmp_path / "r1", bench(), lambda _: attempt(answer="word " * 1_000))
    (path,) = bakeoff.report(run)
    page = read(path)
    assert page.count("</div></details>") >= 12, "each task has its place"
    assert 5 <= page.count("word " * 1_000) <= 7
    assert f"at its size limit; any other trial: bakeoff show r1 TASK --output {tmp_path}" in words(
        page
    )


def test_the_memory_of_a_report_does_not_grow_with_the_number_of_trials(tmp_path: Path) -> None:
    def size(rollouts: int) -> tuple[int, int]:
        run = write_run(tmp_path / f"r{rollouts}", bench(count=20, rollouts=rollouts), mostly)
        program = (
            "import resource, sys, bakeoff; bakeoff.report(sys.argv[1], formats=['html', 'csv', 'junit']);"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, str(run)], capture_output=True, text=True, check=True
        )
        return int(done.stdout), (run / "report.html").stat().st_size

    (small_kb, _), (large_kb, page) = size(10), size(250)
    assert large_kb - small_kb < 20_000, (
        "10,000 trials take no more than 400, but for a few bytes each"
    )
    assert page < 3_000_000
