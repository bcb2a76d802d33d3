"""The order in which targets are built."""


class CycleError(ValueError):
    """Targets that wait for each other."""

    def __init__(self, cycle):
        super().__init__(" -> ".join(cycle))
        self.cycle = cycle


def stages(needs, workers):
    """Return what is built in each stage, at most *workers* targets at once."""
    if workers < 1:
        raise ValueError("at least one worker is needed")
    waits = {target: set(needed) for target, needed in needs.items()}
    for needed in list(waits.values()):
        for target in needed:
            waits.setdefault(target, set())
    wanted_by = {target: [] for target in waits}
    for target, needed in waits.items():
        for other in needed:
            wanted_by[other].append(target)
    left = {target: len(needed) for target, needed in waits.items()}
    ready = sorted((0, target) for target, count in left.items() if not count)
    found = []
    while ready:
        stage, ready = ready[:workers], ready[workers:]
        found.append([target for _, target in stage])
        for _, target in stage:
            for other in wanted_by[target]:
                left[other] -= 1
                if not left[other]:
                    ready.append((len(found), other))
        ready.sort()
    if any(left.values()):
        raise CycleError(_cycle(waits, left))
    return found


def _cycle(waits, left):
    """Return one cycle among the targets that can never be built."""
    at = min(target for target, count in left.items() if count)
    path, places = [], {}
    while at not in places:
        places[at] = len(path)
        path.append(at)
        at = min(other for other in waits[at] if left[other])
    return path[places[at] :]
