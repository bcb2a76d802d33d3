"""Half-open intervals of numbers."""


def merge(intervals):
    """Return the same points as sorted pairs, as few as possible.

    >>> merge([(3, 5), (1, 3), (8, 9)])
    [(1, 5), (8, 9)]
    """
    merged = []
    for start, end in sorted(map(_checked, intervals)):
        if start == end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def gaps(intervals, start, end):
    """Return what lies between *start* and *end* and is not covered.

    >>> gaps([(3, 5), (8, 20)], 0, 10)
    [(0, 3), (5, 8)]
    """
    _checked((start, end))
    free, at = [], start
    for taken, until in merge(intervals):
        if taken >= end:
            break
        if taken > at:
            free.append((at, taken))
        at = max(at, until)
    if at < end:
        free.append((at, end))
    return free


def _checked(interval):
    start, end = interval
    if end < start:
        raise ValueError(f"the interval ({start}, {end}) ends before it starts")
    return start, end
