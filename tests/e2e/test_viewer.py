"""`bakeoff view`: its pages in a real browser, over real ledgers, deaf to what models wrote."""

import html
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from bakeoff.core.candidate import PromptSpec
from bakeoff.core.plan import Trial
from bakeoff.core.record import Attempt, Score, Status
from bakeoff.stores.writing import FolderLock
from support.browser import Page, opened
from support.cli import BAKEOFF, bakeoff, started, until
from support.plans import attempt, candidate, plan, scored_by, task
from support.reports import write_run
from support.viewed_runs import HOSTILE, mostly, squares, worked
from support.viewers import Served, viewing

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    output = tmp_path_factory.mktemp("viewer")
    write_run(output / "r1", squares(), mostly, name="squares")
    better = squares()
    write_run(
        output / "r2", better, lambda t: attempt(score=float(t.task.id != "t001")), name="again"
    )
    hostile = [replace(task(HOSTILE, prompt=HOSTILE, scorers=scored_by("exact")), name=HOSTILE,
                       category=HOSTILE, target=HOSTILE)]  # fmt: skip
    odd = [replace(candidate("m"), id=HOSTILE)]
    write_run(output / "r3", plan(*hostile, candidates=odd), worked, name=HOSTILE)
    with viewing(output) as viewer:
        yield viewer


def quiet(page: Page, served: Served) -> None:
    assert page.said == []
    assert {url.partition("/")[0] + "//" + url.split("/")[2] for url in page.asked} == {
        served.origin
    }


def fits(page: Page, width: int) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"


def words(page: Page) -> str:
    return str(page.evaluate("document.body.innerText"))


PAGES = (
    "/", "/run/r1", "/run/r1/trials", "/run/r1/trial?of=t003&by=bad&beside=all",
    "/compare?run=r1&run=r2", "/compare?run=r1&by=good&by=bad", "/history", "/run/r1/explain",
)  # fmt: skip


def test_the_history_of_a_suite_has_a_chart_and_a_way_to_each_run(served: Served) -> None:
    with opened(served.at("/history")) as page:
        page.settled()
        page.open_everything()
        text = words(page)
        assert "squares: 1 run" in text
        assert "again: 1 run" in text
        assert page.evaluate("document.querySelectorAll('.chart svg').length") >= 4
        page.click("a[href='/run/r1']", until="document.title.startsWith('squares')")
        quiet(page, served)


def test_two_candidates_are_explained_from_the_page_of_their_run(served: Served) -> None:
    with opened(served.at("/run/r1")) as page:
        page.settled()
        page.click("button[formaction]", until="document.title.startsWith('Why they differ')")
        text = words(page)
        assert "good against bad" in text
        assert "good is ahead of bad by " in text
        assert "Part of the gap".casefold() in text.casefold()
        assert "the queue is full" in text
        page.click(
            "tr:has-text('the queue is full') small a", until="location.pathname == '/run/r1/trial'"
        )
        assert "the queue is full" in words(page), "an example of a failure leads to its trial"
        quiet(page, served)


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (1024, True), (390, False)])
def test_every_page_is_whole_and_quiet(served: Served, width: int, dark: bool) -> None:
    with opened(served.at("/"), width=width, dark=dark) as page:
        for path in PAGES:
            page.visit(served.origin + path)
            page.open_everything()
            fits(page, width)
            assert page.evaluate("document.querySelectorAll('h1').length") == 1, path
        page.browser.do(lambda: page.page.emulate_media(media="print"))
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == "rgb(246, 247, 249)", "what is printed is light"
        quiet(page, served)


def test_the_page_of_a_run_has_its_verdict_its_charts_and_a_way_to_every_trial(
    served: Served,
) -> None:
    with opened(served.at("/run/r1")) as page:
        page.settled()
        text = words(page)
        charts = page.evaluate("[...document.querySelectorAll('.chart b')].map(e => e.innerText)")
        cells = page.evaluate("document.querySelectorAll('#matrix a.mark').length")
        quiet(page, served)
        page.click("#matrix a.mark.broken", until="location.pathname == '/run/r1/trial'")
        page.settled()
        broken = words(page)
    assert "good solves 81.8 of 100 tasks more than bad" in text
    assert "48 planned = 46 scored + 2 infrastructure fault" in text
    assert "2 trials of bad broke: provider" in text
    assert charts == ["Score", "Score against time", "Difference", "pass@k and pass^k", "Score by category", "Latency", "Output tokens"]  # fmt: skip
    assert cells == 24
    assert "the queue is full" in broken


