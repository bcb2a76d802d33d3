"""What the viewer's pages do: compare, explain, remember, stop and resume; and who may not."""

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import bakeoff
from bakeoff.app.labels import read_labels
from bakeoff.core.record import Attempt
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.run_notes import RunNotes, read_notes
from bakeoff.stores.writing import being_written
from support.browser import Page, opened
from support.cli import BAKEOFF, only_run, started, until
from support.plans import attempt
from support.reports import write_run
from support.viewed_runs import HOSTILE, mostly, squares
from support.viewers import Served, viewing

pytestmark = pytest.mark.timeout(180)
NAMES = ("good", "bad", "other")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    output = tmp_path_factory.mktemp("actions")
    write_run(output / "r1", squares(NAMES), mostly, name="squares")
    write_run(output / "r2", squares(NAMES), lambda t: attempt(score=float(t.task.id != "t001")))
    write_run(output / "r3", squares(NAMES[:2], 1), lambda _: attempt(score=0.0))
    with viewing(output) as viewer:
        yield viewer


def words(page: Page) -> str:
    return str(page.evaluate("document.body.innerText"))


# --- charts


def hover(page: Page, selector: str) -> None:
    page.wait(f"document.querySelector({selector!r})")
    page.browser.do(lambda: page.page.hover(selector, force=True))


def test_a_chart_explains_its_marks_and_leads_to_their_trials(served: Served) -> None:
    with opened(served.at("/run/r1")) as page:
        page.settled()
        page.wait("document.querySelectorAll('.drawn:not(.ready)').length == 0")
        hover(page, ".bar_marks path:nth-child(1)")
        page.wait("document.querySelector('.tip')?.innerText.startsWith('good: 0.9')")
        assert "95 % interval" in page.evaluate("document.querySelector('.tip').innerText")
        page.browser.do(lambda: page.page.click(".bar_marks path:nth-child(1)", force=True))
        page.wait("location.pathname == '/run/r1/trials'")
        assert page.evaluate("location.search") == "?candidate=good"
        assert page.said == []
        assert all(url.startswith(served.origin) for url in page.asked)


def test_a_name_in_a_legend_leaves_only_its_line(served: Served) -> None:
    lines = "[...document.querySelectorAll('#results .chart:has(.role-legend) .mark-line path')].map(e => +(e.getAttribute('opacity') ?? 1))"
    with opened(served.at("/run/r1")) as page:
        page.settled()
        page.wait(f"{lines}.length > 1")
        assert set(page.evaluate(lines)) == {1}
        legend = "#results .drawn .role-legend-label text"
        page.browser.do(lambda: page.page.locator(legend).first.click(force=True))
        page.wait(f"new Set({lines}).size == 2")
        assert page.said == []


def test_the_specification_of_the_viewer_is_the_one_that_a_report_draws(served: Served) -> None:
    _, _, text = served.get("/run/r1/results")
    titles = re.findall(r'<figure class="chart"><figcaption><b>([^<]*)', text)
    (report,) = bakeoff.report(served_folder(served) / "r1", to=served_folder(served) / "report")
    drawn = re.findall(r'<figure class="chart"><figcaption><b>([^<]*)', report.read_text())
    assert titles == drawn
    assert len(titles) == text.count("data-spec=")
    assert report.read_text().count("<svg") == len(drawn)


def served_folder(served: Served) -> Path:
    _, _, text = served.get("/")
    found = re.search(r'<p class="quiet">\d+ runs? in ([^<]*)</p>', text)
    assert found is not None
    return Path(found[1])


# --- comparing


def test_any_number_of_runs_are_beside_each_other(served: Served) -> None:
    with opened(served.at("/compare?run=r3&run=r1&run=r2")) as page:
        page.settled()
        text = words(page)
        heads = page.evaluate(
            "[...document.querySelectorAll('#matrix th')].map(e => e.innerText.replace('\\n', ' '))"
        )
        page.visit(f"{served.origin}/compare?run=r1&run=r2")
        before = page.evaluate("document.querySelectorAll('#matrix tbody tr').length")
        page.click(
            "#matrix input", until="document.querySelectorAll('#matrix tbody tr').length < 12"
        )
        after = page.evaluate("document.querySelectorAll('#matrix tbody tr').length")
        assert page.said == []
        page.click("#matrix a.mark", until="location.pathname.endsWith('/trial')")
    assert "2 later runs against r1" in text
    assert heads == ["Task", "good r1", "good r2", "good r3", "bad r1", "bad r2", "bad r3", "other r1", "other r2"]  # fmt: skip
    assert text.index("what moved in r2") < text.index("Differences")
    assert "What was run differently" in text
    assert (before, after) == (12, 11)


