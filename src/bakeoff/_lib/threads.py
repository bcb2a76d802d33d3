"""Run a blocking function in a daemon thread, or a coroutine from synchronous code."""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def run_in_thread(function: Callable[[], T]) -> T:
    """Run a blocking *function* in a daemon thread and return its result.

    If the wait is cancelled the thread is abandoned: nothing can end it, but it blocks neither the
    loop nor the exit of the program, as a thread pool would.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def tell(how: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing awaits the result
            loop.call_soon_threadsafe(lambda: None if future.done() else how())

    def work() -> None:
        try:
            value = context.run(function)
        except StopIteration as error:  # no future can carry it
            wrong = RuntimeError(f"StopIteration: {error}")
            tell(lambda: future.set_exception(wrong))
        except BaseException as error:  # noqa: BLE001 -- raised again in the waiting coroutine
            raised = error
            tell(lambda: future.set_exception(raised))
        else:
            tell(lambda: future.set_result(value))

    threading.Thread(target=work, daemon=True, name="aside").start()
    return await future


LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def run_sync(work: Coroutine[object, object, T], *, loop_factory: LoopFactory | None = None) -> T:
    """Run *work* to its end, also inside a running loop, and return its value."""

    def run() -> T:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(work)

    if not _a_loop_runs():
        return run()  # outside any `except`: an error in *work* must not look like caused by ours
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(contextvars.copy_context().run, run).result()


def _a_loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