def test_the_runs_can_be_searched_and_two_of_them_compared(served: Served) -> None:
    with opened(served.at("/")) as page:
        page.browser.do(lambda: page.page.fill("input[name=q]", "r2"))
        page.wait("document.querySelectorAll('tbody tr').length == 1")
        assert page.evaluate("location.search") == "?q=r2"
        page.browser.do(lambda: page.page.fill("input[name=q]", ""))
        page.wait("document.querySelectorAll('tbody tr').length == 3")
        for run in ("r1", "r2"):
            page.click(
                f"input[value={run}]", until=f"document.querySelector('input[value={run}]').checked"
            )
        page.click("button[form=compare]", until="location.pathname == '/compare'")
        page.settled()
        text = words(page)
        quiet(page, served)
    assert "r1 → r2" in text
    assert "Better on 9 tasks" in text.replace("\n", " ")
    assert "Worse on 1 task" in text.replace("\n", " ")


def test_trials_are_filtered_and_each_view_has_a_link(served: Served) -> None:
    with opened(served.at("/run/r1/trials")) as page:
        page.browser.do(lambda: page.page.select_option("select[name=result]", "failed"))
        page.wait("document.body.innerText.includes('22 trials')")
        link = page.evaluate("location.href")
        page.visit(link)
        assert "22 trials" in words(page)
        assert page.evaluate("document.querySelector('select[name=result]').value") == "failed"
        quiet(page, served)


def test_a_text_is_found_in_what_was_asked_and_answered(served: Served) -> None:
    with opened(served.at("/run/r1/trials")) as page:
        page.browser.do(lambda: page.page.fill("input[name=text]", "Answer of BAD"))
        page.wait("document.querySelectorAll('mark').length == 22")
        link = page.evaluate("location.href")
        assert page.evaluate("document.querySelector('mark').innerText") == "answer of bad"
        page.click("tbody a", until="location.pathname == '/run/r1/trial'")
        page.wait("document.body.innerText.includes('an answer of bad')")
        page.press("ArrowRight", until="document.querySelector('h1')?.innerText == 't001'")
        assert "text=Answer" in page.evaluate("location.search"), (
            "it leads on within what was found"
        )
        page.visit(link)
        page.wait("document.querySelectorAll('mark').length == 22")
        quiet(page, served)
    assert rows_of(served, "/run/r1/trials?text=queue+is+full") == 2
    assert rows_of(served, "/run/r1/trials?text=ask+t007") == 4
    assert rows_of(served, "/run/r3/trials?text=%3Cscript%3E") == 1
    assert "<script>doc" not in served.get("/run/r3/trials?text=%3Cscript%3E")[2]


def rows_of(served: Served, path: str) -> int:
    """How many trials a view has, all its parts together, as a page goes on for more."""
    many = 0
    while path:
        _, _, text = served.get(path)
        many += text.count('data-name="Rollout"')
        more = re.search(r'hx-get="([^"]*part=more[^"]*)"', text)
        path = html.unescape(more[1]) if more else ""
    return many


def test_trials_are_found_by_tag_score_and_the_scorer_that_marked_them_down(tmp_path: Path) -> None:
    def graded(trial: Trial) -> Attempt:
        number = int(trial.task.id[1:])
        scores = tuple(
            Score(scorer=name, value=value)
            for name, value in (("exact", number / 11), ("polite", float(number % 4 > 0)))
        )
        return replace(attempt(score=number / 11), scores=scores)

    tagged = [
        replace(one, metadata={"tags": ["hard"] if number > 8 else ["easy"]})
        for number, one in enumerate(squares().tasks)
    ]
    given = plan(*tagged, candidates=[candidate("m")], rollouts=1)
    write_run(tmp_path / "r1", given, graded)
    with viewing(tmp_path) as viewer:
        assert rows_of(viewer, "/run/r1/trials") == 12
        assert rows_of(viewer, "/run/r1/trials?tag=hard") == 3
        assert rows_of(viewer, "/run/r1/trials?tag=nothing") == 0
        assert rows_of(viewer, "/run/r1/trials?least=0.5&most=0.75") == 3
        assert rows_of(viewer, "/run/r1/trials?scorer=polite") == 3
        assert rows_of(viewer, "/run/r1/trials?scorer=polite&tag=easy&text=ask+t004") == 1
        assert rows_of(viewer, "/run/r1/trials?least=nonsense") == 12


