"""Simulated runs of candidates whose true scores are known: rankings, gates and adaptive runs.

A task has a chance to be solved, drawn evenly from 0 to 1 - *gap*; a candidate that is better by a
gap solves every task with so much more. Everything is drawn with the generator that is given.
"""

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
from bakeoff.stats.estimate import MissingBounds
from bakeoff.stats.gate import GateState, against_baseline
from bakeoff.stats.paired import Pair, TaskMeans, compare, decide
from bakeoff.stats.pairwise import CandidateScores, Pairwise, pairwise
from bakeoff.stats.stopping_rule import TaskOrder
from support.plans import candidate, plan, scored_by, tasks
from support.rows import row

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
    trials = 0
    for job in selection.wanted_jobs(jobs):
        name, task, rollout = job.trial.candidate.id, job.trial.task.id, job.trial.rollout
        score = float(scores[NAMES.index(name), int(task[1:]), rollout])
        tally = seen[name].setdefault(task, _Tally())
        tally.n, tally.total, tally.passed = (
            tally.n + 1,
            tally.total + score,
            tally.passed + int(score),
        )
        selection.record(name, task, score)
        trials += 1
    drawn = TaskOrder(
        order=[task.id for task in given.drawn_tasks(rule.seed)],
        precision=rule.precision,
        complete=frozenset(name for name, known in seen.items() if len(known) == count),
        best=rule.goal == "best",
        looks=rule.looks,
    )
    columns = [CandidateScores(candidate=name, tasks={"": known}) for name, known in seen.items()]
    found = pairwise(columns, drawn=drawn)
    assert found is not None
    return Ended(found=found, trials=trials)


@dataclass(slots=True)
class _Tally:
    n: int = 0
    total: float = 0.0
    passed: int = 0


# Rankings


def task_means(scores: Scores) -> list[TaskMeans]:
    """Return the task means of each candidate."""
    once = scores.shape[2] == 1
    return [
        TaskMeans(candidate=NAMES[number], means=means.tolist(), binary=once, solved=True)
        for number, means in enumerate(scores.mean(axis=2))
    ]


def ranking(scores: Scores) -> tuple[Pair, ...]:
    """Return every two candidates compared, as in a run that was not adaptive."""
    columns = task_means(scores)
    return decide([compare(a, b) for n, a in enumerate(columns) for b in columns[n + 1 :]])


FAULT_RULES = ("failures", "successes", "everybody's failures", "by chance")


def with_faults(rng: np.random.Generator, scores: Scores, *, of_whom: str) -> list[TaskMeans]:
    """Return two candidates of which 30 % of the trials ended as faults, by a rule."""
    columns = []
    for number, marks in enumerate(scores[:, :, 0]):
        hit = rng.random(len(marks)) < 0.3
        if of_whom != "by chance":
            hit &= marks == (1.0 if of_whom == "successes" else 0.0)
            hit &= (number == 0) | (of_whom == "everybody's failures")
        lost = {int(n): MissingBounds(low=0.0, high=1.0, faults=1) for n in np.flatnonzero(hit)}
        means = np.where(hit, np.nan, marks).tolist()
        columns.append(TaskMeans(candidate=NAMES[number], means=means, binary=True, bounds=lost))
    return columns


# Gates


def gate_state(before: Scores, after: Scores, margin: float) -> GateState:
    """Return the state of a gate between two runs of one candidate, of tasks by rollouts."""
    runs = [run_scores(_rows(marks)) for marks in (before, after)]
    (contrast,) = contrasts(runs[0], runs[1], [("m", "m")])
    return against_baseline(contrast, margin=margin).state


def _rows(marks: Scores) -> list[TrialRow]:
    return [
        row(f"t{task:04}", float(score), candidate_id="m", rollout=k)
        for task, scores in enumerate(marks)
        for k, score in enumerate(scores)
    ]


def gate_share(
    wanted: GateState, *, loss: float, margin: float, rollouts: int, repetitions: int
) -> float:
    """Return the share of gates over 200 tasks that come to *wanted*, where *loss* was lost."""
    rng, found = np.random.default_rng([rollouts, int(loss * 1000)]), 0
    for _ in range(repetitions):
        hard = 0.1 + 0.8 * rng.beta(2, 1, 200)
        before = rng.random((200, rollouts)) < hard[:, None]
        after = rng.random((200, rollouts)) < hard[:, None] - loss
        found += gate_state(before.astype(float), after.astype(float), margin) is wanted
    return found / repetitions
