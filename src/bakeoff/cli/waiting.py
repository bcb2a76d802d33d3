"""What the requests of a run wait for, in words."""

from collections.abc import Iterable

from bakeoff._lib.durations import format_duration
from bakeoff._lib.untrusted import one_line
from bakeoff.core.endpoint import EndpointWait


def waits_in_words(waits: Iterable[EndpointWait]) -> tuple[str, ...]:
    """Return a line for each endpoint that requests wait for."""
    return tuple(one_line(_in_words(wait), width=300) for wait in waits)


def _in_words(wait: EndpointWait) -> str:
    following = "" if wait.next_s is None else f", next in {format_duration(wait.next_s)}"
    if wait.down_s is not None:
        left = format_duration(wait.given_up_in_s)
        since = format_duration(wait.down_s)
        return f"{wait.endpoint} is down for {since}{following}, given up in {left}: {wait.reason}"
    at_once = f"{wait.under_way} under way" if wait.at_once is None else f"{wait.at_once} at once"
    return f"limited by {wait.endpoint}: {at_once}, {wait.waiting} waiting{following}"
