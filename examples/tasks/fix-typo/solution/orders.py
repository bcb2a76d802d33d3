"""Orders and how far they have come."""

STATUSES = ("received", "packed", "shipped", "delivered")


def advance(order):
    """Return *order* with the status that comes next; a delivered order stays as it is."""
    at = STATUSES.index(order["status"])
    return {**order, "status": STATUSES[min(at + 1, len(STATUSES) - 1)]}


def on_the_way(orders):
    """Return the ids of the orders that have left the house and have not arrived."""
    return [order["id"] for order in orders if order["status"] == "shipped"]


def report(orders):
    """Return how many orders there are in each status, in the order of the statuses."""
    counts = dict.fromkeys(STATUSES, 0)
    for order in orders:
        counts[order["status"]] += 1
    return "\n".join(f"{status}: {count}" for status, count in counts.items())
