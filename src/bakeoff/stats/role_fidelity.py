"""How reliable the simulated roles of a run were, and which failures they affect.

A simulated person who gives the answer away, ends too early or contradicts itself makes a result that
says little about the agent. So the turns where one did are counted, and the failures they are in named.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from bakeoff._lib.value_object import value_object
from bakeoff.core.record import Status, TrialRecord
from bakeoff.core.values import Json

_NAMED = 5


@value_object
class AffectedFailure:
    """A failure in which a role failed; `marks` says in which turns."""

    trial: str
    marks: Mapping[str, Sequence[int]]


@value_object
class RoleFidelity:
    """The marks of a run: in how many turns each, and in how many of the conversations."""

    conversations: int = 0
    turns: int = 0
    marked_conversations: int = 0
    marks: Mapping[str, int] = field(default_factory=dict)
    failures: int = 0
    touched: tuple[AffectedFailure, ...] = ()

    @property
    def touched_share(self) -> float | None:
        """The share of failures affected by a role; None if nothing failed."""
        return len(self.touched) / self.failures if self.failures else None

    def in_words(self) -> str | None:
        """Return one line of text; None if no conversation is marked."""
        if not self.marked_conversations:
            return None
        counts = ", ".join(f"{mark} {count}" for mark, count in self.marks.items())
        line = (
            f"roles: {self.marked_conversations} of {self.conversations} conversations have turns in "
            f"which a role failed ({counts})"
        )
        if not self.touched:
            return line
        named = ", ".join(failure.trial for failure in self.touched[:_NAMED])
        more = f" and {len(self.touched) - _NAMED} more" if len(self.touched) > _NAMED else ""
        return f"{line}; of {self.failures} failures they touch {len(self.touched)}: {named}{more}"


def role_fidelity(records: Iterable[TrialRecord]) -> RoleFidelity:
    """Return the role fidelity over the dialogues in *records*."""
    conversations = turns = marked = failures = 0
    counts: Counter[str] = Counter()
    touched = []
    for record in records:
        notes = dialogue_notes(record)
        if notes is None:
            continue
        marks = marks_of(notes)
        conversations += 1
        turns += turns_of(notes)
        marked += bool(marks)
        counts.update({mark: len(where) for mark, where in marks.items()})
        if is_failure(record):
            failures += 1
            if marks:
                touched.append(AffectedFailure(trial=record.name, marks=marks))
    return RoleFidelity(
        conversations=conversations,
        turns=turns,
        marked_conversations=marked,
        marks=dict(counts),
        failures=failures,
        touched=tuple(touched),
    )


def dialogue_notes(record: TrialRecord) -> Mapping[str, Json] | None:
    """Return the notes on the dialogue of a trial; None if it had none."""
    outcome = record.attempt.outcome
    notes = outcome.notes.get("dialogue") if outcome else None
    return notes if isinstance(notes, Mapping) else None


def marks_of(notes: Mapping[str, Json]) -> dict[str, list[int]]:
    """Return the turns of each mark."""
    marks = notes.get("marks")
    if not isinstance(marks, Mapping):
        return {}
    return {
        mark: [number for number in where if isinstance(number, int)]
        for mark, where in marks.items()
        if isinstance(where, Sequence)
    }


def turns_of(notes: Mapping[str, Json]) -> int:
    """Return how many turns a dialogue had."""
    turns = notes.get("turns")
    return len(turns) if isinstance(turns, Sequence) else 0


def is_failure(record: TrialRecord) -> bool:
    """Whether the agent failed: its work does not pass, or it reached a limit.

    One that reached a limit with work that passes did not fail.
    """
    attempt = record.attempt
    return attempt.passed is False or (attempt.status is Status.LIMITED and not attempt.passed)
