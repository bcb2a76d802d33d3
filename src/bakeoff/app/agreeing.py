"""How far the scorers of a run agree: a judge with a check, or with what people said of the answers."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from bakeoff._lib.phrasing import did_you_mean
from bakeoff.app.labels import LABEL, label_values
from bakeoff.app.options import DEFAULT_OUTPUT
from bakeoff.app.run_results import Run, load_run
from bakeoff.core.errors import UsageError
from bakeoff.core.record import TrialRecord
from bakeoff.stats.agreement import Agreement, RatedAnswer
from bakeoff.stats.agreement import agreement as agreement_of


def agreement(
    run: Run | str | Path = "latest",
    first: str | None = None,
    second: str | None = None,
    *,
    labels: str | Path | None = None,
    column: str = LABEL,
    output: str | Path = DEFAULT_OUTPUT,
) -> tuple[Agreement, ...]:
    """Return how far scorers agree on the answers of *run*: *first* and *second*, or every two.

    *labels* is a CSV file with the columns task, candidate, rollout, as `bakeoff export` writes them, and
    one that was filled in, from 0 to 1 or with pass and fail: it is compared with each scorer.
    """
    found = run if isinstance(run, Run) else load_run(run, output=output)
    given = {} if labels is None else label_values(Path(labels), column)
    groups = {task.id: task.group for task in found.plan.tasks if task.group}
    rated: dict[tuple[str, str], list[RatedAnswer]] = {}
    seen: set[str] = set()
    labelled = 0
    for record in found.records():
        scores = _scores(record)
        seen |= scores.keys()
        label = given.get((record.task_id, record.candidate_id, record.rollout))
        labelled += label is not None
        unit = groups.get(record.task_id, record.task_id)
        if labels is not None:
            pairs = [] if label is None else [((s, column), v, label) for s, v in scores.items()]
        else:
            pairs = [((a, b), scores[a], scores[b]) for a, b in combinations(sorted(scores), 2)]
        for names, one, other in pairs:
            answer = RatedAnswer(trial=record.name, unit=unit, first=one, second=other)
            rated.setdefault(names, []).append(answer)
    if labels is not None and not labelled:
        raise UsageError(
            f"{labels}: no row is a trial of {found.id}; export its trials, and fill in"
        )
    wanted = _wanted([name for name in (first, second) if name is not None], seen, rated)
    return tuple(agreement_of(*names, rated[names]) for names in wanted)


def _scores(record: TrialRecord) -> dict[str, float]:
    """Return what each scorer gave; of two with one name, the first counts."""
    scores: dict[str, float] = {}
    for score in record.attempt.scores:
        scores.setdefault(score.label, score.value)
    return scores


def _wanted(
    named: Sequence[str], seen: Collection[str], rated: Mapping[tuple[str, str], object]
) -> Iterator[tuple[str, str]]:
    """Yield the pairs that are asked for."""
    for name in named:
        if name not in seen:
            raise UsageError(f"no scorer {name!r} scored in this run: {did_you_mean(name, seen)}")
    if not rated:
        there = f"there is {', '.join(sorted(seen))}" if seen else "there is none"
        raise UsageError(
            f"it takes two scorers on the same answers, and {there}; add another one with weight = 0, "
            "or name a file with labels of people: --labels FILE.csv"
        )
    found = [pair for pair in rated if set(named) <= set(pair)]
    if not found:
        raise UsageError(f"{' and '.join(named)} never scored the same answer")
    yield from sorted(found)
