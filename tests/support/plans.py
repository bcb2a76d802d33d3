"""Small tasks, plans and parts, as tests of the engine and the stores need them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakeoff.agents.direct import Direct
from bakeoff.core.candidate import Candidate, Conditions, Limits, ModelSpec
from bakeoff.core.outcome import Outcome, Request, Spent, Usage
from bakeoff.core.plan import Block, Plan, Trial
from bakeoff.core.ports import Agent, Model, Scorer, TrialParts
from bakeoff.core.record import Attempt, Fault, Score, Status
from bakeoff.core.task import Message, ScorerSpec, Task
from bakeoff.models.adapters.function import FunctionModel
from bakeoff.scorers.function import FunctionScorer


def task(id: str = "t1", *, prompt: str | None = None, **rest: Any) -> Task:  # noqa: A002
    return Task(id=id, messages=(Message(role="user", content=prompt or f"ask {id}"),), **rest)


def tasks(count: int, **rest: Any) -> tuple[Task, ...]:
    return tuple(task(f"t{number:04}", **rest) for number in range(count))


def candidate(id: str = "m", *, temperature: float = 0.0) -> Candidate:  # noqa: A002
    spec = ModelSpec(provider="python", name=id, parameters={"temperature": temperature})
    return Candidate(id=id, model=spec)


def plan(
    *given: Task,
    rollouts: int = 1,
    candidates: Sequence[Candidate] = (),
    limits: Limits | None = None,
    attempts: int = 2,
) -> Plan:
    block = Block(
        tasks=given or (task(),), candidates=tuple(candidates) or (candidate(),), rollouts=rollouts
    )
    conditions = Conditions(limits=limits or Limits(), attempts=attempts)
    return Plan(blocks=(block,), conditions=conditions)


def trial(given: Task | None = None, **rest: Any) -> Trial:
    return next(iter(plan(*([given] if given else []), **rest)))


def attempt(
    number: int = 1,
    *,
    status: Status = Status.COMPLETED,
    answer: str = "four",
    score: float | None = 1.0,
    message: str = "HTTP 503",
) -> Attempt:
    """An attempt as the engine would leave it."""
    spent = Spent(requests=1, usage=Usage(input_tokens=7, output_tokens=3), model_s=0.25)
    if not status.final:
        fault = Fault(boundary="provider", message=message, transient=True)
        return Attempt(
            number=number, status=status, started_at=1.0, elapsed_s=0.5, fault=fault, spent=spent
        )
    scores = () if score is None else (Score(scorer="exact", value=score),)
    return Attempt(
        number=number,
        status=status,
        started_at=1.0,
        elapsed_s=0.5,
        outcome=Outcome(answer=answer, transcript=(Message(role="assistant", content=answer),)),
        scores=scores,
        score=score,
        passed=None if score is None else score >= 1,
        spent=spent,
    )


@dataclass(kw_only=True)
class Workshop:
    """Rigs with the same agent and model for every trial, and scorers by name."""

    model: Model
    agent: Agent = field(default_factory=Direct)
    scorers: Mapping[str, Scorer] = field(default_factory=dict)
    roles: Mapping[str, Model] = field(default_factory=dict)

    def parts_for(self, trial: Trial) -> TrialParts:
        return TrialParts(
            agent=self.agent,
            model=self.model,
            scorers=tuple(self.scorers[spec.name] for spec in trial.task.scorers),
            roles=self.roles,
        )

    async def close(self) -> None:
        pass


def workshop(
    answer: Callable[[Request], object] | str = "four",
    *,
    agent: Agent | None = None,
    roles: Mapping[str, Callable[[Request], object]] | None = None,
    **scorers: Callable[..., object] | Scorer,
) -> Workshop:
    """Rigs from plain functions."""
    function = answer if callable(answer) else lambda _: answer
    return Workshop(
        model=FunctionModel(function),
        agent=agent or Direct(),
        scorers={
            name: part if hasattr(part, "score") else FunctionScorer(part)
            for name, part in scorers.items()
        },
        roles={name: FunctionModel(part) for name, part in (roles or {}).items()},
    )


def scored_by(*names: str, weights: Sequence[float] = ()) -> tuple[ScorerSpec, ...]:
    pairs = zip(names, weights or [1.0] * len(names), strict=True)
    return tuple(ScorerSpec(name=name, weight=weight) for name, weight in pairs)


def write_suite(path: Path, count: int) -> Path:
    """Write a JSON suite whose prompts are their own right answers, each of them different."""
    tests = [
        {
            "id": f"t{number:04}",
            "name": f"Test {number}",
            "category": f"c{number % 3}",
            "reasoning_type": "general",
            "prompt": f"say number {number:04}",
            "expected": f"number {number:04}",
        }
        for number in range(count)
    ]
    suite = {"suite_info": {"name": path.stem, "version": "1"}, "tests": tests}
    path.write_text(json.dumps(suite), encoding="utf-8")
    return path
