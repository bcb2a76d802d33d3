"""What a reader of a summary should know beside its figures, as sentences.

What holds for several candidates is one sentence. A note that puts the result in doubt is a
warning; the others explain it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bakeoff.core.plan import Plan
from bakeoff.stats.fairness import unlike
from bakeoff.stats.summary import CandidateSummary, Group

_MANY_FAULTS = 0.02
_MOST_NAMES = 5
_FLAGS = {
    "truncated": "read with its prompt cut: the context is too small",
    "cached": "out of the cache, not asked",
    "seed_ignored": "given without its seed: the API takes none",
    "empty": "without a word",
    "usage_unreadable": "with token counts that are no numbers: their usage is unknown",
}
_DOUBTFUL = frozenset({"truncated"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A sentence about one candidate; `value` is what may differ between candidates."""

    text: str
    value: str | None = None
    warns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """All sentences on a run, and those of them that are warnings."""

    all: tuple[str, ...]
    warnings: tuple[str, ...]


def notes(plan: Plan, candidates: Sequence[CandidateSummary]) -> Notes:
    """Return what to say of *candidates* and of how they were asked."""
    unequal = tuple(unlike(plan))
    by_text: dict[str, list[tuple[str, Note]]] = {}
    for one in candidates:
        for note in _notes_on(one):
            by_text.setdefault(note.text, []).append((one.candidate, note))
    folded = [
        (_folded(found, of=len(candidates)), any(note.warns for _, note in found))
        for found in by_text.values()
    ]
    return Notes(
        all=(*(text for text, _ in folded), *unequal),
        warnings=(*(text for text, warns in folded if warns), *unequal),
    )


def _folded(found: Sequence[tuple[str, Note]], *, of: int) -> str:
    """Return one sentence for all who have a note, with the value of each where there is one."""
    (first, note), many = found[0], len(found)
    if many == 1:
        return (
            f"{first}: {note.text}" if note.value is None else f"{first}: {note.value} {note.text}"
        )
    more = f" and {many - _MOST_NAMES} more" if many > _MOST_NAMES else ""
    if note.value is not None:
        values = ", ".join(f"{name} {each.value}" for name, each in found[:_MOST_NAMES])
        return f"{note.text}: {values}{more}"
    names = ", ".join(name for name, _ in found[:_MOST_NAMES])
    return f"{'every candidate' if many == of else names + more}: {note.text}"


def _notes_on(one: CandidateSummary) -> Iterator[Note]:
    group = one.total
    if one.scripted:
        yield Note(text="scripted answers, not a measurement")
    yield from _faults(group)
    if group.score.tasks > 1 and group.score.mean in (0.0, 1.0):
        which, how = ("all", "easy") if group.score.mean else ("none", "hard")
        text = f"{which} of the tasks are solved, they are too {how} to say how good it is"
        yield Note(text=text)
    for flag, count in sorted(group.flags.items()):
        answers = "1 answer" if count == 1 else f"{count:,} answers"
        yield Note(text=_flagged(flag), value=answers, warns=flag in _DOUBTFUL)
    if group.latency.load_s:
        seconds = f"{group.latency.load_s:.1f} s"
        yield Note(text="went into loading, apart from latency", value=seconds)


def _faults(group: Group) -> Iterator[Note]:
    """Yield that many trials faulted, of those that ran: what was not run could not fault."""
    faults, ran = group.buckets.faults, group.buckets.ran
    if ran and faults / ran > _MANY_FAULTS:
        text = "trials that ran faulted (over 2 %)"
        yield Note(text=text, value=f"{faults:,} of {ran:,}", warns=True)


def _flagged(flag: str) -> str:
    """Return what *flag* says of an answer."""
    if flag.startswith("without_"):
        return f"asked without `{flag.removeprefix('without_')}`: the endpoint refused it"
    return _FLAGS.get(flag, f"marked {flag!r}")
