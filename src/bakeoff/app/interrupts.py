"""Work that a person may stop: Ctrl-C once finishes what is under way, twice stops now."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import TypeVar

from bakeoff._lib.process_setup import open_closed_descriptors
from bakeoff.core.stop import Stop


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop where there is one, else Python's own."""
    open_closed_descriptors()  # uvloop aborts the process where a descriptor of its own is below 3
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


T = TypeVar("T")

_FIRST = "stopping: the trials under way are finished first; Ctrl-C again to stop now"


def interruptible(
    work: Coroutine[object, object, T], stop: Stop, say: Callable[[str], None]
) -> T | None:
    """Return what *work* returns; None where it was stopped at once. *say* tells the person."""

    async def main() -> T | None:
        return await _heeding(work, stop, say)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main())


async def _heeding(
    work: Coroutine[object, object, T], stop: Stop, say: Callable[[str], None]
) -> T | None:
    task = asyncio.current_task()

    def cancel_once() -> None:
        # a third Ctrl-C must not cut the ledger off while it is being closed
        if task is not None and not task.cancelling():
            task.cancel()

    def interrupt() -> None:
        if stop.requested:
            cancel_once()
            return
        stop.request()
        say(_FIRST)

    def terminate() -> None:
        stop.request()
        cancel_once()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupt)
    loop.add_signal_handler(signal.SIGTERM, terminate)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` leaves it
        loop.add_signal_handler(signal.SIGHUP, terminate)
    try:
        return await work
    except asyncio.CancelledError:
        if not stop.requested:
            raise
        return None
    finally:
        if stop.requested:  # nothing is left to be stopped, and the last words are to be read
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