def test_the_list_of_trials_has_what_was_answered_and_why_it_failed(tmp_path: Path) -> None:
    def explained(trial: Trial) -> Attempt:
        if trial.rollout:
            return attempt(status=Status.FAULTED, message="the queue is full")
        score = Score(scorer="exact", value=0.0, explanation=f"expected 42 {HOSTILE}")
        given = attempt(score=0.0, answer="forty-one\n\nor so " + "x" * 5_000_000)
        return replace(given, scores=(score,))

    given = plan(task("t1", scorers=scored_by("exact")), candidates=[candidate("m")], rollouts=2)
    write_run(tmp_path / "r1", given, explained)
    with viewing(tmp_path) as viewer:
        text = viewer.get("/run/r1/trials")[2]
        assert "1 fault<" in viewer.get("/")[2]
    assert "forty-one or so xxx" in text
    assert "expected 42 &lt;script&gt;" in text
    assert "the queue is full" in text
    assert len(text) < 30_000


def test_the_keyboard_leads_through_lists_and_trials(served: Served) -> None:
    focused = "document.activeElement.closest('tr')?.rowIndex"
    with opened(served.at("/run/r1/trials")) as page:
        page.settled()
        for key, row in (("j", 1), ("j", 2), ("j", 3), ("k", 2)):
            page.press(key, until=f"{focused} == {row}")
        page.press("/", until="document.activeElement.name == 'text'")
        page.press("j", until="document.activeElement.value == 'j'")
        page.visit(f"{served.origin}/run/r1/trials")
        page.press("j", until=f"{focused} == 1")
        for key, there in (
            ("Enter", "location.pathname == '/run/r1/trial'"),
            ("j", "location.search.includes('by=bad')"),
            ("k", "location.search.includes('by=good')"),
            ("u", "location.pathname == '/run/r1/trials'"),
        ):
            page.press(key, until=there)
        quiet(page, served)


def test_a_page_says_that_its_viewer_was_stopped(tmp_path: Path) -> None:
    write_run(tmp_path / "r1", squares(), mostly)
    with ExitStack() as windows:
        with viewing(tmp_path) as viewer:
            page = windows.enter_context(opened(viewer.at("/run/r1/trials")))
            page.settled()
        page.browser.do(lambda: page.page.fill("input[name=task]", "t001"))
        page.wait("document.getElementById('lost').innerText.includes('does not answer')")


def test_the_keyboard_leads_from_trial_to_trial_within_what_was_filtered(served: Served) -> None:
    first = "/run/r1/trial?of=t000&by=bad&rollout=0&candidate=bad"
    with opened(served.at(first)) as page:
        seen = []
        for _ in range(3):
            page.press("ArrowRight", until="document.readyState == 'complete'")
            page.settled()
            seen.append(page.evaluate("document.querySelector('h1').innerText"))
        page.press("ArrowLeft", until="document.querySelector('h1').innerText == 't002'")
        assert "bad" in page.evaluate("document.querySelector('.eyebrow').innerText")
    assert seen == ["t001", "t002", "t003"]


def test_a_trial_shows_reasoning_tools_changes_scores_phases_and_the_raw_answer(
    served: Served,
) -> None:
    with opened(served.at("/run/r3/trials")) as page:
        page.click("tbody a", until="location.pathname == '/run/r3/trial'")
        page.settled()
        closed = words(page)
        page.open_everything()
        text = words(page)
        added = page.evaluate("[...document.querySelectorAll('pre .add')].map(e => e.innerText)")
    assert "total 0" in text
    assert "I think <script>" in text
    assert "I think <script>" not in closed, "reasoning is apart"
    assert "ls -l" in text
    assert "because <script>" in text
    assert "agent 2.5 s" in text
    assert added == ["+b</span><script>alert(4)</script>"]
    assert '"id": "<script>' in text


