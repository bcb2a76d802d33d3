"""Bakeoff's own TOML: its tables, and what they may hold."""

from typing import Annotated

import msgspec
from msgspec import Meta

from bakeoff.config.entries import Endpoints, MessageTable, ScorerEntry
from bakeoff.core.values import Json

Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]


class ModelTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A model: `model = "provider/name"`, and where it is reached.

    `base_url`, `api_key` and `headers` may refer to the environment as `${NAME}`.
    """

    model: str
    name: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    headers: dict[str, str] = {}
    parameters: dict[str, Json] = {}
    settings: dict[str, Json] = {}


class AgentTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An agent: `agent = "direct"`, or `module:attr` of your own."""

    agent: str
    name: str | None = None
    version: str | None = None
    settings: dict[str, Json] = {}


class TaskTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A task written into the run file itself."""

    id: str
    prompt: str | None = None
    messages: list[MessageTable] | None = None
    literal: bool = False
    name: str | None = None
    category: str | None = None
    parameters: dict[str, Json] = {}
    expected: Json = None
    scorers: list[ScorerEntry] | None = None
    pass_threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    time_s: Positive | None = None
    metadata: dict[str, Json] = {}


class LimitsTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What one attempt at a trial may spend, and how many attempts a transient fault may cost."""

    time_s: Positive | None = None
    requests: Count | None = None
    output_tokens: Count | None = None
    tokens: Count | None = None
    cost_usd: Positive | None = None
    scoring_s: Positive = 1800.0
    attempts: Count = 2
    interventions: Annotated[int, Meta(ge=0)] = 0


class BudgetTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What the whole run may spend, with roles, retries and failed attempts; then it stops."""

    max_cost_usd: Positive | None = None
    max_tokens: Count | None = None


class AdaptiveTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A run that ends when its candidates are told apart, or their difference is known so well."""

    precision: Annotated[float, Meta(gt=0, lt=1)] | None = None
    seed: int = 0


class SandboxTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Where the commands of workspace tasks run; without a name, the best that is there."""

    name: str | None = None
    settings: dict[str, Json] = {}


class RunFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A run: what is asked, of whom, how often, and how it is checked."""

    name: str | None = None
    description: str | None = None
    suites: list[str] = []
    tasks: list[TaskTable] = []
    models: list[str | ModelTable] = []
    agents: list[str | AgentTable] = []
    rollouts: Count = 1
    parallel: Count | None = None
    pause_s: Annotated[float, Meta(ge=0)] | None = None
    warm_up: bool = False
    parameters: dict[str, Json] = {}
    scorers: list[ScorerEntry] = []
    pass_threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    limits: LimitsTable = msgspec.field(default_factory=LimitsTable)
    budget: BudgetTable = msgspec.field(default_factory=BudgetTable)
    prices: str | None = None
    roles: dict[str, str | ModelTable] = {}
    sandbox: str | SandboxTable = msgspec.field(default_factory=SandboxTable)
    endpoints: Endpoints = {}
    adaptive: AdaptiveTable | None = None
    give_up_after_s: Annotated[float, Meta(ge=0)] = 900.0
    keep_going: bool = False
    trust: bool = False
    allow_env: list[str] = []
