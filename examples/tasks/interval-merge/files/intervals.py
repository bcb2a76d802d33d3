"""Half-open intervals of numbers."""


def merge(intervals):
    """Return the same points as sorted pairs, as few as possible.

    >>> merge([(3, 5), (1, 3), (8, 9)])
    [(1, 5), (8, 9)]
    """
    raise NotImplementedError


def gaps(intervals, start, end):
    """Return what lies between *start* and *end* and is not covered.

    >>> gaps([(3, 5), (8, 20)], 0, 10)
    [(0, 3), (5, 8)]
    """
    raise NotImplementedError