def test_what_a_model_wrote_is_text_on_every_page(served: Served) -> None:
    with opened(served.at("/")) as page:
        for path in ("/", "/run/r3", "/run/r3/trials", "/compare?run=r1&run=r3", "/history"):
            page.visit(served.origin + path)
            page.open_everything()
            scripts = page.evaluate(
                "[...document.querySelectorAll('script')].map(e => e.getAttribute('src'))"
            )
            tags = set(page.evaluate("[...document.querySelectorAll('*')].map(e => e.localName)"))
            hrefs = page.evaluate("[...document.links].map(e => e.getAttribute('href'))")
            assert all(re.fullmatch(r"/static/[a-z.-]+\.js", script) for script in scripts), path
            assert not tags & {"img", "iframe", "object", "embed", "style"}, path
            assert all(re.match("[/#]", href) for href in hrefs), path
            assert page.evaluate("document.title") != "owned"
            assert "gnp.exe" not in words(page) or "\u202e" not in words(page)
            assert "49" not in page.evaluate("document.querySelector('h1').innerText")
        page.visit(f"{served.origin}/run/r3/trials")
        page.click("tbody a", until="location.pathname == '/run/r3/trial'")
        page.open_everything()
        assert "<script>document.title = 'owned'" in words(page)
        quiet(page, served)


def test_a_run_of_another_process_is_followed_while_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "slow_parts.py").write_text(
        "import time\n\ndef slow(request):\n    time.sleep(0.1)\n    return 'done'\n"
    )
    tasks = "".join(
        f"[[tasks]]\nid = 't{n}'\nprompt = '{n}'\nexpected = 'done'\n" for n in range(200)
    )
    (tmp_path / "slow.toml").write_text(f"models = ['slow_parts:slow']\nparallel = 1\n{tasks}")
    runs = tmp_path / "runs"
    going: list[str | Path] = [*BAKEOFF, "run", tmp_path / "slow.toml", "--output", runs]
    with started(going, folder=tmp_path / "said") as running, viewing(runs) as viewer:
        until(lambda: list(runs.glob("*/manifest.json")))
        (run,) = runs.iterdir()
        count = "parseInt(document.querySelector('.progress b').innerText)"
        with opened(viewer.at(f"/run/{run.name}")) as page:
            before = page.evaluate(count)
            page.wait(f"{count} > {before} + 5")
            text = words(page)
            page.wait("document.body.innerText.includes('per second')")
            assert page.said == []
        running.process.send_signal(signal.SIGINT)
        running.process.wait(60)
    assert "running" in text


def test_a_run_that_is_damaged_or_empty_is_named_and_hides_no_other(tmp_path: Path) -> None:
    write_run(tmp_path / "r1", squares(), mostly)
    run = write_run(tmp_path / "r2", squares(), mostly)
    (run / "manifest.json").write_text("{")
    (run / "ledger.sqlite").write_bytes(b"not a database" * 100)
    with viewing(tmp_path) as viewer:
        status, _, text = viewer.get("/")
        assert status == 200
        assert "damaged" in text
        assert 'href="/run/r1"' in text
        status, _, text = viewer.get("/run/r2")
    assert status == 409
    assert "r2" in text


