"""A real browser: what a page shows, says and asks for."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from support.parts import require

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@dataclass(kw_only=True)
class Page:
    """An open page: `said` is its console and its errors, `asked` every address it asked for."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def evaluate(self, script: str) -> Any:
        return self.page.evaluate(script)

    def open_everything(self) -> None:
        self.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")

    def picture(self, path: Path) -> bytes:
        """Take a picture of the whole page, and return it."""
        return self.page.screenshot(path=str(path), full_page=True)

    def dismissed(self, dialog: Any) -> None:
        """Note what a dialog says and close it."""
        self.said.append(dialog.message)
        dialog.dismiss()


@contextmanager
def opened(path: Path, *, width: int = 1280, dark: bool = False) -> Iterator[Page]:
    """Open the file at *path* in a window of this *width*."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    require("chromium", program, "apt-get install chromium")
    require("playwright", find_spec("playwright"), "uv sync --group dev")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=list(_FLAGS))
        try:
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
            )
            page = context.new_page()
            seen = Page(page=page)
            page.on("console", lambda message: seen.said.append(message.text))
            page.on("pageerror", lambda error: seen.said.append(str(error)))
            page.on("dialog", seen.dismissed)
            page.on("request", lambda request: seen.asked.append(request.url))
            page.goto(path.resolve().as_uri())
            yield seen
        finally:
            browser.close()
