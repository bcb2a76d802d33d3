"""Take the picture in the README: `python -m docs.picture REPORT.html`, of the report of a real batch."""

import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import which

PICTURE = Path(__file__).parent / "images" / "report.png"


def main(argv: Sequence[str]) -> int:
    """Open the report in Chromium and keep the top of it."""
    from playwright.sync_api import sync_playwright

    (report,) = map(Path, argv)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1120, "height": 950})
        page.goto(report.resolve().as_uri())
        page.screenshot(path=PICTURE)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
