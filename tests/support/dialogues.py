"""Dialogues with scripted roles: what each party says is a list, and what it was asked is kept."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bakeoff.agents.dialogue.agent import InDialogue
from bakeoff.agents.direct import Direct
from bakeoff.core.candidate import Candidate, Conditions, Limits, ModelSpec
from bakeoff.core.dialogue import Dialogue
from bakeoff.core.outcome import Completion, Request, Usage
from bakeoff.core.plan import Trial
from bakeoff.core.ports import Agent, Checkpoints, TrialParts, WorkspaceAccess
from bakeoff.core.record import Attempt
from bakeoff.core.task import Task
from bakeoff.engine.trial import run_attempt
from bakeoff.models.adapters.function import FunctionModel

Says = str | Exception | Completion


def instructs(message: str, *, end: bool = False) -> str:
    return json.dumps({"thought": "t", "user_response": message, "end": end})


def reveals(message: str, *shards: int) -> str:
    return json.dumps({"thought": "t", "user_response": message, "shards": list(shards)})


def agrees() -> str:
    return json.dumps({"thought": "t", "contradictory": False, "follow_up_instruction": None})


def objects(follow_up: str | None) -> str:
    return json.dumps({"thought": "t", "contradictory": True, "follow_up_instruction": follow_up})


class Script:
    """A model that says *lines* one after another, and keeps what it was asked."""

    def __init__(self, lines: Iterable[Says], *, last_again: bool = False) -> None:
        self._lines = list(lines)
        self._last_again = last_again
        self.asked: list[Request] = []

    def __call__(self, request: Request) -> Any:  # some play theirs as a coroutine
        self.asked.append(request)
        at = len(self.asked) - 1
        if at >= len(self._lines) and self._last_again:
            at = -1
        line = self._lines[at]
        if isinstance(line, Exception):
            raise line
        if isinstance(line, Completion):
            return line
        return Completion(text=line, model="played", usage=Usage(input_tokens=10, output_tokens=2))


@dataclass(kw_only=True)
class Scene:
    """A dialogue and who plays in it."""

    instructor: Script
    agent_model: Script
    supervisor: Script | None = None
    agent: Agent = field(default_factory=Direct)
    dialogue: Dialogue = field(default_factory=lambda: Dialogue(objective="get it done"))
    limits: Limits = field(default_factory=Limits)
    task: Task | None = None
    site: WorkspaceAccess | None = None
    checkpoints: Checkpoints | None = None

    def trial(self) -> Trial:
        task = self.task or Task(id="case", messages=(), dialogue=self.dialogue)
        conditions = Conditions(limits=self.limits)
        spec = ModelSpec(provider="python", name="m")
        return Trial(
            task=task, candidate=Candidate(id="m", model=spec), conditions=conditions, rollout=0
        )

    def parts_for(self) -> TrialParts:
        roles = {"instructor": FunctionModel(self.instructor)}
        if self.supervisor is not None:
            roles["supervisor"] = FunctionModel(self.supervisor)
        return TrialParts(
            agent=InDialogue(agent=self.agent),
            model=FunctionModel(self.agent_model),
            scorers=(),
            roles=roles,
            workspace_access=self.site,
            checkpoints=self.checkpoints,
        )

    def play(self, number: int = 1) -> Attempt:
        return asyncio.run(run_attempt(self.trial(), self.parts_for(), number=number))


def said(attempt: Attempt) -> list[tuple[str, str]]:
    """The transcript as (role, text)."""
    assert attempt.outcome is not None, attempt.fault
    return [(m.role, m.content) for m in attempt.outcome.transcript]


def notes(attempt: Attempt) -> dict[str, Any]:
    assert attempt.outcome is not None, attempt.fault
    told = attempt.outcome.notes["dialogue"]
    assert isinstance(told, dict)
    return told


def speakers(attempt: Attempt) -> Sequence[str]:
    return [turn["speaker"] for turn in notes(attempt)["turns"]]
