"""Durations as people write them."""

import re

_PARTS = re.compile(
    r"\s*(-)?\s*(?:(\d+)\s*d)?\s*(?:(\d+)\s*h)?\s*(?:(\d+)\s*m)?\s*(?:(\d+)\s*s)?\s*", re.ASCII
)
_BARE = re.compile(r"\s*(-)?\s*(\d+)\s*", re.ASCII)
_SECONDS = (86400, 3600, 60, 1)


def parse(text):
    """Return the seconds in *text*, such as 5400 for `1h 30m`."""
    if bare := _BARE.fullmatch(text):
        return -int(bare[2]) if bare[1] else int(bare[2])
    found = _PARTS.fullmatch(text.lower())
    if not found or not any(found.groups()[1:]):
        raise ValueError(f"{text!r} is no duration")
    total = sum(int(n) * s for n, s in zip(found.groups()[1:], _SECONDS) if n)
    return -total if found[1] else total
