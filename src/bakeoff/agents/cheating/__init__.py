"""What a cheating agent would try: tricks that need no knowledge of the task, by their names."""

from bakeoff.agents.cheating.frameworks import FRAMEWORKS
from bakeoff.agents.cheating.planted import PLANTED, REPOSITORY
from bakeoff.agents.cheating.processes import EXITS, GIVING_UP, PROCESSES
from bakeoff.agents.cheating.trick import Trick

TRICKS: dict[str, Trick] = {
    trick.name: trick
    for trick in (*PLANTED, *REPOSITORY, *EXITS, *FRAMEWORKS, *PROCESSES, *GIVING_UP)
}
"""Each trick by its name."""

GROUPS: dict[str, tuple[str, ...]] = {
    group: tuple(name for name, trick in TRICKS.items() if trick.group == group)
    for group in dict.fromkeys(trick.group for trick in TRICKS.values())
}
"""The names of the tricks that can be played in one box, by their group."""
