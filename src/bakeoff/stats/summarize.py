"""From ledger rows to a summary: one pass, memory in the number of tasks."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import TypeAlias, TypeVar

from bakeoff.core.lazy_tasks import outlines_of
from bakeoff.core.plan import Plan
from bakeoff.core.record import Status, TrialRecord, TrialRow, joined_rules, rule_of
from bakeoff.core.run_spec import Adaptive
from bakeoff.core.task import Task
from bakeoff.stats.by_task import mean_pass, pass_at_k, pass_hat_k
from bakeoff.stats.classification import (
    LABEL_SCORERS,
    Classification,
    classifications,
)
from bakeoff.stats.estimate import (
    Estimate,
    IntervalMethod,
    Ratio,
    TaskScores,
    estimate,
    fault_bounds,
    is_checked,
    quantile,
    quantile_interval,
    ratio_of_totals,
    weighted_average,
)
from bakeoff.stats.fairness import fairness_check
from bakeoff.stats.main_effects import main_effects
from bakeoff.stats.pairwise import CandidateScores, pairwise
from bakeoff.stats.sequential import estimate_drawn
from bakeoff.stats.stopping_rule import TaskOrder
from bakeoff.stats.summary import (
    BUCKET_NAMES,
    Buckets,
    CandidateSummary,
    Group,
    Latency,
    PassRates,
    Summary,
    Tokens,
    notes,
)
from bakeoff.stats.variance import split_variance

T = TypeVar("T")
_SHORTEST_S = 1e-9  # less than a clock can tell: not a measured time


@dataclass(slots=True)
class _TaskTally:
    n: int = 0
    total: float = 0.0
    squares: float = 0.0
    passed: int = 0
    low: float = float("inf")
    high: float = float("-inf")
    binary: bool = True

    def add(self, score: float, *, passed: bool) -> None:
        self.n += 1
        self.total += score
        self.squares += score * score
        self.passed += passed
        self.low = min(self.low, score)
        self.high = max(self.high, score)
        self.binary = self.binary and score in (0.0, 1.0)

    def scores(self) -> TaskScores:
        return TaskScores(
            n=self.n, total=self.total, low=self.low, high=self.high, binary=self.binary
        )


@lru_cache(maxsize=1024)
def _one_score(score: float, passed: bool) -> _TaskTally:  # noqa: FBT001 -- for the cache
    """Return the tally of a task with one score: one object for all of them, not to be changed."""
    tally = _TaskTally()
    tally.add(score, passed=passed)
    return tally


@dataclass(slots=True)
class _Tally:
    """What is counted while rows go by, for one candidate in one category."""

    groups: Mapping[str, str]  # of the whole plan: the group of every task that is in one
    planned: int = 0
    checkable: int = 0
    not_needed: int = 0
    tasks: dict[str, _TaskTally] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)  # by task, of those that are checked
    unchecked: set[str] = field(default_factory=set)
    rollouts: list[float] | None = None  # the scores of a plan's only task, one by one
    latency: "array[float]" = field(default_factory=lambda: array("d"))
    first_token: "array[float]" = field(default_factory=lambda: array("d"))
    input_tokens: int | None = None
    output_tokens: int | None = None
    timed_tokens: int = 0
    timed_s: float = 0.0
    cost_usd: float | None = None
    cost_known: bool = True
    cost_by_task: dict[str, float] = field(default_factory=dict)
    extra_attempts: int = 0
    load_s: float | None = None
    flags: Counter[str] = field(default_factory=Counter)

    def add(self, row: TrialRow) -> None:
        bucket = _bucket(row)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.extra_attempts += row.attempts - 1
        if row.score is not None:
            self._add_score(row.task_id, row.score, passed=bool(row.passed))
        elif row.status == Status.FAULTED and row.task_id not in self.unchecked:
            self.faults[row.task_id] += 1
        if row.requests:
            self._add_usage(row)
        if row.load_s is not None:
            self.load_s = (self.load_s or 0.0) + row.load_s
        if row.flags:
            self.flags.update(row.flags.split(","))

    @property
    def complete(self) -> bool:
        """Whether every planned trial has come to an end of its own."""
        return sum(self.counts.values()) - self.counts.get("cancelled", 0) >= self.planned

    def settle(self) -> None:
        """Count missing trials as not needed."""
        self.not_needed = self.planned - sum(self.counts.values())
        self.checkable = max(self.checkable - self.not_needed, 0)

    def _add_score(self, task_id: str, score: float, *, passed: bool) -> None:
        if self.rollouts is not None:
            self.rollouts.append(score)
        task = self.tasks.get(task_id)
        if task is None:
            self.tasks[task_id] = _one_score(score, passed)
            return
        if task.n == 1:  # shared with other tasks
            task = self.tasks[task_id] = replace(task)
        task.add(score, passed=passed)

    def _add_usage(self, row: TrialRow) -> None:
        self.latency.append(row.model_s / row.requests)
        if row.first_token_s is not None:
            self.first_token.append(row.first_token_s)
        if row.input_tokens is not None:
            self.input_tokens = (self.input_tokens or 0) + row.input_tokens
        if row.output_tokens is not None:
            self.output_tokens = (self.output_tokens or 0) + row.output_tokens
            if row.model_s >= _SHORTEST_S:
                self.timed_tokens += row.output_tokens
                self.timed_s += row.model_s
        if row.cost_usd is None:
            self.cost_known = False
        else:
            self.cost_usd = (self.cost_usd or 0.0) + row.cost_usd
            if row.cost_usd:
                spent = self.cost_by_task.get(row.task_id, 0.0)
                self.cost_by_task[row.task_id] = spent + row.cost_usd


def summarize(
    plan: Plan,
    rows: Iterable[TrialRow],
    *,
    run: str = "",
    adaptive: Adaptive | None = None,
    interval: IntervalMethod = "auto",
    records: Callable[[], Iterable[TrialRecord]] | None = None,
    margin: float | None = None,
    force: bool = False,
) -> Summary:
    """Return what *rows* say about *plan*; the unit of every estimate is the task.

    An *adaptive* run has been looked at all along, and its numbers allow for that: the *interval*
    of scores that was asked for is that of other runs. With a *margin*, candidates may be equivalent.
    *records* are read only where labels were scored: how candidates classify is not in the rows.
    Candidates whose conditions differ are compared without a verdict, unless *force* insists on one.
    """
    tallies, rules, gives_labels = _planned(plan)
    tasks = plan.task_count
    if tasks == 1:
        for by_category in tallies.values():
            for tally in by_category.values():
                tally.rollouts = []
    for row in rows:
        tallies[row.candidate_id][row.category or ""].add(row)
    drawn = _drawn(plan, adaptive, tallies)
    scores = _scores_by_candidate(plan, tallies)
    apart = None if force else fairness_check(plan)
    compared = pairwise(list(scores.values()), drawn=drawn, margin=margin, apart=apart)
    if drawn is not None and compared is not None:
        for name in compared.settled:
            for tally in tallies[name].values():
                tally.settle()
    estimator = _estimator(drawn, interval)
    candidates = tuple(
        _candidate(c.id, tallies[c.id], estimator, scripted=c.scripted) for c in plan.candidates
    )
    # an adaptive run has other tasks for each candidate, and one task has no pairs of tasks
    effects = main_effects(list(plan.candidates), scores) if drawn is None and tasks > 1 else ()
    sentences = notes(plan, candidates)
    return Summary(
        run=run,
        tasks=tasks,
        rollouts=plan.rollouts,
        buckets=_merged(c.total.buckets for c in candidates),
        candidates=candidates,
        notes=sentences.all,
        warnings=sentences.warnings,
        pass_rule=joined_rules(rules),
        pairwise=compared,
        main_effects=effects,
        classification=_classification(records, tallies) if records and gives_labels else (),
    )


def _classification(
    records: Callable[[], Iterable[TrialRecord]], tallies: Mapping[str, Mapping[str, _Tally]]
) -> tuple[Classification, ...]:
    of_all = next((tally for each in tallies.values() for tally in each.values()), None)
    return classifications(records(), {} if of_all is None else of_all.groups)


def _drawn(
    plan: Plan, adaptive: Adaptive | None, tallies: Mapping[str, Mapping[str, _Tally]]
) -> TaskOrder | None:
    if adaptive is None:
        return None
    order = [task.id for task in plan.drawn_tasks(adaptive.seed)]
    complete = frozenset(
        name for name, parts in tallies.items() if all(part.complete for part in parts.values())
    )
    return TaskOrder(
        order=order,
        precision=adaptive.precision,
        complete=complete,
        best=adaptive.goal == "best",
        looks=adaptive.looks,
    )


def _scores_by_candidate(
    plan: Plan, tallies: Mapping[str, Mapping[str, _Tally]]
) -> dict[str, CandidateScores]:
    return {
        c.id: CandidateScores(
            candidate=c.id,
            tasks={name: t.tasks for name, t in tallies[c.id].items()},
            faults={task: n for t in tallies[c.id].values() for task, n in t.faults.items()},
            groups=next((t.groups for t in tallies[c.id].values()), {}),
            costs=_mean_costs(tallies[c.id].values()),
            # in order of size: the order in which trials ended makes no difference
            rollouts=next(
                (sorted(t.rollouts) for t in tallies[c.id].values() if t.rollouts is not None),
                None,
            ),
        )
        for c in plan.candidates
    }


def _mean_costs(tallies: Iterable[_Tally]) -> dict[str, float]:
    """Return what a scored trial of each task cost; nothing where a cost is unknown."""
    seen = list(tallies)
    if not all(tally.cost_known for tally in seen):
        return {}
    return {
        task: cost / tally.tasks[task].n
        for tally in seen
        for task, cost in tally.cost_by_task.items()
        if task in tally.tasks
    }


def _planned(plan: Plan) -> tuple[dict[str, dict[str, _Tally]], set[str], bool]:
    """Return the empty tallies of *plan*, what it takes to pass its tasks, and if labels are scored."""
    tallies: dict[str, dict[str, _Tally]] = {c.id: {} for c in plan.candidates}
    rules: set[str] = set()
    groups: dict[str, str] = {}
    gives_labels = False
    for block in plan.blocks:
        seen: Task | None = None
        checked = False
        for task in outlines_of(block.tasks):
            category = task.category or ""
            if task.group is not None:
                groups[task.id] = task.group
            if task.sample is not seen:
                seen = task.sample
                checked = is_checked(seen)
                if seen.scorers:
                    rules.add(rule_of(seen))
                    gives_labels = gives_labels or any(
                        s.name in LABEL_SCORERS for s in seen.scorers
                    )
            for candidate in block.candidates:
                by_category = tallies[candidate.id]
                tally = by_category.get(category)
                if tally is None:
                    tally = by_category[category] = _Tally(groups=groups)
                tally.planned += block.rollouts
                if checked:
                    tally.checkable += block.rollouts
                else:
                    tally.unchecked.add(task.id)
    return tallies, rules, gives_labels


def _bucket(row: TrialRow) -> str:
    if row.status == Status.COMPLETED:
        return "scored" if row.score is not None else "unchecked"
    if row.status == Status.FAULTED:
        own_fault = row.fault_boundary == "provider" and not row.fault_transient
        return "model_error" if own_fault else "infrastructure_fault"
    return row.status


_Estimator: TypeAlias = Callable[[list[_Tally]], Estimate]


def _estimator(drawn: TaskOrder | None, interval: IntervalMethod) -> _Estimator:
    """Return how the score of a candidate is estimated."""
    if drawn is None:
        return lambda tallies: estimate(
            (scores for tally in tallies for scores in _scores_of(tally)), method=interval
        )
    order = {task: number for number, task in enumerate(drawn.order)}

    def in_order(tallies: list[_Tally]) -> Estimate:
        known = {name: task for tally in tallies for name, task in tally.tasks.items()}
        return estimate_drawn(known[name].scores() for name in sorted(known, key=order.__getitem__))

    return in_order


def _candidate(
    candidate: str, tallies: Mapping[str, _Tally], estimator: _Estimator, *, scripted: bool
) -> CandidateSummary:
    named = {name: tally for name, tally in tallies.items() if name}
    categories = tuple(_group(name, [named[name]], estimator) for name in sorted(named))
    # a task without a category is in none of the strata
    strata = categories if len(categories) > 1 and len(named) == len(tallies) else ()
    return CandidateSummary(
        candidate=candidate,
        scripted=scripted,
        total=_group(None, list(tallies.values()), estimator),
        categories=categories,
        macro=weighted_average([(group.score, 1.0) for group in strata]),
        stratified=weighted_average([(group.score, group.score.tasks) for group in strata]),
        variance=split_variance(
            task for tally in tallies.values() for task in tally.tasks.values()
        ),
    )


def _group(category: str | None, tallies: list[_Tally], estimator: _Estimator) -> Group:
    buckets = _buckets(tallies)
    scored = int(_sum_over_tasks(tallies, "n"))
    checkable = sum(tally.checkable for tally in tallies)
    total = _sum_over_tasks(tallies, "total")
    bounds = fault_bounds(total, scored=scored, faulted=max(checkable - scored, 0))
    return Group(
        category=category,
        buckets=buckets,
        score=estimator(tallies),
        score_bounds=bounds,
        coverage=scored / checkable if checkable else 0.0,
        passed=int(_sum_over_tasks(tallies, "passed")),
        passes=_pass_rates(tallies),
        cost_per_success=_cost_per_success(tallies),
        tokens=_tokens(tallies),
        latency=_latency(tallies),
        extra_attempts=sum(t.extra_attempts for t in tallies),
        flags=dict(sum((t.flags for t in tallies), Counter())),
    )


def _sum_over_tasks(tallies: list[_Tally], name: str) -> float:
    tasks = chain.from_iterable(tally.tasks.values() for tally in tallies)
    values: Iterator[float] = map(attrgetter(name), tasks)
    return sum(values)


def _scores_of(tally: _Tally) -> Iterator[TaskScores]:
    """Yield the scores of each task."""
    scores = _of_each(tally, _TaskTally.scores)
    if not tally.groups:
        return scores
    groups = map(tally.groups.get, tally.tasks)
    return (s if g is None else replace(s, group=g) for s, g in zip(scores, groups, strict=True))


def _of_each(tally: _Tally, make: Callable[[_TaskTally], T]) -> Iterator[T]:
    """Yield what *make* makes of each task; of a tally that many tasks share it is made once."""
    made = {key: make(task) for key, task in {id(t): t for t in tally.tasks.values()}.items()}
    return map(made.__getitem__, map(id, tally.tasks.values()))


def _buckets(tallies: list[_Tally]) -> Buckets:
    counts: dict[str, int] = {}
    for tally in tallies:
        for bucket, count in tally.counts.items():
            counts[bucket] = counts.get(bucket, 0) + count
    planned, not_needed = sum(t.planned for t in tallies), sum(t.not_needed for t in tallies)
    not_run = planned - not_needed - sum(counts.values())
    return Buckets(**counts, not_run=not_run, not_needed=not_needed)


def _merged(all_buckets: Iterable[Buckets]) -> Buckets:
    total = dict.fromkeys(BUCKET_NAMES, 0)
    for buckets in all_buckets:
        for name in total:
            total[name] += getattr(buckets, name)
    return Buckets(**total)


def _pass_rates(tallies: list[_Tally]) -> tuple[PassRates, ...]:
    def counts() -> Iterator[tuple[int, int]]:
        return chain.from_iterable(_of_each(t, lambda task: (task.n, task.passed)) for t in tallies)

    groups = _groups_of(tallies, (name for tally in tallies for name in tally.tasks))
    rates = []
    for k in _ks(min((n for n, _ in counts()), default=0)):
        at = mean_pass(counts(), k, measure=pass_at_k, groups=groups)
        hat = mean_pass(counts(), k, measure=pass_hat_k, groups=groups)
        rates.append(
            PassRates(
                k=k, pass_at=at.value, pass_hat=hat.value, pass_at_se=at.se, pass_hat_se=hat.se
            )
        )
    return tuple(rates)


def _groups_of(tallies: list[_Tally], tasks: Iterable[str]) -> list[str | None] | None:
    """Return the group of each task; None where there are no groups."""
    groups = tallies[0].groups if tallies else {}
    return [groups.get(task) for task in tasks] if groups else None


def _cost_per_success(tallies: list[_Tally]) -> Ratio | None:
    """Return what a trial that passed cost, with those that did not; None where it is unknown."""
    if not any(t.cost_by_task for t in tallies) or not all(t.cost_known for t in tallies):
        return None
    costs = {task: cost for tally in tallies for task, cost in tally.cost_by_task.items()}
    passed = {task: tally.passed for t in tallies for task, tally in t.tasks.items()}
    if not passed:
        return None
    tasks = sorted({*costs, *passed})
    pairs = [(costs.get(task, 0.0), float(passed.get(task, 0))) for task in tasks]
    return ratio_of_totals(pairs, groups=_groups_of(tallies, tasks))


def _ks(most: int) -> list[int]:
    """Return every k up to 10, then only the powers of two, to limit the columns."""
    return [k for k in range(1, most + 1) if k <= 10 or k & (k - 1) == 0 or k == most]


def _tokens(tallies: list[_Tally]) -> Tokens:
    timed_s = sum(t.timed_s for t in tallies)
    costs = [t.cost_usd for t in tallies if t.cost_usd is not None]
    return Tokens(
        input=_total(t.input_tokens for t in tallies),
        output=_total(t.output_tokens for t in tallies),
        output_per_s=sum(t.timed_tokens for t in tallies) / timed_s if timed_s else None,
        cost_usd=sum(costs) if costs and all(t.cost_known for t in tallies) else None,
    )


def _total(counts: Iterable[int | None]) -> int | None:
    known = [c for c in counts if c is not None]
    return sum(known) if known else None


def _known_total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _latency(tallies: list[_Tally]) -> Latency:
    whole = sorted(value for t in tallies for value in t.latency)
    first = sorted(value for t in tallies for value in t.first_token)
    return Latency(
        p50_s=quantile(whole, 0.5),
        p95_s=quantile(whole, 0.95),
        first_token_p50_s=quantile(first, 0.5),
        first_token_p95_s=quantile(first, 0.95),
        p50_interval=quantile_interval(whole, 0.5),
        p95_interval=quantile_interval(whole, 0.95),
        first_token_p50_interval=quantile_interval(first, 0.5),
        first_token_p95_interval=quantile_interval(first, 0.95),
        load_s=_known_total(t.load_s for t in tallies),
    )
