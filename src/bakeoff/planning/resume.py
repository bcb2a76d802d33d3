"""Which trials are still due."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from bakeoff.core.plan import Trial
from bakeoff.core.ports import Job

_CHUNK = 500  # trials looked up at once: few queries, and memory that does not grow


def remaining(
    trials: Iterable[Trial],
    next_attempts: Callable[[Sequence[Trial]], Sequence[int | None]],
) -> Iterator[Job]:
    """Yield what is not finished, lazily and in plan order."""
    source = iter(trials)
    while chunk := list(islice(source, _CHUNK)):
        for trial, number in zip(chunk, next_attempts(chunk), strict=True):
            if number is not None:
                yield Job(trial, number)
