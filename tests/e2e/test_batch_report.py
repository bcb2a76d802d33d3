"""The report of a batch in a real browser: whole, quiet, alone, and deaf to what models wrote."""

import re
from pathlib import Path

import pytest

from bakeoff.frontends.batch.files import write_report
from support.batches import broken, failed, solved, timed_out, unchecked, write_batch
from support.browser import Page, opened

pytestmark = pytest.mark.timeout(120)

HOSTILE = (
    "<script>document.title = 'owned'; alert(1)</script><img src=http://127.0.0.1:9/x onerror=alert(2)>"
    "</pre></details><style>body{display:none}</style><iframe src='http://127.0.0.1:9/'></iframe>"
    "<a href='javascript:alert(3)'>x</a><form action='http://127.0.0.1:9/'><meta http-equiv=refresh "
    "content='0;url=http://127.0.0.1:9/'>\x1b[31mred\x07\x00 \u202egnp.exe\u202c \u2066x"
)
HOSTILE_PATCH = f"""\
diff --git a/x.py b/x.py
--- a/x.py
+++ b/x.py
@@ -1 +1 @@
-{HOSTILE}
+</span></pre><script>alert(4)</script>
"""


def report(tmp_path: Path, name: str = "several") -> Path:
    batch = write_batch(
        tmp_path,
        {
            "ollama/llama3:8b": [solved(14.2), solved(15.0), solved(13.1), failed(20.0)],
            "openai/GPT-4=gpt-4": [solved(21.0, cost=0.04) for _ in range(4)],
            f"ollama/{'very-' * 20}long:name": [solved(9.0, prompts=3)] * 4,
            "ollama/mistral:latest": [timed_out()] * 3 + [broken()],
        },
    )
    write_report(batch)
    return batch.folder / "comparison_report.html"


def quiet(page: Page, path: Path) -> None:
    assert page.said == []
    assert page.asked == [path.resolve().as_uri()], "the page asks for nothing but itself"


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_it_shows_whole_without_a_word_on_the_console_or_a_request(
    tmp_path: Path, width: int, dark: bool
) -> None:
    path = report(tmp_path)
    with opened(path, width=width, dark=dark) as page:
        page.open_everything()
        picture = page.picture(tmp_path / "page.png")
        assert len(picture) > 50_000
        assert page.evaluate("document.documentElement.scrollWidth") == width, "nothing sticks out"
        over = page.evaluate(
            "[...document.querySelectorAll('main *')].filter(e => !e.closest('pre, svg, .table') && "
            "e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
        )
        assert over == []
        headings = page.evaluate("[...document.querySelectorAll('h2')].map(e => e.innerText)")
        quiet(page, path)
    assert headings == [
        "Results",
        "Rankings",
        "Charts",
        "Models",
        "How it was measured",
        "The task",
    ]


def test_it_has_summary_results_rankings_charts_details_and_machine(tmp_path: Path) -> None:
    path = report(tmp_path)
    with opened(path) as page:
        rows = page.evaluate("document.querySelectorAll('tbody tr').length")
        podiums = page.evaluate(
            "[...document.querySelectorAll('.podium h3')].map(e => e.innerText)"
        )
        charts = page.evaluate("[...document.querySelectorAll('.chart b')].map(e => e.innerText)")
        whiskers = page.evaluate("document.querySelectorAll('.chart .whisker_marks line').length")
        page.open_everything()
        text = page.evaluate("document.body.innerText")
        added = page.evaluate("getComputedStyle(document.querySelector('pre .add')).color")
        plain = page.evaluate("getComputedStyle(document.querySelector('pre.diff')).color")
        quiet(page, path)
    assert rows == 4
    assert podiums == ["Fastest", "Most efficient", "Most autonomous", "Surest and fastest"]
    assert charts == ["Success", "Time", "Prompts", "Tokens", "Cost"]
    assert whiskers
    assert added != plain, "a diff has its colours, although no style may be inline"
    for told in ("+GREETING", "I look for the word first.", "grep -rn Helo", "2 of 2 tests passed",
                 "A processor with a name", "0.5.4", "9f9f9f", "GPT-4", "the time limit of 120 s",
                 "could be rank", "Kaplan-Meier"):  # fmt: skip
        assert told in text, told


