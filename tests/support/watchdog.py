"""Ends a test process whose test outlives its timeout, and prints what it was waiting for.

The alarm of pytest-timeout raises an exception wherever the main thread is. An event loop may
swallow it (uvloop does), and a clean-up may wait for ever for the same thing as the test. Then this
prints the stack of every thread and of every asyncio task and ends the process: pytest-xdist reports
the test as failed and goes on with a new worker. Where not even a thread can run, because one that
waits in C holds the interpreter, faulthandler does so a little later.
"""

import asyncio
import faulthandler
import gc
import os
import threading
import time
from collections.abc import Generator

import pytest

_GRACE_S = 60.0
_LOOKS_EVERY_S = 1.0


class Watchdog:
    """One thread that looks whether the test at hand should have ended long ago."""

    def __init__(self) -> None:
        self._screen = os.fdopen(os.dup(2), "w")  # before pytest captures it
        self._test = ""
        self._deadline = float("inf")
        threading.Thread(target=self._watch, daemon=True, name="watchdog").start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._test = item.nodeid
        if seconds := _timeout_of(item):
            self._deadline = time.monotonic() + seconds + _GRACE_S
            # needs no interpreter: a thread that waits in C may hold it
            faulthandler.dump_traceback_later(seconds + 2 * _GRACE_S, exit=True, file=self._screen)
        try:
            return (yield)
        finally:
            self._deadline = float("inf")
            faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        while time.monotonic() < self._deadline:
            time.sleep(_LOOKS_EVERY_S)
        print(f"\n{self._test} outlived its timeout.", file=self._screen, flush=True)
        faulthandler.dump_traceback(file=self._screen)
        for task in [thing for thing in gc.get_objects() if isinstance(thing, asyncio.Task)]:
            if not task.done():
                task.print_stack(file=self._screen)
        self._screen.flush()
        os._exit(1)


def _timeout_of(item: pytest.Item) -> float:
    """Return the seconds that pytest-timeout gives *item*; 0 where there is no limit."""
    mark = item.get_closest_marker("timeout")
    if mark is not None and mark.args:
        return float(mark.args[0])
    option = item.config.getoption("timeout")
    return float(option if option is not None else item.config.getini("timeout") or 0)
