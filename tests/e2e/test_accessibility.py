"""Every page in a real browser, looked over by axe-core: no serious fault for whoever cannot see or use a mouse."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import bakeoff
from bakeoff.frontends.batch.files import write_report
from support.batches import failed, solved, timed_out, write_batch
from support.browser import Page, opened
from support.plans import attempt
from support.reports import write_run
from support.viewed_runs import mostly, squares, worked
from support.viewers import Served, viewing

pytestmark = pytest.mark.timeout(240)
AXE = (Path(__file__).parents[1] / "fixtures" / "axe.min.js").read_text(encoding="utf-8")
CHECK = """
axe.run(document, {resultTypes: ["violations"]}).then(found => found.violations
  .filter(v => ["serious", "critical"].includes(v.impact))
  .flatMap(v => v.nodes.slice(0, 5).map(n => `${v.id}: ${n.html.slice(0, 120)} | ${n.failureSummary}`)))
"""
PAGES = (
    "/", "/run/r1", "/run/r1/trials", "/run/r1/trial?of=t003&by=bad&beside=all", "/run/r1/trial?of=t001&by=good",
    "/compare?run=r1&run=r2", "/compare?run=r1&by=good&by=bad", "/history", "/run/r1/explain",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Pages:
    """A viewer, and the reports of a run and of a batch."""

    served: Served
    reports: tuple[Path, ...]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    output = tmp_path_factory.mktemp("axe")
    run = write_run(
        output / "r1", squares(), lambda t: worked(t) if t.task.id == "t001" else mostly(t)
    )
    write_run(output / "r2", squares(), lambda t: attempt(score=float(t.task.id != "t001")))
    (report,) = bakeoff.report(run, to=output / "report")
    batch = write_batch(
        tmp_path_factory.mktemp("batch"),
        {"ollama/a": [solved(3.0), failed(9.0)], "ollama/b": [timed_out()] * 2},
    )
    write_report(batch)
    with viewing(output) as served:
        yield Pages(served=served, reports=(report, batch.folder / "comparison_report.html"))


def faults(page: Page) -> list[str]:
    page.open_everything()
    page.evaluate(AXE)
    found: list[str] = page.evaluate(CHECK)
    return found


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (390, True)])
def test_no_page_of_the_viewer_has_a_serious_fault(pages: Pages, width: int, dark: bool) -> None:
    with opened(pages.served.at("/"), width=width, dark=dark) as page:
        found = []
        for path in PAGES:
            page.visit(pages.served.origin + path)
            found += [f"{path} {fault}" for fault in faults(page)]
    assert found == []


@pytest.mark.parametrize("dark", [False, True])
def test_no_report_has_a_serious_fault(pages: Pages, dark: bool) -> None:
    found = []
    for report in pages.reports:
        with opened(report, dark=dark) as page:
            found += [f"{report.name} {fault}" for fault in faults(page)]
    assert found == []


def test_axe_finds_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "wrong.html"
    path.write_text("<!doctype html><title>x</title><body><img src=data:,><button></button>")
    with opened(path) as page:
        found = faults(page)
    assert any(fault.startswith("image-alt") for fault in found)
    assert any(fault.startswith("button-name") for fault in found)