def test_candidates_of_one_run_are_compared_task_by_task_as_the_run_did(served: Served) -> None:
    with opened(served.at("/run/r1")) as page:
        page.settled()
        page.click(".choose button", until="location.pathname == '/compare'")
        page.settled()
        text = words(page)
        page.click(".moved a", until="location.pathname == '/run/r1/trial'")
    summary = bakeoff.load_run(served_folder(served) / "r1").summary()
    assert summary.pairwise is not None
    assert "bad against good" in text
    assert "good is better on 10 tasks" in text
    assert "bad is better on 1 task" in text
    assert "0.818" in text.replace("−", "-")


def test_what_cannot_be_compared_is_told_in_a_sentence(served: Served) -> None:
    for path, told in (
        ("/compare", "Tick two or more"), ("/compare?run=r1", "Tick two or more"),
        ("/compare?run=r1&by=good&by=nobody", "no candidate"), ("/compare?run=..&run=r1", "Tick two"),
    ):  # fmt: skip
        status, _, text = served.get(path)
        assert status == 200
        assert told in text, path


def test_several_runs_are_one_report_that_needs_nothing_else(
    served: Served, tmp_path: Path
) -> None:
    folder = served_folder(served)
    (path,) = bakeoff.report([folder / "r1", folder / "r2", folder / "r3"], to=tmp_path)
    assert path.name == "comparison.html"
    with opened(path) as page:
        text = words(page)
        assert page.said == []
        assert len(page.asked) == 1
        assert page.evaluate("document.querySelectorAll('script').length") == 0
        assert page.evaluate("document.querySelectorAll('.chart svg').length") == 2
    assert "r1 → r2" in text
    assert "r1 → r3" in text
    assert "Better on 9 tasks" in text
    with pytest.raises(bakeoff.UsageError, match="compare --json"):
        bakeoff.report([folder / "r1", folder / "r2"], formats=["csv"])


# --- tags and notes


def test_tags_and_a_note_are_kept_shown_as_text_and_found(tmp_path: Path) -> None:
    write_run(tmp_path / "r1", squares(), mostly)
    write_run(tmp_path / "r2", squares(), mostly)
    with viewing(tmp_path) as viewer, opened(viewer.at("/run/r1")) as page:
        page.open_everything()
        page.browser.do(lambda: page.page.fill("input[name=tags]", "baseline, <b>odd</b>"))
        page.browser.do(lambda: page.page.fill("textarea[name=note]", f"shorter prompt {HOSTILE}"))
        page.click(".editor button", until="document.querySelectorAll('#notes .tag').length == 2")
        assert "shorter prompt <script>" in words(page)
        page.visit(f"{viewer.origin}/?tag=baseline")
        assert page.evaluate("document.querySelectorAll('tbody tr').length") == 1
        assert "shorter prompt" in words(page)
        assert page.evaluate("document.title") != "owned"
        assert page.said == []
    kept = read_notes(tmp_path / "r1")
    assert kept.tags == ("baseline", "<b>odd</b>")
    assert "\x1b" not in kept.note
    assert read_notes(tmp_path / "r2") == RunNotes()


def test_what_a_person_cannot_have_as_tags_is_told(tmp_path: Path) -> None:
    write_run(tmp_path / "r1", squares(), mostly)
    with viewing(tmp_path) as viewer:
        own = {"Origin": viewer.origin}
        many = " ".join(f"t{n}" for n in range(30))
        assert "20 tags at most" in viewer.post("/run/r1/notes", {"tags": many}, own)[2]
        assert "is longer than 40" in viewer.post("/run/r1/notes", {"tags": "x" * 50}, own)[2]
    assert read_notes(tmp_path / "r1") == RunNotes()


# --- labels


