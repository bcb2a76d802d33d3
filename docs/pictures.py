"""Take the pictures of the docs, of real runs: `python -m docs.pictures --report REPORT.html` or `--runs FOLDER`.

The first takes the top of a report; the other serves the newest run in a folder and takes the pages of the viewer.
"""

import asyncio
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from shutil import which
from typing import Any

from bakeoff.stores.folders import list_runs
from bakeoff.web.server import serving

IMAGES = Path(__file__).parent / "images"


async def take_report(browser: Any, report: str) -> None:
    """Keep the top of a report."""
    page = await browser.new_page(viewport={"width": 1120, "height": 950})
    await page.goto(report)
    await page.screenshot(path=IMAGES / "report.png")


async def take_viewer(browser: Any, runs: Path) -> None:
    """Keep the page of the newest run, in the light, and of one of its trials, in the dark."""
    run = list_runs(runs)[-1].folder.name
    async with serving(runs) as viewer:
        address = viewer.url.partition("/?")[0]
        for name, path, scheme in (
            ("viewer-run", f"/run/{run}", "light"),
            ("viewer-trial", "", "dark"),
        ):
            context = await browser.new_context(
                viewport={"width": 1200, "height": 860}, color_scheme=scheme
            )
            page = await context.new_page()
            await page.goto(viewer.url)
            await page.goto(f"{address}{path or f'/run/{run}'}", wait_until="networkidle")
            if not path:  # the task on which the candidates are furthest apart
                await page.click("#matrix a.mark")
                await page.wait_for_load_state("networkidle")
            await page.screenshot(path=IMAGES / f"{name}.png")


def _address(text: str) -> str:
    return Path(text).resolve().as_uri()


async def main(argv: Sequence[str]) -> int:
    """Open each page in Chromium and keep what is seen of it."""
    from playwright.async_api import async_playwright

    parser = ArgumentParser(prog="python -m docs.pictures")
    parser.add_argument("--report", type=_address, help="the page of a batch")
    parser.add_argument("--runs", type=Path, help="a folder of runs")
    args = parser.parse_args(argv)
    async with async_playwright() as play:
        browser = await play.chromium.launch(
            executable_path=which("chromium"), args=["--no-sandbox"]
        )
        if args.report:
            await take_report(browser, args.report)
        if args.runs:
            await take_viewer(browser, args.runs)
        await browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
