"""The TOML of rollouts: prepared tasks, each paired with a model, and how often."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from bakeoff._lib.suggest import near
from bakeoff.config.entries import Endpoints
from bakeoff.config.run_file import (
    AgentTable,
    BudgetTable,
    Count,
    LimitsTable,
    ModelTable,
    SandboxTable,
)
from bakeoff.core.values import Json

Text = Annotated[str, Meta(min_length=1)]


class PreparedTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A prepared task for one model; `prepared_dir` may be a glob, and then it is many.

    `environment_variables` are shown to the agent in its box and are part of the candidate;
    `TIMEOUT_SEC` among them is also how long the agent may take.
    """

    prepared_dir: Text
    model: Text | ModelTable
    rollouts: Count | None = None
    apply_overrides: bool = True
    overrides: Text | None = None
    environment_variables: dict[str, str | int | float] = {}
    agent: Text | AgentTable | None = None


class RolloutsFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Rollouts: which prepared tasks, for whom, how often, and how many at once.

    `models` says what a name in `model` stands for, where that needs more than the name.
    """

    tasks: list[PreparedTable]
    name: Text | None = None
    description: str | None = None
    parallel: Count = 1
    rollouts: Count = 1
    models: dict[str, str | ModelTable] = {}
    agent: Text | AgentTable | None = None
    limits: LimitsTable = msgspec.field(default_factory=LimitsTable)
    budget: BudgetTable = msgspec.field(default_factory=BudgetTable)
    prices: str | None = None
    roles: dict[str, str | ModelTable] = {}
    endpoints: Endpoints = {}
    sandbox: str | SandboxTable = msgspec.field(default_factory=SandboxTable)


def is_rollouts_file(data: Mapping[str, Json]) -> bool:
    """Whether the tables of a TOML file are those of rollouts, if misspelt, and not of another run."""
    tasks = data.get("tasks")
    return isinstance(tasks, list) and any(
        isinstance(task, Mapping) and near("prepared_dir", task, least=0.85) for task in tasks
    )
