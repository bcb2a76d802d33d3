"""Faults on the screen: equal ones are told once, and counted."""

from dataclasses import dataclass, field

from bakeoff._lib.message_kind import message_kind
from bakeoff._lib.untrusted import one_line
from bakeoff.core.plan import Trial
from bakeoff.core.record import Fault

_WIDTH = 300
_MOST_KINDS = 1000  # of messages that all differ no more is remembered


@dataclass(slots=True)
class _Kind:
    """Faults that say the same: the first of them, and how many there are."""

    boundary: str
    first: str
    message: str
    count: int = 1


@dataclass(slots=True)
class FaultLines:
    """Counts faults by what they say."""

    _kinds: dict[tuple[str, str], _Kind] = field(default_factory=dict)

    def take(self, trial: Trial, fault: Fault) -> str | None:
        """Count *fault*; return a line for one that was not told before."""
        key = (fault.boundary, message_kind(fault.message))
        kind = self._kinds.get(key)
        if kind is not None:
            kind.count += 1
            return None
        name, message = one_line(trial.name, width=80), one_line(fault.message, width=_WIDTH)
        if len(self._kinds) < _MOST_KINDS:
            self._kinds[key] = _Kind(fault.boundary, name, message)
        return f"fault ({fault.boundary}) {name}: {message}"

    def folded(self) -> list[str]:
        """Return a line for each fault that came more than once, the most frequent first."""
        often = sorted(
            (kind for kind in self._kinds.values() if kind.count > 1),
            key=lambda kind: -kind.count,
        )
        return [
            f"{kind.count} faults ({kind.boundary}) like {kind.first}: {kind.message}"
            for kind in often
        ]
