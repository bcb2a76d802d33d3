"""How well the roles of the dialogues of a run played their part, and which failures that touches.

A simulated person who gives the answer away, ends too early or contradicts itself makes a result that
says little about the agent. So the turns where one did are counted, and the failures they are in named.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bakeoff.core.record import Status, TrialRecord
from bakeoff.core.values import Json

_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class Touched:
    """A failure in which a role failed; `marks` says in which turns."""

    trial: str
    marks: Mapping[str, Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class RoleFidelity:
    """The marks of a run: in how many turns each, and in how many of the conversations."""

    conversations: int = 0
    turns: int = 0
    marked_conversations: int = 0
    marks: Mapping[str, int] = field(default_factory=dict)
    failures: int = 0
    touched: tuple[Touched, ...] = ()

    @property
    def touched_share(self) -> float | None:
        """The share of the failures in which a role had a part; None where nothing failed."""
        return len(self.touched) / self.failures if self.failures else None

    def in_words(self) -> str | None:
        """Return it as one line; None where there is nothing to be said."""
        if not self.marked_conversations:
            return None
        counts = ", ".join(f"{mark} {count}" for mark, count in self.marks.items())
        line = (
            f"roles: {self.marked_conversations} of {self.conversations} conversations have turns in "
            f"which a role failed ({counts})"
        )
        if not self.touched:
            return line
        named = ", ".join(one.trial for one in self.touched[:_NAMED])
        more = f" and {len(self.touched) - _NAMED} more" if len(self.touched) > _NAMED else ""
        return f"{line}; of {self.failures} failures they touch {len(self.touched)}: {named}{more}"


def role_fidelity(records: Iterable[TrialRecord]) -> RoleFidelity:
    """Return what the dialogues among *records* say of their roles."""
    conversations = turns = marked = failures = 0
    counts: Counter[str] = Counter()
    touched = []
    for record in records:
        told = dialogue_notes(record)
        if told is None:
            continue
        marks = marks_of(told)
        conversations += 1
        turns += turns_of(told)
        marked += bool(marks)
        counts.update({mark: len(where) for mark, where in marks.items()})
        if is_failure(record):
            failures += 1
            if marks:
                touched.append(Touched(trial=record.name, marks=marks))
    return RoleFidelity(
        conversations=conversations,
        turns=turns,
        marked_conversations=marked,
        marks=dict(counts),
        failures=failures,
        touched=tuple(touched),
    )


def dialogue_notes(record: TrialRecord) -> Mapping[str, Json] | None:
    """Return what is noted of the dialogue of a trial; None where it had none."""
    outcome = record.attempt.outcome
    told = outcome.notes.get("dialogue") if outcome else None
    return told if isinstance(told, Mapping) else None


def marks_of(told: Mapping[str, Json]) -> dict[str, list[int]]:
    """Return the turns of each mark."""
    marks = told.get("marks")
    if not isinstance(marks, Mapping):
        return {}
    return {
        mark: [number for number in where if isinstance(number, int)]
        for mark, where in marks.items()
        if isinstance(where, Sequence)
    }


def turns_of(told: Mapping[str, Json]) -> int:
    """Return how many turns a dialogue had."""
    turns = told.get("turns")
    return len(turns) if isinstance(turns, Sequence) else 0


def is_failure(record: TrialRecord) -> bool:
    """Whether the agent did not make it: what it left is not right, or it ran out of something.

    One that ran out of something and left what passes has made it.
    """
    attempt = record.attempt
    return attempt.passed is False or (attempt.status is Status.LIMITED and not attempt.passed)