def test_what_a_model_wrote_is_text_and_nothing_else(tmp_path: Path) -> None:
    batch = write_batch(
        tmp_path,
        {
            f"ollama/{HOSTILE}": [solved(3.0, words=HOSTILE, patch=HOSTILE_PATCH)],
            "ollama/plain": [broken(HOSTILE)],
        },
        title=HOSTILE,
    )
    write_report(batch)
    path = batch.folder / "comparison_report.html"
    with opened(path) as page:
        page.open_everything()
        tags = set(page.evaluate("[...document.querySelectorAll('*')].map(e => e.localName)"))
        text = page.evaluate("document.body.textContent")
        links = page.evaluate("[...document.links].map(e => e.getAttribute('href'))")
        title = page.evaluate("document.title")
        shown = page.evaluate("getComputedStyle(document.body).display")
        quiet(page, path)
    assert not tags & {"script", "img", "iframe", "form", "object", "embed"}
    assert links == ["#model-1", "#model-2"], "the only links are ours, within the page"
    assert "<script>document.title = 'owned'" in text, "it is shown as it was written"
    assert title != "owned"
    assert shown == "block"
    source = path.read_bytes()
    assert not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", source)
    assert "\u202e" not in source.decode()
    assert len(list(batch.folder.glob("*_result.json"))) == 2, "a name is never a path"
    for cell in (batch.folder / "comparison_report.csv").read_text().splitlines():
        assert not cell.startswith(("=", "+", "-", "@"))


def test_the_policy_lets_no_script_run_even_if_one_got_in(tmp_path: Path) -> None:
    path = report(tmp_path)
    text = path.read_text()
    path.write_text(text.replace("</main>", "<script>document.title = 'owned'</script></main>"))
    with opened(path) as page:
        assert page.evaluate("document.title") != "owned"
        assert any("Content Security Policy" in line for line in page.said)


def test_a_name_in_the_results_leads_to_what_that_model_did(tmp_path: Path) -> None:
    path = report(tmp_path)
    with opened(path) as page:
        opened_model = "document.querySelectorAll('details[open].model').length == 1"
        page.click("tbody tr:nth-child(3) a", until=opened_model)
        shown = page.evaluate("document.querySelector('details[open].model h3').innerText")
        row = page.evaluate("document.querySelector('tbody tr:nth-child(3) a').innerText")
        top = page.evaluate(
            "document.querySelector('details[open].model').getBoundingClientRect().top"
        )
    assert shown == row == "GPT-4"
    assert 0 <= top < 900, "its head is in sight"


def test_a_command_is_shown_as_it_would_be_typed_and_the_id_as_it_is_written(
    tmp_path: Path,
) -> None:
    with opened(report(tmp_path)) as page:
        page.open_everything()
        call = page.evaluate("document.querySelector('.call pre').innerText")
        head = page.evaluate("document.querySelector('header').innerText")
    assert call == "grep -rn Helo ."
    assert "batch_20251116_050640" in head


def test_where_nobody_solved_it_there_is_nobody_to_rank_and_no_cost_to_draw(tmp_path: Path) -> None:
    batch = write_batch(tmp_path, {"ollama/a": [failed(3.0)], "ollama/b": [broken()]})
    write_report(batch)
    with opened(batch.folder / "comparison_report.html") as page:
        text = page.evaluate("document.body.innerText")
        podiums = page.evaluate("document.querySelectorAll('.podium').length")
        tiles = page.evaluate("[...document.querySelectorAll('.tile')].map(e => e.innerText)")
    assert podiums == 0
    assert "Nothing to rank: no model is known to have solved the task." in text
    assert "grey: did not solve the task" in text
    assert "No chart of cost: no price is known" in text
    assert [tile.split("\n") for tile in tiles[:4]] == [
        ["2", "models tested"], ["0", "solved the task"], ["1", "did not"], ["1", "broke"],
    ]  # fmt: skip


def test_one_rollout_is_said_to_be_a_single_observation(tmp_path: Path) -> None:
    batch = write_batch(tmp_path, {"ollama/a": [solved(3.0)], "ollama/b": [solved(4.0)]})
    write_report(batch)
    with opened(batch.folder / "comparison_report.html") as page:
        text = page.evaluate("document.body.innerText")
    assert "every rank is a single observation" in text
    assert "A single observation: another run may put them in another order." in text


def test_what_nobody_checked_is_never_shown_as_a_success(tmp_path: Path) -> None:
    batch = write_batch(tmp_path, {"ollama/a": [unchecked(3.0)]}, checked=False)
    write_report(batch)
    with opened(batch.folder / "comparison_report.html") as page:
        text = page.evaluate("document.body.innerText")
        chips = page.evaluate("[...document.querySelectorAll('.chip')].map(e => e.innerText)")
    assert set(chips) == {"unchecked"}
    assert "Nothing to rank: no model is known to have solved the task." in text
