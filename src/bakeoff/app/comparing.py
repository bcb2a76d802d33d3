"""Runs side by side, or the candidates of one: did a change of model, prompt or agent make it better?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from pathlib import Path

from bakeoff._lib.phrasing import did_you_mean
from bakeoff.app.options import DEFAULT_OUTPUT
from bakeoff.app.run_results import Run, load_run
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Plan
from bakeoff.core.run_spec import Manifest
from bakeoff.planning.alignment import Names, aligned
from bakeoff.planning.resume import fields_apart
from bakeoff.reports.comparison import verdicts
from bakeoff.stats.between_runs import (
    Contrast,
    RunScores,
    ScoredSide,
    compare_sides,
    run_scores,
    scores_of_totals,
    unless_unequal,
)
from bakeoff.stats.estimate import is_checked
from bakeoff.stats.fairness import Asked, asked_in, unequal
from bakeoff.stats.summary import CandidateSummary
from bakeoff.stores.folders import list_runs

_MOST_NAMED = 5
EVERY = "all"


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """What became of the candidates of one run in others, or how those of one run differ.

    `runs` come in the order in which they were named; `before` is the first of them and `after` the last.
    `candidates` has by run how each did in its own run, and so have `candidates_before` and
    `candidates_after`. `tasks` are those that all runs share, `only` those that no other run has. `notes`
    say what else is not the same: then it may be that which made the difference.
    """

    before: str
    after: str
    contrasts: tuple[Contrast, ...]
    candidates_before: tuple[CandidateSummary, ...]
    candidates_after: tuple[CandidateSummary, ...]
    tasks: int
    only_before: int
    only_after: int
    notes: tuple[str, ...]
    runs: tuple[str, ...] = ()
    candidates: Mapping[str, tuple[CandidateSummary, ...]] = field(default_factory=dict)
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def worse(self) -> bool:
        """Whether it is sure of any candidate that it was better before."""
        return any(contrast.worse for contrast in self.contrasts)

    @property
    def verdicts(self) -> tuple[str, ...]:
        """Who is compared, and in words which of them is better; a line for each two."""
        return verdicts(self.contrasts, with_runs=len(self.runs) > 2)

    @property
    def unequal(self) -> bool:
        """Whether the conditions of any two differ, so that there is no verdict unless it is forced."""
        return any(contrast.unequal for contrast in self.contrasts)


def compare(
    before: Run | str | Path,
    after: Run | str | Path | None = None,
    *more: Run | str | Path,
    pair: Sequence[str] | None = None,
    candidates: Sequence[str] | str | None = None,
    output: str | Path = DEFAULT_OUTPUT,
    force: bool = False,
) -> RunComparison:
    """Compare runs on the tasks that they share, or the candidates of one run with each other.

    Without *after* it is the latest run; where that is *before* itself, or *candidates* are named, the
    candidates of this one run are compared. Each candidate that is in several runs is compared with
    itself, run by run; where none is, each with each. A *pair* is one candidate of the first run and one
    of the last. *candidates* are compared each with each, whatever run they are in. Tasks are matched by
    content. There is no verdict on two whose conditions differ, unless *force* insists on it.
    """
    runs = _runs(before, after, more, alone=candidates is not None, output=output)
    plans = [run.plan for run in runs]
    names = aligned(plans, by_name=force)
    groups = {
        known[task.id]: task.group
        for plan, known in zip(plans, names, strict=True)
        for task in plan.tasks
        if task.group
    }
    couples = _couples(plans, pair, _chosen_names(candidates, plans))
    shared = [set(known.values()) for known in names]
    _refuse_nothing_shared(runs, couples, shared)
    asked = [asked_in(plan) for plan in plans]
    scores = _Scores(runs=runs, plans=plans, names=names)
    contrasts = compare_sides([scores.sides(*couple) for couple in couples], groups=groups)
    summaries = {run.id: run.summary().candidates for run in dict.fromkeys(runs)}
    only = {run.id: tuple(_only(n, names)) for n, run in enumerate(runs)}
    return RunComparison(
        before=runs[0].id,
        after=runs[-1].id,
        contrasts=tuple(
            unless_unequal(contrast, _unequal(asked, couple), force=force)
            for contrast, couple in zip(contrasts, couples, strict=True)
        ),
        candidates_before=summaries[runs[0].id],
        candidates_after=summaries[runs[-1].id],
        tasks=len(set.intersection(*shared)),
        only_before=len(only[runs[0].id]),
        only_after=len(only[runs[-1].id]),
        notes=tuple(_notes(runs, plans, names)),
        runs=tuple(run.id for run in runs),
        candidates=summaries,
        only=only,
    )


# --- which runs, which candidates ------------------------------------------------------------------

_Place = tuple[int, str]  # the number of a run, and a candidate of it
_Couple = tuple[_Place, _Place]


def _runs(
    before: Run | str | Path,
    after: Run | str | Path | None,
    more: Sequence[Run | str | Path],
    *,
    alone: bool,
    output: str | Path,
) -> list[Run]:
    """Return the runs that are meant, each once."""
    given = [before, *([] if after is None else [after]), *more]
    runs = [each if isinstance(each, Run) else load_run(each, output=output) for each in given]
    if after is None and not alone:
        latest = [Run(entry.folder) for entry in list_runs(Path(output))[-1:]]
        runs = _distinct([*runs, *latest])
    elif len(_distinct(runs)) < len(runs):
        raise UsageError(
            f"{runs[0].id} would be compared with itself; name an earlier run and a later one "
            "(bakeoff list runs), or one run alone to compare its candidates"
        )
    return runs


def _distinct(runs: Sequence[Run]) -> list[Run]:
    return list({run.folder.resolve(): run for run in runs}.values())


def _chosen_names(
    candidates: Sequence[str] | str | None, plans: Sequence[Plan]
) -> list[str] | None:
    """Return the candidates that are asked for; None where nothing was said."""
    if candidates is None:
        return None
    known = list(dict.fromkeys(c.id for plan in plans for c in plan.candidates))
    wanted = [candidates] if isinstance(candidates, str) else list(candidates)
    if wanted == [EVERY] and EVERY not in known:
        return known
    for name in wanted:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UsageError(f"no candidate {name!r} in what is compared: {hint}")
    return wanted


def _couples(
    plans: Sequence[Plan], pair: Sequence[str] | None, chosen: Sequence[str] | None
) -> list[_Couple]:
    """Return who is compared with whom."""
    if pair is not None:
        return [_pair(pair, plans)]
    places = [(n, c.id) for n, plan in enumerate(plans) for c in plan.candidates]
    if chosen is not None:
        places = [place for place in places if place[1] in chosen]
    everyone = list(combinations(places, 2))
    itself = [(one, other) for one, other in everyone if one[1] == other[1]]
    apart = [(one, other) for one, other in everyone if len(plans) == 1 or one[0] != other[0]]
    couples = everyone if chosen is not None else itself or apart
    if not couples:
        raise UsageError(
            "there is one candidate, and nothing to compare it with: name another run, or run it "
            "with another model, agent or prompt"
        )
    return couples


def _pair(pair: Sequence[str], plans: Sequence[Plan]) -> _Couple:
    if len(pair) != 2:
        raise UsageError(f"a pair is two candidates, one of each run, not {len(pair)}")
    for name, plan, which in zip(pair, (plans[0], plans[-1]), ("before", "after"), strict=True):
        there = [c.id for c in plan.candidates]
        if name not in there:
            where = f"the run {which}" if len(plans) > 1 else "the run"
            raise UsageError(f"{name!r} is not in {where}; there are: {', '.join(there)}")
    return (0, pair[0]), (len(plans) - 1, pair[1])


def _refuse_nothing_shared(
    runs: Sequence[Run], couples: Sequence[_Couple], shared: Sequence[set[str]]
) -> None:
    for (first, _), (second, _) in couples:
        if not shared[first] & shared[second]:
            raise UsageError(
                f"{runs[first].id} and {runs[second].id} have no task in common: tasks are matched by "
                "content, then by id where only the wording differs; --force matches them by id alone"
            )


# --- their scores ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Scores:
    """The scores of each run under the names that all runs share."""

    runs: Sequence[Run]
    plans: Sequence[Plan]
    names: Sequence[Names]
    _of: dict[int, RunScores] = field(default_factory=dict)

    def sides(self, first: _Place, second: _Place) -> tuple[ScoredSide, ScoredSide]:
        """Return two candidates with their scores on the tasks that both runs have."""
        shared = set(self.names[first[0]].values()) & set(self.names[second[0]].values())
        only = next(iter(shared)) if len(shared) == 1 else None
        return self._side(first, shared, only), self._side(second, shared, only)

    def _side(self, place: _Place, shared: set[str], only: str | None) -> ScoredSide:
        number, candidate = place
        scores = self._scores(number) if only is None else self._rollouts(number, only)
        cells = scores.get(candidate, {})
        known = self.names[number]
        return ScoredSide(
            run=self.runs[number].id,
            candidate=candidate,
            scores={known[task]: c for task, c in cells.items() if known.get(task) in shared},
        )

    def _scores(self, number: int) -> RunScores:
        if number not in self._of:
            totals, unchecked = self.runs[number].totals(), self._unchecked(number)
            self._of[number] = scores_of_totals(totals, unchecked=unchecked)
        return self._of[number]

    def _rollouts(self, number: int, only: str) -> RunScores:
        """Return the scores of the only shared task, each rollout by itself."""
        task = next(task for task, name in self.names[number].items() if name == only)
        rows = (row for row in self.runs[number].rows() if row.task_id == task)
        return run_scores(rows, unchecked=self._unchecked(number), rollouts_of=task)

    def _unchecked(self, number: int) -> set[str]:
        return {task.id for task in self.plans[number].tasks if not is_checked(task)}


# --- what else is not the same ---------------------------------------------------------------------


def _unequal(asked: Sequence[Mapping[str, Asked]], couple: _Couple) -> tuple[str, ...]:
    (first, one), (second, other) = couple
    return unequal(asked[first][one], asked[second][other])


def _only(number: int, names: Sequence[Names]) -> Iterator[str]:
    """Yield the tasks that no other run has, by their ids."""
    others = {name for n, known in enumerate(names) if n != number for name in known.values()}
    if len(names) > 1:
        yield from (task for task, name in names[number].items() if name not in others)


def _notes(runs: Sequence[Run], plans: Sequence[Plan], names: Sequence[Names]) -> Iterator[str]:
    """Yield what changed from each run to the next, and which runs chose their own end."""
    manifests = [run.manifest for run in runs]
    for first, second in pairwise(range(len(runs))):
        where = "" if len(runs) == 2 else f"{runs[first].id} → {runs[second].id}: "
        for note in (
            *_changed(plans[first], plans[second]),
            *_changed_tasks(plans[first], plans[second], names[first], names[second]),
            *_other_models(manifests[first], manifests[second]),
        ):
            yield where + note
    yield from _ended_early(*manifests)


def _changed(before: Plan, after: Plan) -> Iterator[str]:
    """Yield what was planned otherwise, besides who was asked."""
    if apart := fields_apart(before.conditions.identity(), after.conditions.identity()):
        yield f"they were run under other conditions: {', '.join(apart)}"
    earlier = {candidate.id: candidate for candidate in before.candidates}
    for candidate in after.candidates:
        if (old := earlier.get(candidate.id)) is None:
            continue
        if apart := fields_apart(old.identity(), candidate.identity()):
            yield f"candidate {candidate.id!r} differs in {', '.join(apart)}"


def served_otherwise(before: Manifest, after: Manifest) -> Iterator[str]:
    """Yield which models were another one under the same name, and which run chose its own end."""
    yield from _other_models(before, after)
    yield from _ended_early(before, after)


def _ended_early(*manifests: Manifest) -> Iterator[str]:
    for manifest in manifests:
        if manifest.adaptive is not None:
            yield f"{manifest.run} ended when it was sure: its last tasks were run because of its scores"


def _other_models(before: Manifest, after: Manifest) -> Iterator[str]:
    for name, served in before.served.items():
        if name in after.served and after.served[name] != served:
            yield f"{name} was served as something else: a new digest or version of the same name"


def _changed_tasks(before: Plan, after: Plan, old: Names, new: Names) -> Iterator[str]:
    """Yield which tasks have another content, by what is other about them, and which another id."""
    known = {task.id: task for task in before.tasks}
    changed: dict[tuple[str, ...], list[str]] = {}
    for task in after.tasks:
        if task.id in known and known[task.id].digest != task.digest:
            apart = fields_apart(known[task.id].identity(), task.identity())
            is_same = old[task.id] == new[task.id]
            left_out = () if is_same else ("and are left out: they are other tests",)
            changed.setdefault((*apart, *left_out), []).append(task.id)
    for fields, names in changed.items():
        yield f"{len(names)} of the tasks differ in {', '.join(fields)}: {_listed(names)}"
    ids = {name: task for task, name in old.items()}
    renamed = [task for task, name in new.items() if ids.get(name, task) != task]
    if renamed:
        yield f"{len(renamed)} of the tasks have another id and the same content: {_listed(renamed)}"


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(map(repr, names[:_MOST_NAMED])) + more
