"""A batch comparison of models on one task, and its JSON and CSV forms; a comparison of two runs in words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Protocol

import msgspec

from bakeoff._lib.sanitize import one_line
from bakeoff.core.values import Json
from bakeoff.reports import data_files
from bakeoff.reports.wording import phrases
from bakeoff.reports.wording.decision import (
    by_how_much,
    chance_in_words,
    methods,
    pair_verdict,
    price,
)
from bakeoff.reports.wording.findings import Evidence
from bakeoff.reports.wording.phrases import amount, counted
from bakeoff.stats.between_runs import AFTER, BEFORE, ChangedTask, Contrast
from bakeoff.stats.head_to_head import Contender, HeadToHead, Mean, RolloutFigures
from bakeoff.stats.one_task import ROLLOUT
from bakeoff.stats.paired import Pair
from bakeoff.stats.rankings import Ranking

COLUMNS = (
    "model", "task", "success", "completion_time", "prompts_sent", "human_interventions",
    "files_modified", "lines_added", "lines_removed", "timestamp",
)  # fmt: skip
_MORE_COLUMNS = (
    "status", "rollouts", "success_rate", "tokens", "cost_usd", "display_name",
    "rollouts_timed_out", "error",
)  # fmt: skip
_MOST_TASKS = 8


class ComparedRuns(Protocol):
    """What the JSON form needs to know of a comparison of runs, besides its fields."""

    @property
    def verdicts(self) -> Sequence[str]:
        """The verdict on each two that were compared, in a line."""


@dataclass(frozen=True, kw_only=True)
class Competitor:
    """One model with its figures and evidence; `served` is the metadata its server reports."""

    model: str
    display_name: str
    figures: Contender
    evidence: tuple[Evidence, ...] = ()
    served: Mapping[str, Json] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """The outcome in one or two words."""
        return phrases.status(self.figures.rollouts, planned=self.figures.planned)

    @property
    def error(self) -> str | None:
        """Why it did not solve the task or did not finish: the first error of its rollouts."""
        return next((left.error for left in self.evidence if left.error), None)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The settings shared by all models."""

    agent: str
    sandbox: str | None
    limit_s: float | None
    rollouts: int
    parallel: int
    judge: str | None = None
    instructor: str | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A batch with its results so far."""

    batch_id: str
    task: str
    title: str
    instruction: str
    timestamp: str
    total_time_s: float
    setting: Setting
    machine: Mapping[str, Json]
    competitors: tuple[Competitor, ...]
    result: HeadToHead

    def named(self, candidate: str) -> str:
        """Return the display name of *candidate*."""
        names = {c.figures.candidate: c.display_name for c in self.competitors}
        return names.get(candidate, candidate)

    def solved(self, candidate: str) -> bool:
        """Whether *candidate* solved the task at least once."""
        return any(c.figures.passed for c in self.competitors if c.figures.candidate == candidate)


def in_order(comparison: Comparison) -> list[Competitor]:
    """Return the models that solved the task first, and fast ones before slow ones.

    Models that solved it but were stopped at the limit come after those that finished.
    """

    def sort_key(competitor: Competitor) -> tuple[bool, bool, bool, float]:
        figures, seconds = competitor.figures, competitor.figures.means.seconds.value
        return not figures.success, not figures.finished, seconds is None, seconds or 0.0

    return sorted(comparison.competitors, key=sort_key)


def as_json(comparison: Comparison) -> dict[str, Json]:
    """Return *comparison* as plain data; what is unknown is null."""
    result = comparison.result
    models = {c.figures.candidate: c.model for c in comparison.competitors}
    rankings = {
        "fastest": result.fastest,
        "most_efficient": result.most_efficient,
        "least_intervention": result.least_intervention,
        "time_to_solve": result.to_solve,
    }
    return {
        "batch_id": comparison.batch_id,
        "task": comparison.task,
        "timestamp": comparison.timestamp,
        "total_time": comparison.total_time_s,
        "models_tested": len(comparison.competitors),
        "successful": result.successful,
        "failed": result.failed,
        "undecided": result.undecided,
        "broken": result.broken,
        "machine_info": dict(comparison.machine),
        "setting": asdict(comparison.setting),
        "results": [result_as_json(comparison.task, c) for c in comparison.competitors],
        "rankings": {name: _first(ranking, models) for name, ranking in rankings.items()},
        "ranking_places": {name: _places(ranking, models) for name, ranking in rankings.items()},
        "ranking_notes": {name: r.reason if r else None for name, r in rankings.items()},
        "time_to_solve_tests": [asdict(test) for test in result.solve_times],
        "summary_stats": asdict(result.overall),
        "notes": list(result.notes),
    }


def _first(ranking: Ranking | None, models: Mapping[str, str]) -> str | None:
    """Return the first in a ranking, possibly by chance; None if there is no ranking."""
    if ranking is None or not ranking.placed:
        return None
    first = ranking.placed[0].candidate
    return models.get(first, first)


def _places(ranking: Ranking | None, models: Mapping[str, str]) -> list[Json] | None:
    return (
        None
        if ranking is None
        else [
            {
                "rank": place.rank,
                "model": models.get(place.candidate, place.candidate),
                "value": place.value,
                "rank_range": None if place.best is None else [place.best, place.worst],
            }
            for place in ranking.placed
        ]
    )


def result_as_json(task: str, competitor: Competitor) -> dict[str, Json]:
    """Return the result of one model, for its own file and for the report."""
    figures, means = competitor.figures, competitor.figures.means
    first = competitor.evidence[0].started_at if competitor.evidence else None
    data: dict[str, Json] = {
        "model": competitor.model,
        "task": task,
        "success": figures.success,
        "error": competitor.error,
        "completion_time": means.seconds.value,
        "prompts_sent": _plain(means.prompts),
        "human_interventions": _plain(means.interventions),
        "files_modified": _plain(means.files),
        "lines_added": _plain(means.added),
        "lines_removed": _plain(means.removed),
        "timestamp": first,
        "display_name": competitor.display_name,
        "status": competitor.status,
        "tokens": _plain(means.tokens),
        "cost_usd": means.cost_usd.value,
        "rollouts_planned": figures.planned,
        "rollouts_passed": figures.passed,
        "rollouts_timed_out": figures.limited,
        "success_rate": figures.rate,
        "success_interval": None if figures.rate_interval is None else asdict(figures.rate_interval),
        "time_to_solve": None if figures.to_solve is None else asdict(figures.to_solve),
        "served": dict(competitor.served),
    }  # fmt: skip
    data["rollouts"] = [
        _rollout(rollout, evidence)
        for rollout, evidence in zip(figures.rollouts, competitor.evidence, strict=True)
    ]
    return data


def _rollout(rollout: RolloutFigures, evidence: Evidence) -> dict[str, Json]:
    return {
        **asdict(rollout),
        "verdict": rollout.verdict.value,
        "error": evidence.error,
        "timestamp": evidence.started_at,
        "seconds_by_phase": dict(evidence.phases),
        "answer": evidence.answer,
        "checks": [
            {"scorer": c.scorer, "value": c.value, "explanation": c.explanation}
            for c in evidence.checks
        ],
    }


def _plain(mean: Mean) -> Json:
    """Return a count as a whole number where it is one."""
    if mean.value is None:
        return None
    return int(mean.value) if mean.value.is_integer() else mean.value


def as_csv(comparison: Comparison) -> str:
    """Return one line per model; cells are escaped so that no spreadsheet reads a formula."""
    rows = ((*COLUMNS, *_MORE_COLUMNS), *_rows(comparison))
    return "".join(data_files.csv_line(row) for row in rows)


def _rows(comparison: Comparison) -> Iterator[Sequence[Json]]:
    for competitor in comparison.competitors:
        data = result_as_json(comparison.task, competitor)
        data["rollouts"] = len(competitor.figures.rollouts)
        yield [data[name] for name in (*COLUMNS, *_MORE_COLUMNS)]


def run_comparison_json(comparison: ComparedRuns) -> Json:
    """Return a comparison of runs with its verdicts as plain data; unknown values are null."""
    data: dict[str, Json] = msgspec.to_builtins(comparison)
    return {**data, "verdicts": list(comparison.verdicts)}


def comparison_notes(
    contrasts: Sequence[Contrast],
    *,
    only_before: int = 0,
    only_after: int = 0,
    only: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[str]:
    """Yield the methods of the comparison and what it excludes; of three runs and more, *only* says it."""
    tested = [contrast.pair for contrast in contrasts if contrast.pair.p is not None]
    if tested:
        yield methods(tested)
        yield chance_in_words(tested)
    if any(contrast.pair.withheld for contrast in contrasts):
        yield "a verdict must hold with every faulted trial counted against the leader"
    if left_out := max((contrast.pair.left_out for contrast in contrasts), default=0):
        yield f"excluded, because only one of the two has a score: {counted(left_out, 'task')}"
    if only is not None and len(only) > 2:
        alone = [f"{run} {counted(len(tasks), 'task')}" for run, tasks in only.items() if tasks]
        if alone:
            yield f"in no other run: {', '.join(alone)}"
    elif only_before or only_after:
        yield f"tasks only in the run before: {only_before}; only in the run after: {only_after}"


def who(contrast: Contrast, *, with_runs: bool = False) -> str:
    """Return who is compared: a candidate before and after, or two candidates."""
    before, after = one_line(contrast.before), one_line(contrast.after)
    if not with_runs or contrast.run_before == contrast.run_after:
        return before if before == after else f"{before} → {after}"
    runs = one_line(contrast.run_before), one_line(contrast.run_after)
    if before == after:
        return f"{before}, {runs[0]} → {runs[1]}"
    return f"{before} of {runs[0]} → {after} of {runs[1]}"


def moved(contrast: Contrast, *, with_runs: bool = False, with_tasks: bool = True) -> Iterator[str]:
    """Yield the tasks on which a candidate did worse, then those on which it did better."""
    name = who(contrast, with_runs=True) if with_runs else one_line(contrast.after)
    than = ""
    if contrast.in_one_run:
        name, than = one_line(contrast.after), f" than {one_line(contrast.before)}"
    worse = [task for task in contrast.moved if task.after < task.before]
    better = [task for task in reversed(contrast.moved) if task.after > task.before]
    if contrast.moved and not with_tasks:
        yield f"{name}: worse{than} on {counted(len(worse), 'task')}, better on {len(better)}"
        return
    for word, tasks in (("worse", worse), ("better", better)):
        if tasks:
            yield f"{name}: {word}{than} on {counted(len(tasks), 'task')}: {_named(tasks)}"
    if not contrast.moved and contrast.pair.tasks:
        same = f" as {one_line(contrast.before)}" if than else ""
        yield f"{name}: the same score{same} on each of {counted(contrast.pair.tasks, 'task')}"


def _named(tasks: Sequence[ChangedTask]) -> str:
    shown = [f"{one_line(t.task)} {t.before:.2f} → {t.after:.2f}" for t in tasks[:_MOST_TASKS]]
    more = len(tasks) - len(shown)
    return ", ".join(shown) + (f", and {more} more (--json has all)" if more else "")


def verdict(contrast: Contrast) -> str:
    """Return whether a candidate became better or worse, or which of two in one run is better."""
    pair = contrast.pair
    if contrast.in_one_run:
        return pair_verdict(_named_pair(contrast))
    if pair.better is None:
        return pair.verdict
    word = "worse" if contrast.worse else "better"
    if pair.unit == ROLLOUT:
        return f"{word} than before on this task, by {amount(pair.difference or 0.0)}"
    sign = -1 if contrast.worse else 1
    return f"{word} than before: {by_how_much(pair, sign, fewer=contrast.worse)}{price(pair)}"


def _named_pair(contrast: Contrast) -> Pair:
    """Return the pair of two candidates of one run under their names."""
    names = {AFTER: contrast.after, BEFORE: contrast.before}
    pair, ahead = contrast.pair, AFTER if (contrast.pair.difference or 0.0) > 0 else BEFORE
    why = pair.undecided
    if pair.withheld and why is not None:
        why = why.replace(f"{ahead} is better unless", f"{names[ahead]} is better unless")
    better = None if pair.better is None else names[pair.better]
    return replace(pair, first=contrast.after, second=contrast.before, better=better, undecided=why)


def verdicts(contrasts: Sequence[Contrast], *, with_runs: bool) -> tuple[str, ...]:
    """Return the verdict on each two that were compared, with their names."""
    return tuple(
        verdict(c) if c.in_one_run else f"{who(c, with_runs=with_runs)}: {verdict(c)}"
        for c in contrasts
    )
