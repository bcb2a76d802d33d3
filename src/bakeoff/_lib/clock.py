"""Time, asked for in one place."""

from datetime import UTC, datetime
from time import perf_counter, time

monotonic = perf_counter
"""Seconds for durations; never goes back."""

timestamp = time
"""Seconds since 1970, for a moment that is stored."""


def now() -> datetime:
    """Return the current moment, aware and in UTC."""
    return datetime.now(UTC)


def stamp(moment: datetime) -> str:
    """Return *moment* as text that sorts by time and is safe in a file name."""
    return moment.strftime("%Y%m%d-%H%M%S")
