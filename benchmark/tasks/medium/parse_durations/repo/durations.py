"""Durations as people write them."""


def parse(text):
    """Return the seconds in *text*, such as 5400 for `1h 30m`."""
    raise NotImplementedError
