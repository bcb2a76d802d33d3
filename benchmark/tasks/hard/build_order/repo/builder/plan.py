"""The order in which targets are built."""


class CycleError(ValueError):
    """Targets that wait for each other."""

    def __init__(self, cycle):
        super().__init__(" -> ".join(cycle))
        self.cycle = cycle


def stages(needs, workers):
    """Return what is built in each stage, at most *workers* targets at once."""
    return [sorted(needs)]
