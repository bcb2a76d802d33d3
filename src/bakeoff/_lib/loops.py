"""Coroutines called from ordinary code, also where a loop already runs (a notebook)."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def run_sync(work: Coroutine[object, object, T], *, loop_factory: LoopFactory | None = None) -> T:
    """Run *work* to its end and return its value."""

    def run() -> T:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(work)

    if not _a_loop_runs():
        return run()  # outside any `except`: an error in *work* must not look like caused by ours
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(run).result()


def _a_loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
