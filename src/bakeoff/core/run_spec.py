"""The run specification: what a front end read from the user's files; and the manifest of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal, TypeAlias

from bakeoff._lib.value_object import value_object
from bakeoff.core.budget import NO_CAP, Cap
from bakeoff.core.candidate import (
    AgentSpec,
    Candidate,
    Conditions,
    EndpointLimits,
    ModelSpec,
    Patience,
    PromptSpec,
)
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.core.workspace import SandboxSpec

AdaptiveGoal: TypeAlias = Literal["pairs", "best"]
"""What an adaptive run is to find out: who of every two is better, or only who is the best."""


@value_object
class Adaptive:
    """Run until the candidates are separated, or until the best of them is known.

    Two of them are compared task by task until it is sure who is better or, with a `precision`,
    until their difference is known to within it. With the goal `best`, one that is surely worse than
    another is not run any further. Tasks come in an order drawn from `seed`. There is a look after
    every task, or as many `looks` as given.
    """

    precision: float | None = None
    seed: int = 0
    goal: AdaptiveGoal = "pairs"
    looks: int | None = None


@value_object
class Shard:
    """Which part of a plan a run is: number `index` of `count`, from 0.

    `plan`, `tasks` and `trials` are the digest and the size of the whole plan, `part` is the digest
    of this part as it was cut. `cap` is the budget of all shards together.
    """

    index: int
    count: int
    plan: str
    part: str
    tasks: int
    trials: int
    cap: Cap = NO_CAP

    @property
    def name(self) -> str:
        """The shard as it is written: `0/3`."""
        return f"{self.index}/{self.count}"


@value_object
class Source:
    """A file that was read, and what was in it."""

    path: str
    digest: str


@value_object
class Pairing:
    """A task for one candidate, as some files pair them by themselves."""

    task: Task
    model: ModelSpec
    agent: AgentSpec
    rollouts: int = 1


@value_object
class RunSpec:
    """Tasks, and where they were given: who is to solve them, how often, under which conditions.

    A model is named as the person named it; `api` finds out what it means. Where there are
    `pairings`, they are the plan, and `tasks` only lists their tasks. `endpoints` are limits by
    URL or provider; `patience` is what the run has with one that is down. With `trust`, suites may
    name Python of their own as scorers; `allow_env` are the variables that they may read. `notices`
    are what a person should read about the files. `columns` says which columns of a data set are
    kept under a name of ours: `{"subject": "category"}`.
    """

    name: str
    tasks: Sequence[Task]
    pairings: tuple[Pairing, ...] = ()
    models: tuple[ModelSpec, ...] = ()
    agents: tuple[AgentSpec, ...] = ()
    prompts: tuple[PromptSpec, ...] = ()
    rollouts: int = 1
    parallel: int | None = None
    executor: str = "local"
    workers: int | None = None
    ray_address: str | None = None
    pause_s: float = 0.0
    warm_up: bool = False
    conditions: Conditions = field(default_factory=Conditions)
    sources: tuple[Source, ...] = ()
    cap: Cap = NO_CAP
    prices: str | None = None
    sandbox: SandboxSpec = field(default_factory=SandboxSpec)
    endpoints: Mapping[str, EndpointLimits] = field(default_factory=dict)
    adaptive: Adaptive | None = None
    patience: Patience = field(default_factory=Patience)
    trust: bool = False
    allow_env: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)


@value_object
class Manifest:
    """Everything about a run that was known before it started; secrets by name, never by value.

    `name` is that of the suite or run file, `run_name` what a person called this run. `shard` is which
    part of a plan this is, `merged` the runs that this one was made from. `recording` is the folder
    that its exchanges with models were recorded in.
    """

    run: str
    name: str
    created_at: str
    bakeoff: str
    python: str
    platform: str
    planned: int
    tasks: int
    plan: str
    candidates: tuple[Candidate, ...]
    conditions: Conditions
    sources: tuple[Source, ...] = ()
    command: tuple[str, ...] = ()
    served: Mapping[str, Json] = field(default_factory=dict)
    selection: Mapping[str, Json] = field(default_factory=dict)
    cap: Cap = NO_CAP
    prices: str | None = None
    sandbox: SandboxSpec = field(default_factory=SandboxSpec)
    endpoints: Mapping[str, EndpointLimits] = field(default_factory=dict)
    adaptive: Adaptive | None = None
    run_name: str | None = None
    patience: Patience = field(default_factory=Patience)
    shard: Shard | None = None
    merged: tuple[str, ...] = ()
    recording: str | None = None
