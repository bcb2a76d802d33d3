"""Simulated runs of candidates whose true scores are known: rankings, gates and adaptive runs.

A task has a chance to be solved, drawn evenly from 0 to 1 - *gap*; a candidate that is better by a
gap solves every task with so much more. A score that is NaN is a trial that faulted. Everything is
drawn with the generator that is given.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bakeoff.core.plan import Plan
from bakeoff.core.ports import Job
from bakeoff.core.record import TrialRow
from bakeoff.core.run_spec import Adaptive
from bakeoff.engine.adaptive import AdaptiveSelection
from bakeoff.planning.expand import ordered
from bakeoff.stats.between_runs import contrasts, run_scores
from bakeoff.stats.estimate import MissingBounds, bounds
from bakeoff.stats.gate import GateCheck, GateState, against_baseline
from bakeoff.stats.paired import Pair, TaskMeans, compare, decide
from bakeoff.stats.pairwise import CandidateScores, Pairwise, pairwise
from bakeoff.stats.stopping_rule import TaskOrder
from support.plans import candidate, plan, scored_by, tasks
from support.rows import fault, row

Scores = NDArray[np.float64]
NAMES = "abcdefghij"


def drawn_scores(
    rng: np.random.Generator, gaps: Sequence[float], *, count: int, rollouts: int = 1
) -> Scores:
    """Return scores of 0 and 1 by candidate, task and rollout; each candidate has its own gap."""
    hard = rng.random(count) * (1 - max(gaps))
    chances = hard[None, :, None] + np.asarray(gaps)[:, None, None]
    return (rng.random((len(gaps), count, rollouts)) < chances).astype(float)


# Adaptive runs


@dataclass(frozen=True, kw_only=True)
class Ended:
    """An adaptive run: what was found, and how many trials it took."""

    found: Pairwise
    trials: int


@lru_cache(maxsize=8)
def _given(candidates: int, count: int, rollouts: int, rule: Adaptive) -> tuple[Plan, list[Job]]:
    names = [candidate(NAMES[number]) for number in range(candidates)]
    whole = plan(*tasks(count, scorers=scored_by("exact")), candidates=names, rollouts=rollouts)
    drawn = ordered(whole, rule)
    return drawn, [Job(trial=trial, attempt=1) for trial in drawn]


def adaptive_run(scores: Scores, rule: Adaptive) -> Ended:
    """Run candidates with these *scores* one trial after the other until *rule* has enough."""
    candidates, count, rollouts = scores.shape
    given, jobs = _given(candidates, count, rollouts, rule)
    selection = AdaptiveSelection(given, rule)
    seen: dict[str, dict[str, _Tally]] = {NAMES[number]: {} for number in range(candidates)}
    ended: dict[str, set[str]] = {name: set() for name in seen}
    faults: dict[str, dict[str, int]] = {name: {} for name in seen}
    trials = 0
    for job in selection.wanted_jobs(jobs):
        name, task, rollout = job.trial.candidate.id, job.trial.task.id, job.trial.rollout
        score = float(scores[NAMES.index(name), int(task[1:]), rollout])
        trials += 1
        ended[name].add(task)
        if math.isnan(score):
            faults[name][task] = faults[name].get(task, 0) + 1
            selection.record(name, task, None, faulted=True)
        else:
            seen[name].setdefault(task, _Tally()).add(score)
            selection.record(name, task, score)
    drawn = TaskOrder(
        order=[task.id for task in given.drawn_tasks(rule.seed)],
        precision=rule.precision,
        complete=frozenset(name for name, tasks_of in ended.items() if len(tasks_of) == count),
        best=rule.goal == "best",
        looks=rule.looks,
    )
    columns = [
        CandidateScores(candidate=name, tasks={"": known}, faults=faults[name])
        for name, known in seen.items()
    ]
    found = pairwise(columns, drawn=drawn)
    assert found is not None
    return Ended(found=found, trials=trials)


@dataclass(slots=True)
class _Tally:
    n: int = 0
    total: float = 0.0
    passed: int = 0

    def add(self, score: float) -> None:
        """Add the score of a trial."""
        self.n += 1
        self.total += score
        self.passed += int(score)


# Rankings


def task_means(scores: Scores) -> list[TaskMeans]:
    """Return the task means of each candidate."""
    once = scores.shape[2] == 1
    return [
        TaskMeans(
            candidate=NAMES[number],
            means=_means(marks).tolist(),
            binary=once,
            bounds=_bounds(marks),
            solved=True,
        )
        for number, marks in enumerate(scores)
    ]


def _means(marks: Scores) -> Scores:
    known = (~np.isnan(marks)).sum(axis=1)
    return np.where(known > 0, np.nansum(marks, axis=1) / np.maximum(known, 1), np.nan)


def _bounds(marks: Scores) -> dict[int, MissingBounds]:
    """Return the bounds of the tasks of which a trial faulted."""
    lost = np.isnan(marks).sum(axis=1)
    rollouts = marks.shape[1]
    totals = np.nansum(marks, axis=1)
    return {
        int(n): bounds(scored=rollouts - int(lost[n]), total=float(totals[n]), faults=int(lost[n]))
        for n in np.flatnonzero(lost)
    }


def ranking(scores: Scores) -> tuple[Pair, ...]:
    """Return every two candidates compared, as in a run that was not adaptive."""
    columns = task_means(scores)
    return decide([compare(a, b) for n, a in enumerate(columns) for b in columns[n + 1 :]])


FAULT_RULES = ("failures", "successes", "everybody's failures", "by chance")


def with_faults(rng: np.random.Generator, scores: Scores, *, of_whom: str) -> Scores:
    """Return *scores* of which 30 % are lost to faults, by a rule; those of the first unless it says everybody's."""
    hit = rng.random(scores.shape) < 0.3
    if of_whom != "by chance":
        hit &= scores == (1.0 if of_whom == "successes" else 0.0)
    if of_whom in ("failures", "successes"):
        hit[1:] = False
    return np.where(hit, np.nan, scores)


# Gates


def gate_check(before: Scores, after: Scores, margin: float) -> GateCheck:
    """Return what a gate finds between two runs of one candidate, of tasks by rollouts."""
    runs = [run_scores(_rows(marks)) for marks in (before, after)]
    (contrast,) = contrasts(runs[0], runs[1], [("m", "m")])
    return against_baseline(contrast, margin=margin)


def _rows(marks: Scores) -> list[TrialRow]:
    return [
        fault(f"t{task:04}", rollout=k)
        if math.isnan(score)
        else row(f"t{task:04}", float(score), rollout=k)
        for task, scores in enumerate(marks)
        for k, score in enumerate(scores)
    ]


def gate_share(
    wanted: GateState,
    *,
    loss: float,
    margin: float,
    rollouts: int,
    repetitions: int,
    faults: str | None = None,
) -> float:
    """Return the share of gates over 200 tasks that come to *wanted*, where *loss* was lost.

    With *faults*, 30 % of the trials after are lost to faults, by this rule.
    """
    rng, found = np.random.default_rng([rollouts, int(loss * 1000)]), 0
    for _ in range(repetitions):
        hard = 0.1 + 0.8 * rng.beta(2, 1, 200)
        before = rng.random((200, rollouts)) < hard[:, None]
        after = (rng.random((200, rollouts)) < hard[:, None] - loss).astype(float)
        if faults is not None:
            after = with_faults(rng, after[None], of_whom=faults)[0]
        found += gate_check(before.astype(float), after, margin).state is wanted
    return found / repetitions
