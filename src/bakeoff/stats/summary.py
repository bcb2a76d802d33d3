"""The summary of a run, of a candidate and of a category."""

from collections.abc import Iterator, Mapping, Sequence

from bakeoff._lib.value_object import value_object
from bakeoff.core.budget import NO_BILL, Bill
from bakeoff.core.plan import Plan
from bakeoff.stats.classification import Classification
from bakeoff.stats.estimate import Estimate, Interval, Ratio
from bakeoff.stats.fairness import unequal_settings
from bakeoff.stats.main_effects import MainEffect
from bakeoff.stats.pace import Pace
from bakeoff.stats.pairwise import Pairwise
from bakeoff.stats.variance import VarianceSplit


@value_object
class Buckets:
    """Every planned trial is in exactly one of them."""

    scored: int = 0
    unchecked: int = 0
    limited: int = 0
    model_error: int = 0
    infrastructure_fault: int = 0
    cancelled: int = 0
    not_run: int = 0
    not_needed: int = 0

    @property
    def planned(self) -> int:
        """All of them together."""
        return (
            self.scored
            + self.unchecked
            + self.limited
            + self.model_error
            + self.infrastructure_fault
            + self.cancelled
            + self.not_run
            + self.not_needed
        )

    @property
    def ran(self) -> int:
        """Those that came to an end, whatever it was."""
        return self.planned - self.cancelled - self.not_run - self.not_needed

    @property
    def faults(self) -> int:
        """What broke, on either side."""
        return self.model_error + self.infrastructure_fault


BUCKET_NAMES = tuple(Buckets.__annotations__)


@value_object
class PassRates:
    """pass@k and pass^k for one k with their standard errors; None where some task has fewer rollouts."""

    k: int
    pass_at: float | None
    pass_hat: float | None
    pass_at_se: float | None = None
    pass_hat_se: float | None = None


@value_object
class Tokens:
    """Totals over the trials that report them; None is unknown."""

    input: int | None
    output: int | None
    output_per_s: float | None
    cost_usd: float | None


@value_object
class Latency:
    """Seconds; of the requests to the model, not of queues or scoring."""

    p50_s: float | None
    p95_s: float | None
    first_token_p50_s: float | None
    first_token_p95_s: float | None
    load_s: float | None
    p50_interval: Interval | None = None
    p95_interval: Interval | None = None
    first_token_p50_interval: Interval | None = None
    first_token_p95_interval: Interval | None = None


@value_object
class Group:
    """What is known of one candidate, in one category or in all (None)."""

    category: str | None
    buckets: Buckets
    score: Estimate
    score_bounds: tuple[float, float] | None
    coverage: float
    passed: int
    passes: tuple[PassRates, ...]
    tokens: Tokens
    latency: Latency
    extra_attempts: int
    flags: Mapping[str, int]
    cost_per_success: Ratio | None = None


@value_object
class CandidateSummary:
    """One candidate: everything, then by category, and why its score is unsure.

    `macro` is the mean over categories, each weighing the same; `stratified` the mean over tasks,
    with the spread within categories only. Both are None where there are not two categories.
    """

    candidate: str
    scripted: bool
    total: Group
    categories: tuple[Group, ...]
    variance: VarianceSplit
    macro: Estimate | None = None
    stratified: Estimate | None = None


@value_object
class Summary:
    """The summary of a run; `billed` is its total cost, including roles, retries and failed attempts.

    `pace` is that cost for the trials that ran, and how long any of them did.

    `pairwise` compares the candidates on the tasks they share; None where there is only one. Of the
    `notes`, `warnings` are those that put the result in doubt.
    `pass_rule` says what it takes to pass. `main_effects` compare prompts across models, and models
    across prompts. `classification` is how candidates gave labels, where a scorer of labels judged.
    """

    run: str
    tasks: int
    rollouts: int
    buckets: Buckets
    candidates: tuple[CandidateSummary, ...]
    notes: tuple[str, ...]
    billed: Bill = NO_BILL
    pace: Pace | None = None
    pairwise: Pairwise | None = None
    warnings: tuple[str, ...] = ()
    pass_rule: str = ""
    main_effects: tuple[MainEffect, ...] = ()
    classification: tuple[Classification, ...] = ()


# --- notes ----------------------------------------------------------------------------------------


_MANY_FAULTS = 0.02
_MOST_NAMES = 5
_FLAGS = {
    "truncated": "read with its prompt truncated: the context is too small",
    "cached": "from the cache, not requested",
    "seed_ignored": "given without its seed: the API takes none",
    "empty": "without a word",
    "usage_unreadable": "with token counts that are not numbers: their usage is unknown",
}
_DOUBTFUL = frozenset({"truncated"})


@value_object
class Note:
    """A sentence about one candidate; `value` is what may differ between candidates."""

    text: str
    value: str | None = None
    warns: bool = False


@value_object
class Notes:
    """All sentences on a run, and those of them that are warnings."""

    all: tuple[str, ...]
    warnings: tuple[str, ...]


def notes(plan: Plan, candidates: Sequence[CandidateSummary]) -> Notes:
    """Return the notes on *candidates* and their settings."""
    unequal = tuple(unequal_settings(plan))
    by_text: dict[str, list[tuple[str, Note]]] = {}
    for candidate in candidates:
        for note in _notes_on(candidate):
            by_text.setdefault(note.text, []).append((candidate.candidate, note))
    folded = [
        (_folded(group, of=len(candidates)), any(note.warns for _, note in group))
        for group in by_text.values()
    ]
    return Notes(
        all=(*(text for text, _ in folded), *unequal),
        warnings=(*(text for text, warns in folded if warns), *unequal),
    )


def _folded(notes: Sequence[tuple[str, Note]], *, of: int) -> str:
    """Return one sentence for all candidates with the same note, with their values if any."""
    (first, note), many = notes[0], len(notes)
    if many == 1:
        return (
            f"{first}: {note.text}" if note.value is None else f"{first}: {note.value} {note.text}"
        )
    more = f" and {many - _MOST_NAMES} more" if many > _MOST_NAMES else ""
    if note.value is not None:
        values = ", ".join(f"{name} {each.value}" for name, each in notes[:_MOST_NAMES])
        return f"{note.text}: {values}{more}"
    names = ", ".join(name for name, _ in notes[:_MOST_NAMES])
    return f"{'every candidate' if many == of else names + more}: {note.text}"


def _notes_on(candidate: CandidateSummary) -> Iterator[Note]:
    group = candidate.total
    if candidate.scripted:
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
    """Yield a note if many of the trials that ran faulted."""
    faults, ran = group.buckets.faults, group.buckets.ran
    if ran and faults / ran > _MANY_FAULTS:
        text = "trials that ran faulted (over 2 %)"
        yield Note(text=text, value=f"{faults:,} of {ran:,}", warns=True)


def _flagged(flag: str) -> str:
    """Return the meaning of *flag*."""
    if flag.startswith("without_"):
        return f"asked without `{flag.removeprefix('without_')}`: the endpoint refused it"
    return _FLAGS.get(flag, f"marked {flag!r}")
