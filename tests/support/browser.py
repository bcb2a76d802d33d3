"""A real browser: what a page shows, says and asks for.

One is started for all tests of a process and lives in a thread of its own: Playwright keeps an event
loop, and a test may have another one. Whatever is asked of it must be done in two minutes.
"""

import atexit
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from support.parts import require

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
_ENOUGH_S = 120.0
_ITS_OWN_MS = 100_000  # its own deadlines, which say what it waited for

T = TypeVar("T")


class _Browser:
    """The browser, its driver and their thread."""

    def __init__(self, program: str) -> None:
        self._asked: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()
        self._play: Any = None
        self.chromium: Any = None
        self.do(lambda: self._launch(program))
        atexit.register(self._close)

    def _work(self) -> None:
        while True:
            future, call = self._asked.get()
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 -- it is for whoever asked
                future.set_exception(error)

    def do(self, call: Callable[[], T], *, within_s: float = _ENOUGH_S) -> T:
        """Return what *call* does in the browser's thread; one that is stuck is given up."""
        future: Future[T] = Future()
        self._asked.put((future, call))
        try:
            return future.result(within_s)
        except TimeoutError:
            _browser.cache_clear()  # the next page gets another one
            raise

    def _launch(self, program: str) -> None:
        from playwright.sync_api import sync_playwright

        self._play = sync_playwright().start()
        self.chromium = self._play.chromium.launch(
            executable_path=program, args=list(_FLAGS), timeout=_ITS_OWN_MS
        )

    def _close(self) -> None:
        with suppress(TimeoutError):
            self.do(self.chromium.close, within_s=10)
            self.do(self._play.stop, within_s=10)


@cache
def _browser() -> _Browser:
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    require("chromium", program, "apt-get install chromium")
    require("playwright", find_spec("playwright"), "uv sync --group dev")
    return _Browser(str(program))


@dataclass(kw_only=True)
class Page:
    """An open page: `said` is its console and its errors, `asked` every address it asked for."""

    browser: _Browser
    page: Any = None
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def evaluate(self, script: str) -> Any:
        return self.browser.do(lambda: self.page.evaluate(script))

    def open_everything(self) -> None:
        self.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")

    def click(self, selector: str, *, until: str) -> None:
        """Click on what *selector* finds, and wait until the script *until* says true."""
        self.browser.do(lambda: self.page.click(selector))
        self.wait(until)

    def visit(self, address: str) -> None:
        """Go to another address in the same window, and wait until the page asks for nothing more."""
        self.browser.do(lambda: self.page.goto(address))
        self.settled()

    def settled(self) -> None:
        """Wait until the page asks for nothing more."""
        self.browser.do(lambda: self.page.wait_for_load_state("networkidle"))

    def press(self, key: str, *, until: str) -> None:
        """Press a key once the page and its scripts are there, and wait until the script *until* says true."""
        self.wait("document.readyState == 'complete'")
        self.browser.do(lambda: self.page.keyboard.press(key))
        self.wait(until)

    def wait(self, script: str, *, within_s: float = 30.0) -> None:
        """Wait until *script* says true, also across pages and where their policy forbids `eval`."""
        from playwright.sync_api import Error

        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            with suppress(Error):  # the page is just being left
                if self.evaluate(script):
                    return
            time.sleep(0.05)
        raise AssertionError(f"never true: {script}")

    def picture(self, path: Path) -> bytes:
        """Take a picture of the whole page, and return it."""
        picture: bytes = self.browser.do(
            lambda: self.page.screenshot(path=str(path), full_page=True)
        )
        return picture

    def dismissed(self, dialog: Any) -> None:
        """Note what a dialog says and close it."""
        self.said.append(dialog.message)
        dialog.dismiss()

    def load(self, address: str, *, width: int, dark: bool) -> None:
        """Open the address in a window of its own; called in the browser's thread."""
        context = self.browser.chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        context.set_default_timeout(_ITS_OWN_MS)
        self.page = context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", self.dismissed)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)


@contextmanager
def opened(path: Path | str, *, width: int = 1280, dark: bool = False) -> Iterator[Page]:
    """Open the file at *path*, or an address, in a window of this *width*."""
    page = Page(browser=_browser())
    address = path if isinstance(path, str) else path.resolve().as_uri()
    page.browser.do(lambda: page.load(address, width=width, dark=dark))
    try:
        yield page
    finally:
        page.browser.do(page.page.context.close)
