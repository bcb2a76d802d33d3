"""`bakeoff report` as a person uses it: real runs of every kind, their page in a real browser."""

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import cli
from support.agent_benches import Players, write_agent, write_base, write_bench
from support.browser import Page, opened
from support.cli import BAKEOFF, Ended, bakeoff, only_run, started, until
from support.coding_tasks import write_fix_add
from support.loopback import Loopback
from support.parts import require, require_embedded_model

pytestmark = pytest.mark.timeout(180)
ROOT = Path(__file__).parents[2]

HOSTILE = (
    "<script>document.title = 'owned'; alert(1)</script><img src=http://127.0.0.1:9/x onerror=alert(2)>"
    "</pre></details><style>body{display:none}</style><iframe src='http://127.0.0.1:9/'></iframe>"
    "<a href='javascript:alert(3)'>x</a><meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>"
)
MODELS = f"""
HOSTILE = {HOSTILE!r}

def number(request):
    return int(request.messages[-1].content.split()[-1])

def careful(request):
    return f"I think.\\n\\nIt is {{number(request) ** 2}}."

def hasty(request):
    n = number(request)
    if n == 7:
        raise ValueError("HTTP 503: the queue is full " + HOSTILE)
    return f"{{n ** 2 if (n + request.rollout) % 3 else 0}} " + HOSTILE
"""
TASK = """
[[tasks]]
id = {id}
category = "{category}"
prompt = "{hostile} The square of {n}"
expected = "{square}"
scorers = ["includes"]
"""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A folder to work in."""

    folder: Path

    def __call__(self, *words: str | Path, code: int = 0) -> Ended:
        ended = bakeoff(*words, folder=self.folder / "said", timeout_s=120)
        assert ended.code == code, ended
        assert "Traceback" not in ended.err
        return ended

    def reported(self, run: Path, *words: str | Path) -> Path:
        """The page of a run, by what the command prints."""
        return Path(self("report", run, *words).out.strip())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(folder=tmp_path)


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of two models of one's own, with a page."""
    place = Place(folder=tmp_path_factory.mktemp("squares"))
    run = ran(place, write_squares(place.folder), code=3)
    assert place.reported(run) == run / "report.html"
    return run


def write_squares(folder: Path, *, count: int = 12, rollouts: int = 2) -> Path:
    """A run file with two models of one's own, of which one is worse and writes HTML."""
    (folder / "squares_parts.py").write_text(MODELS)
    names = [f"'square <b>{n}</b>'" if n == 3 else f"'square-{n}'" for n in range(1, count + 1)]
    tasks = "".join(
        TASK.format(
            id=name, n=n, square=n * n, category="odd" if n % 2 else "even", hostile=HOSTILE
        )
        for n, name in enumerate(names, start=1)
    )
    head = 'name = "squares"\nmodels = ["squares_parts:careful", "squares_parts:hasty"]\n'
    path = folder / "squares.toml"
    path.write_text(f"{head}rollouts = {rollouts}\n{tasks}")
    return path


def ran(place: Place, *words: str | Path, code: int = 0) -> Path:
    place("run", *words, "--output", place.folder / "runs", code=code)
    return only_run(place.folder / "runs")


def quiet(page: Page, path: Path) -> None:
    assert page.said == []
    assert page.asked == [path.resolve().as_uri()], "the page asks for nothing but itself"


