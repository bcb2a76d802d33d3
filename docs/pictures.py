"""Take the pictures of the docs, of a real run: `python -m docs.pictures`.

The model of the demo answers the questions of `examples/quick`, asked in four ways. Then a real browser looks at the
report of that run and at the viewer. `--runs FOLDER` takes them of the newest run in a folder instead.
"""

import asyncio
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any

import bakeoff
from bakeoff.stores.folders import list_runs
from bakeoff.web.server import serving

HERE = Path(__file__).parent
IMAGES = HERE / "images"
SUITE = HERE.parent / "examples" / "quick" / "suite.json"
PROMPTS = {
    "plain": "{{prompt}}",
    "few-shot": "What is the capital of Spain? Madrid.\nWhat is 1 + 1? 2.\nWhat is the opposite of wet? Dry.\n{{prompt}}",
    "step-by-step": "Think step by step, then answer. {{prompt}}",
    "shouted": "ANSWER NOW! {{prompt}}",
}


def real_run(folder: Path) -> None:
    """Run the questions of the demo with each of the prompts, twice."""
    prompts = []
    for name, text in PROMPTS.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
        prompts.append(str(folder / f"{name}.txt"))
    bakeoff.run(SUITE, models=["embedded"], prompts=prompts, rollouts=2, output=folder / "runs")


async def take(browser: Any, runs: Path) -> None:
    """Keep the report of the newest run in light, its page in the viewer in light, and one of its trials in dark."""
    folder = list_runs(runs)[-1].folder
    with TemporaryDirectory() as place:
        (report,) = await asyncio.to_thread(bakeoff.report, folder, to=place)
        page = await browser.new_page(viewport={"width": 1120, "height": 880})
        await page.goto(report.as_uri())
        await page.screenshot(path=IMAGES / "report.png")
    async with serving(runs) as viewer:
        address = f"{viewer.url.partition('/?')[0]}/run/{folder.name}"
        for name, scheme in (("viewer-run", "light"), ("viewer-trial", "dark")):
            context = await browser.new_context(
                viewport={"width": 1200, "height": 860}, color_scheme=scheme
            )
            page = await context.new_page()
            await page.goto(viewer.url)
            await page.goto(address, wait_until="networkidle")
            if name == "viewer-trial":  # of the task on which the candidates are furthest apart
                await page.click("#matrix a.mark")
                await page.wait_for_load_state("networkidle")
            else:
                await page.wait_for_function("document.querySelectorAll('.drawn.ready').length > 3")
            await page.screenshot(path=IMAGES / f"{name}.png")


async def pictures(runs: Path) -> None:
    """Take every picture of the newest run in a folder."""
    from playwright.async_api import async_playwright

    async with async_playwright() as play:
        browser = await play.chromium.launch(
            executable_path=which("chromium"), args=["--no-sandbox"]
        )
        await take(browser, runs)
        await browser.close()


def main(argv: Sequence[str]) -> int:
    """Run, and take the pictures."""
    parser = ArgumentParser(prog="python -m docs.pictures", description=__doc__)
    parser.add_argument("--runs", type=Path, metavar="FOLDER", help="a folder of runs")
    args = parser.parse_args(argv)
    with TemporaryDirectory() as place:
        if args.runs is None:
            real_run(Path(place))
        asyncio.run(pictures(args.runs or Path(place) / "runs"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
