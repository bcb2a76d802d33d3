"""What the greeter says."""

GREETING = "Helo, {name}!"
FAREWELL = "Goodbye, {name}."


def greet(name):
    """Return how *name* is greeted."""
    return GREETING.format(name=name)


def farewell(name):
    """Return how *name* is sent off."""
    return FAREWELL.format(name=name)