def fits(page: Page, width: int) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") == width, "nothing sticks out"
    over = page.evaluate(
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('pre, svg, .table') && "
        "e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert over == []


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_a_run_of_ones_own_models_has_a_whole_and_quiet_page(
    squares: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    path = squares / "report.html"
    with opened(path, width=width, dark=dark) as page:
        answer = page.evaluate("document.querySelector('.answer p').innerText")
        heads = page.evaluate("[...document.querySelectorAll('h2')].map(e => e.innerText)")
        page.open_everything()
        assert len(page.picture(tmp_path / "page.png")) > 50_000
        fits(page, width)
        text = page.evaluate("document.body.innerText")
        tags = set(page.evaluate("[...document.querySelectorAll('*')].map(e => e.localName)"))
        links = page.evaluate("[...document.links].map(e => e.getAttribute('href'))")
        lost = page.evaluate(
            "[...document.links].map(e => e.getAttribute('href'))"
            ".filter(link => !link.startsWith('#') || !document.getElementById(link.slice(1)))"
        )
        title = page.evaluate("document.title")
        quiet(page, path)
    assert answer.startswith("python/squares_parts:careful ")
    assert " more than python/squares_parts:hasty" in answer
    assert heads == [
        "Scores", "Differences", "pass@k and pass^k", "By category", "Time, tokens and cost",
        "Tasks", "Trials", "How it was measured",
    ]  # fmt: skip
    assert not tags & {"script", "img", "iframe", "form", "object", "embed"}
    assert lost == [], "every link leads to a place on the page"
    assert len([link for link in links if re.fullmatch(r"#task-\d+", link)]) == 12
    assert title.startswith("squares: ")
    for told in ("48 planned = 46 scored + 2 model error", "It is 16.", "square <b>3</b>",
                 "<script>document.title = 'owned'", "the queue is full", "A is better"):  # fmt: skip
        assert told in text, told


def test_a_task_in_the_grid_leads_to_its_trials(squares: Path) -> None:
    with opened(squares / "report.html") as page:
        opened_trial = "document.querySelectorAll('details[open].trial').length == 1"
        page.click(".grid tbody tr:nth-child(5) a", until=opened_trial)
        shown = page.evaluate("document.querySelector('details[open].trial h3').innerText")
        top = page.evaluate(
            "document.querySelector('details[open].trial').getBoundingClientRect().top"
        )
    assert shown == "square-5"
    assert 0 <= top < 900, "its head is in sight"


def test_the_policy_lets_no_script_run_even_if_one_got_in(squares: Path, tmp_path: Path) -> None:
    text = (squares / "report.html").read_text()
    path = tmp_path / "changed.html"
    path.write_text(text.replace("</main>", "<script>document.title = 'owned'</script></main>"))
    with opened(path) as page:
        assert page.evaluate("document.title") != "owned"
        assert any("Content Security Policy" in line for line in page.said)


def test_every_form_goes_where_it_is_told_to(place: Place) -> None:
    run = ran(place, write_squares(place.folder, count=4))
    to = place.folder / "new" / "place"
    names = ["report.html", "report.csv", "report.json", "junit.xml", "report.md"]
    ended = place("report", "latest", "--output", place.folder / "runs", "--to", to,
                  "--format", "html, csv,json,junit,md")  # fmt: skip
    assert ended.out.splitlines() == [str(to / name) for name in names]
    assert not list(run.glob("report.*")), "and nowhere else"
    assert sorted(p.name for p in to.iterdir()) == sorted(names)


def test_mistakes_are_told_in_one_line(place: Place) -> None:
    runs = place.folder / "runs"
    ran(place, write_squares(place.folder, count=2, rollouts=1))
    assert "no run 'nope' in" in place("report", "nope", "--output", runs, code=1).err
    wrong = place("report", "--output", runs, "--format", "pdf", code=1).err
    assert "a report has no format 'pdf'" in wrong
    assert "html" in wrong
    (place.folder / "file").touch()
    refused = place("report", "--output", runs, "--to", place.folder / "file", code=1).err
    assert "cannot be written: " in refused
    assert "--to" in refused
    for said in (wrong, refused):
        assert len(said.splitlines()) == 1


def test_a_run_that_goes_on_and_one_that_was_killed_say_so(place: Place) -> None:
    parts = "import time\n\ndef slow(request):\n    time.sleep(0.3)\n    return 'done'\n"
    (place.folder / "slow_parts.py").write_text(parts)
    tasks = "".join(
        f"[[tasks]]\nid = 't{n}'\nprompt = '{n}'\nexpected = 'done'\n" for n in range(200)
    )
    (place.folder / "slow.toml").write_text(f"models = ['slow_parts:slow']\nparallel = 1\n{tasks}")
    words: list[str | Path] = [
        *BAKEOFF,
        "run",
        place.folder / "slow.toml",
        "--output",
        place.folder / "runs",
    ]
    with started(words, folder=place.folder / "said") as running:
        until(lambda: list((place.folder / "runs").glob("*/manifest.json")))
        run = only_run(place.folder / "runs")
        until(lambda: "t1@" in place("show", run).out)
        going_on = place.reported(run).read_text()
        running.process.kill()
        running.process.wait(60)
    assert re.search(
        r"It was still running at \d{4}-.* UTC: \d+ of 200 trials were missing", going_on
    )
    assert "So far: python/slow_parts:slow scores 1.000" in going_on
    killed = place.reported(run).read_text()
    assert re.search(r"It is not finished: \d+ of 200 trials are missing\. Resume it", killed)
    assert re.search(r"200 planned = \d+ scored \+ \d+ not run", killed)


@pytest.mark.embedded
def test_a_real_model_has_its_score_in_words(place: Place) -> None:
    require_embedded_model()
    suite = ROOT / "examples" / "quick" / "suite.json"
    run = ran(place, suite, "--model", "embedded", "--limit", "3")
    path = place.reported(run)
    with opened(path, width=390) as page:
        answer = page.evaluate("document.querySelector('.answer').innerText")
        page.open_everything()
        fits(page, 390)
        text = page.evaluate("document.body.innerText")
        quiet(page, path)
    assert re.match(r"embedded/smollm2-135m scores \d\.\d{3}, between .* at 95 %\.", answer)
    assert "capital of France" in text
    assert "Differences" not in text, "there is nobody to compare it with"


def test_a_coding_run_shows_the_patch_and_what_the_tests_printed(place: Place) -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")
    run = ran(place, write_fix_add(place.folder), "--agent", "oracle", "--agent", "nop",
              "--sandbox", "bubblewrap")  # fmt: skip
    path = place.reported(run)
    with opened(path) as page:
        page.open_everything()
        fits(page, 1280)
        added = page.evaluate("[...document.querySelectorAll('pre .add')].map(e => e.innerText)")
        text = page.evaluate("document.body.innerText")
        quiet(page, path)
    assert any("a + b" in line for line in added)
    assert "Nothing was changed." in text
    assert "sandbox bubblewrap" in text


def test_an_agent_benchmark_shows_the_conversation(place: Place) -> None:
    write_bench(place.folder, ["alpha", "beta"])
    with Loopback(Players(2)) as server:
        table = {"results": "results", "log_path": "logs", "checkpoint_path": "checkpoints"}
        write_base(place.folder, server.url, benchmark={**table, "benchmark_dir": "bench"})
        write_agent(place.folder, "first", server.url)
        write_agent(place.folder, "second", server.url, temperature=0.9)
        words = [sys.executable, str(ROOT / "runner.py")]
        assert cli.run(words, cwd=place.folder, timeout_s=120).code == 0
    (results,) = (place.folder / "results").iterdir()
    path = place.reported(results)
    assert path == results / "run" / "report.html"
    with opened(path, width=390) as page:
        page.open_everything()
        fits(page, 390)
        head = page.evaluate("document.querySelector('header').innerText")
        text = page.evaluate("document.body.innerText")
        quiet(page, path)
    assert results.name in head
    assert "this is message 1" in text
    assert "No candidates can be compared." in text