def test_a_person_labels_trials_by_key_and_finds_those_that_were_scored_otherwise(
    tmp_path: Path,
) -> None:
    write_run(tmp_path / "r1", squares(), mostly)
    chosen = "document.querySelector('.label-form .chosen')?.innerText"
    rows = "document.querySelectorAll('tbody tr').length"
    with viewing(tmp_path) as viewer, opened(viewer.at("/run/r1/trials")) as page:
        assert page.evaluate("document.querySelector('select[name=label]')") is None
        page.visit(f"{viewer.origin}/run/r1/trial?of=t000&by=good&rollout=0")
        page.press("y", until=f"{chosen} == 'right'")
        page.settled()  # the form that came in its place does what it is for
        page.press("n", until=f"{chosen} == 'wrong'")
        page.settled()
        page.browser.do(lambda: page.page.fill("input[name=note]", f"why {HOSTILE}"))
        page.browser.do(lambda: page.page.keyboard.press("Enter"))
        until(lambda: read_labels(tmp_path / "r1")["t000", "good", 0].note.startswith("why"))
        page.wait("document.activeElement.name != 'note'")  # keys are keys again
        page.settled()
        page.press("j", until="location.search.includes('by=bad')")
        page.settled()
        page.press("n", until=f"{chosen} == 'wrong'")
        page.visit(f"{viewer.origin}/run/r1/trials?label=not+as+scored")
        assert page.evaluate(rows) == 1
        assert "you: wrong" in words(page)
        assert "why <script>" in words(page)
        page.visit(f"{viewer.origin}/run/r1/trials?label=wrong")
        assert page.evaluate(rows) == 2
        page.visit(f"{viewer.origin}/run/r1/trials?label=none")
        assert "46 trials" in words(page)
        assert page.said == []
    kept = read_labels(tmp_path / "r1")
    assert {key: label.text for key, label in kept.items()} == {
        ("t000", "good", 0): "fail", ("t000", "bad", 0): "fail",
    }  # fmt: skip
    assert "\x1b" not in kept["t000", "good", 0].note
    (found,) = bakeoff.agreement(tmp_path / "r1", labels=tmp_path / "r1/labels.csv")
    assert found.answers == 2


def test_what_is_no_trial_or_cannot_be_kept_is_told(tmp_path: Path) -> None:
    write_run(tmp_path / "r1", squares(), mostly)
    with viewing(tmp_path) as viewer:
        own = {"Origin": viewer.origin}
        form = {"of": "t000", "by": "good", "rollout": "0", "label": "pass"}
        told = viewer.post("/run/r1/label", {**form, "by": "nobody"}, own)[2]
        assert "There is no such trial" in told
        assert not (tmp_path / "r1/labels.csv").exists()
        (tmp_path / "r1/labels.csv").write_text("task\n")
        assert "no column" in viewer.post("/run/r1/label", form, own)[2]
        assert viewer.get("/run/r1/trials?label=right")[0] == 200


# --- stop and resume

SLOW = """
import time

def slow(request):
    time.sleep(0.1)
    return "done"
"""


def write_slow_suite(folder: Path) -> Path:
    (folder / "slow_parts.py").write_text(SLOW)
    tasks = "".join(
        f"[[tasks]]\nid = 't{n}'\nprompt = '{n}'\nexpected = 'done'\n" for n in range(40)
    )
    path = folder / "slow.toml"
    path.write_text(f"models = ['slow_parts:slow']\nparallel = 1\n{tasks}")
    return path


