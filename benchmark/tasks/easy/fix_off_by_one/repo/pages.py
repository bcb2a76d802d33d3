"""Long lists, a page at a time."""


def page_count(items, size):
    """Return how many pages *items* fill, *size* to a page."""
    return len(items) // size


def page(items, number, size):
    """Return the items of page *number*; the first is 1."""
    start = (number - 1) * size
    return items[start : start + size - 1]