def test_the_state_of_a_run_that_is_written_is_running(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r1", squares(), lambda t: mostly(t) if t.rollout == 0 else None)
    with viewing(tmp_path) as viewer:
        assert "24 left" in viewer.get("/")[2]
        assert "So far: " in viewer.get("/run/r1/results")[2], "it was stopped"
        lock = FolderLock(run)
        try:
            assert ">running<" in viewer.get("/")[2]
            assert "So far: " in viewer.get("/run/r1/results")[2]
        finally:
            lock.release()


def test_candidates_that_were_asked_otherwise_each_have_their_own_question(tmp_path: Path) -> None:
    short, long = candidate("short"), candidate("long")
    asked = [
        replace(short, id="short", prompt=PromptSpec(name="short", text="In a word: {{prompt}}")),
        replace(long, id="long", prompt=PromptSpec(name="long", text="At length: {{prompt}}")),
    ]
    given = squares()
    block = replace(given.blocks[0], candidates=tuple(asked))
    write_run(tmp_path / "r1", replace(given, blocks=(block,)), lambda _: attempt())
    with viewing(tmp_path) as viewer:
        alone = viewer.get("/run/r1/trial?of=t001&by=short")[2]
        both = viewer.get("/run/r1/trial?of=t001&by=short&beside=long")[2]
    assert "In a word: ask t001" in alone
    assert "At length" not in alone
    assert both.index("In a word: ask t001") < both.index("At length: ask t001")


# --- who may see it


def test_without_the_token_nothing_is_shown(served: Served) -> None:
    for path in (*PAGES, "/run/r1/results", "/static/style.css", "/nothing"):
        status, _, text = served.get(path, known=False)
        assert status == 403, path
        assert "squares" not in text
    assert served.get("/?token=wrong", known=False)[0] == 403
    status, headers, _ = served.get(f"/run/r1?token={served.access.token}", known=False)
    assert (status, headers["Location"]) == (303, "/run/r1"), "it does not stay in the address"
    assert "HttpOnly" in headers["Set-Cookie"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1:1", "", "[::1"])
def test_a_name_that_was_rebound_to_this_machine_is_refused(served: Served, host: str) -> None:
    assert served.get("/", {"Host": host})[0] in {400, 403}


def test_a_page_of_another_origin_is_refused(served: Served) -> None:
    own = {"Origin": served.origin, "Host": f"127.0.0.1:{served.access.port}"}
    assert served.get("/", own)[0] == 200
    for foreign in ("http://evil.example", "null", f"https://127.0.0.1:{served.access.port}"):
        assert served.get("/", {"Origin": foreign})[0] == 403, foreign
    assert served.get("/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"})[0] == 403
    assert served.get("/", method="POST")[0] == 403, "what writes says where it comes from"


@pytest.mark.parametrize(
    "path",
    [
        "/run/..", "/run/%2e%2e", "/run/..%2fr1", "/run/%2e%2e%2f%2e%2e%2fetc", "/run/r1%00", "/run/.",
        "/static/..%2f..%2fserver.py", "/static/../server.py", "/static/server.py", "/run/nobody",
        "/run/r1/ledger.sqlite", "/run/linked", "/static/%2fetc%2fpasswd",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_folder_of_runs(served: Served, path: str) -> None:
    status, _, text = served.get(path)
    assert status in {400, 404}, text[:300]


def test_a_link_to_a_run_elsewhere_is_not_followed(tmp_path: Path) -> None:
    write_run(tmp_path / "elsewhere" / "r9", squares(), mostly)
    write_run(tmp_path / "runs" / "r1", squares(), mostly)
    (tmp_path / "runs" / "linked").symlink_to(tmp_path / "elsewhere" / "r9")
    with viewing(tmp_path / "runs") as viewer:
        assert viewer.get("/run/linked")[0] == 404
        assert "linked" not in viewer.get("/")[2]


def test_every_answer_says_what_a_page_may_load(served: Served) -> None:
    for path in ("/", "/run/r1/results", "/static/viewer.js", "/nothing", "/?token=wrong"):
        _, headers, _ = served.get(path)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy, path
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"


# --- the command


def test_the_command_prints_its_address_and_ends_at_ctrl_c(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "r1", squares(), mostly)
    going: list[str | Path] = [*BAKEOFF, "view", tmp_path / "runs", "--no-open"]
    with started(going, folder=tmp_path / "said") as running:
        until(lambda: "token=" in running.out)
        with opened(running.out.strip()) as page:
            assert "r1" in words(page)
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(60) == 0
    assert "Traceback" not in running.err


def test_a_mistake_on_the_command_line_is_told_in_a_line(tmp_path: Path, served: Served) -> None:
    missing = bakeoff("view", tmp_path / "nowhere", "--no-open", folder=tmp_path / "a")
    assert (missing.code, len(missing.err.splitlines())) == (1, 1)
    assert "there is no folder" in missing.err
    taken = bakeoff(
        "view", tmp_path, "--port", str(served.access.port), "--no-open", folder=tmp_path / "b"
    )
    assert taken.code == 1
    assert "choose another one with --port" in taken.err