def test_a_run_is_stopped_and_resumed_with_a_button(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    going: list[str | Path] = [*BAKEOFF, "run", write_slow_suite(tmp_path), "--output", runs]
    with started(going, folder=tmp_path / "said") as running, viewing(runs) as viewer:
        until(lambda: list(runs.glob("*/manifest.json")))
        run = only_run(runs)
        with opened(viewer.at(f"/run/{run.name}")) as page:
            page.click("#live button", until="document.body.innerText.includes('Stopping')")
            assert running.process.wait(60) == 130, "as after Ctrl-C"
            page.wait("document.querySelector('#live button')?.innerText == 'Resume'")
            stopped = SqliteLedger(run, trusting=True).finished()
            assert 0 < stopped < 40
            page.click("#live button", until="document.body.innerText.includes('40 of 40')")
            until(lambda: not being_written(run))
            page.wait("document.querySelector('#live .chip').innerText == 'done'")
            page.wait("!document.querySelector('#results').innerText.includes('So far')")
            assert page.said == []
    assert SqliteLedger(run, trusting=True).finished() == 40
    assert (run / "resume.log").is_file()


def test_a_resume_that_cannot_be_says_why_on_the_page(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    suite = write_slow_suite(tmp_path)
    going: list[str | Path] = [*BAKEOFF, "run", suite, "--output", runs]
    with started(going, folder=tmp_path / "said") as running:
        until(lambda: list(runs.glob("*/manifest.json")))
        running.process.send_signal(signal.SIGINT)
        running.process.wait(60)
    (tmp_path / "slow_parts.py").unlink()
    run = only_run(runs)
    with viewing(runs) as viewer, opened(viewer.at(f"/run/{run.name}")) as page:
        page.browser.do(lambda: page.page.click("#live button"))
        deadline = time.monotonic() + 60
        while "slow_parts" not in page.evaluate("document.querySelector('#live').innerText"):
            assert time.monotonic() < deadline
            page.visit(f"{viewer.origin}/run/{run.name}")
            time.sleep(0.3)
        assert "Traceback" not in words(page)


def test_what_runs_nowhere_is_not_stopped_and_a_replay_is_resumed_by_hand(tmp_path: Path) -> None:
    from dataclasses import replace

    from bakeoff._lib.redact import Redactor
    from bakeoff.stores.folders import read_manifest, write_manifest

    run = write_run(tmp_path / "r1", squares(), lambda t: attempt() if t.rollout == 0 else None)
    manifest = replace(read_manifest(run), command=("run", "suite.json", "--replay", "tapes"))
    write_manifest(run, manifest, Redactor())
    with viewing(tmp_path) as viewer:
        own = {"Origin": viewer.origin}
        assert "nothing to stop" in viewer.post("/run/r1/stop", {}, own)[2]
        assert "was started with --replay" in viewer.post("/run/r1/resume", {}, own)[2]
        assert "disabled" in viewer.get("/run/r1/live")[2]
    assert not being_written(run)


# --- who may


@pytest.mark.parametrize("action", ["label", "notes", "stop", "resume"])
def test_an_action_needs_the_token_and_the_origin_of_the_viewer(
    served: Served, action: str
) -> None:
    path, own = f"/run/r1/{action}", {"Origin": served.origin}
    form = {"tags": "stolen"}
    assert served.post(path, form, own, known=False)[0] == 403, "no token"
    assert served.post(path, form, {})[0] == 403, "no origin"
    for foreign in ("http://evil.example", "null", served.origin.replace("http:", "https:")):
        assert served.post(path, form, {"Origin": foreign})[0] == 403, foreign
    assert served.post(path, form, {**own, "Host": "evil.example"})[0] == 403
    assert served.get(path, own)[0] == 405, "a link does nothing"
    assert served.post("/run/..%2fr1/" + action, form, own)[0] == 404
    assert served.post("/run/nobody/" + action, form, own)[0] == 404
    assert read_notes(served_folder(served) / "r1") == RunNotes()


def test_beyond_this_machine_the_token_is_needed_as_well(tmp_path: Path) -> None:
    write_run(tmp_path / "r1", squares(), mostly)
    with viewing(tmp_path, host="0.0.0.0") as viewer:
        host = {"Host": f"127.0.0.1:{viewer.access.port}"}
        assert viewer.get("/run/r1", host, known=False)[0] == 403
        assert viewer.get("/run/r1", host)[0] == 200
        assert viewer.get("/run/r1", {"Host": f"evil.example:{viewer.access.port}"})[0] == 403


def long_lines(trial: object) -> Attempt:
    return attempt(score=0.0, answer="\u202e" + "x<b>" * (5 * 2**20 // 4))


def test_a_line_of_5_mb_is_cut_on_every_page(tmp_path: Path) -> None:
    write_run(tmp_path / "r1", squares(rollouts=1), long_lines)
    with viewing(tmp_path) as viewer:
        paths = ("/run/r1/trial?of=t001&by=good&beside=all", "/run/r1/trials?text=xxx", "/run/r1/trials?text=x%3Cb%3Ex")  # fmt: skip
        for path in paths:
            status, _, text = viewer.get(path)
            assert status == 200
            assert len(text) < 300_000, path
            assert "<b>x" not in text
            assert "\u202e" not in text
        with opened(viewer.at(paths[0])) as page:
            assert page.evaluate("document.documentElement.scrollWidth") <= 1280
            assert page.said == []
