"""Tests of pace on a machine that others use, too."""

import functools
import os
import time
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


def is_busy() -> bool:
    """Whether others want this machine, too: what is timed then waits for its turn as well."""
    return os.getloadavg()[0] > 1.5 * (os.cpu_count() or 1)


def chances(times: int) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Let a test of pace be tried again: what is broken fails each time, what was held up does not."""

    def tried_again(test: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(test)
        def patient(*args: P.args, **kwargs: P.kwargs) -> None:
            for _ in range(times - 1):
                try:
                    return test(*args, **kwargs)
                except AssertionError as error:
                    print(f"once more: {error}")
                    time.sleep(2)
            return test(*args, **kwargs)

        return patient

    return tried_again
