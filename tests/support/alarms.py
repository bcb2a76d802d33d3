"""The timeout of a test is repeated until the test is over.

The first alarm ends what a test waits for. Its clean-up may wait as well: `asyncio.run` for a task
that is not cancelled, for a thread that does not return. A second alarm ends that too. What no alarm
ends (uvloop swallows what a signal's handler raises) is for the watchdog.
"""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

_AGAIN_S = 30.0


@pytest.hookimpl(hookwrapper=True, optionalhook=True)
def pytest_timeout_set_timer(settings: Any) -> Iterator[None]:
    """Let the alarm come again and again where there is one."""
    yield
    first, _ = signal.getitimer(signal.ITIMER_REAL)
    if first > 0:
        signal.setitimer(signal.ITIMER_REAL, first, min(_AGAIN_S, settings.timeout))
