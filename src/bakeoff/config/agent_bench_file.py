"""The TOML of an agent benchmark: the base file with its roles, and one flat file for each agent."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bakeoff.config.entries import Endpoints
from bakeoff.config.run_file import BudgetTable, Count, LimitsTable, Positive, SandboxTable
from bakeoff.core.values import Json

Text = Annotated[str, Meta(min_length=1)]
NotNegative = Annotated[float, Meta(ge=0)]

DEFAULT_AGENTS = "agent_configs/"
DEFAULT_CHECKPOINTS = "checkpoints"
SAMPLE_AGENT = "sample_agent_config.toml"
BARE_MODEL = ("base-agent", "pure-model", "direct")


class SeatTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A model in one seat; what is left out is inherited from `[llm]`, or has its default."""

    model: Text | None = None
    api_key: Text | None = None
    api_base: Text | None = None
    temperature: NotNegative | None = None
    max_tokens: Count | None = None
    max_retries: Annotated[int, Meta(ge=0)] | None = None
    retry_delay: NotNegative | None = None
    rpm: Positive | None = None
    adaptive_rate_limit: bool | None = None
    run_code: bool | None = None
    system_prompt: str | None = None
    checkpoint_path: str | None = None


class BenchmarkTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which cases are run, how, and where everything goes."""

    benchmark_dir: Text | None = None
    benchmark_path: Text | None = None
    dataset_dir: Text | None = None
    checkpoint_path: Text | None = None
    results: Text | None = None
    result_path: Text | None = None
    log_path: Text = "logs"
    max_workers: Count = 8
    test_cases: list[Text] | None = None
    max_turns: Count = 20
    user_type: Literal["user", "shard_user"] = "user"
    interaction_type: Literal["default"] = "default"
    rollouts: Count = 1
    agent_config: Text = DEFAULT_AGENTS


class BaseFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The base configuration of an agent benchmark.

    `[user]` and `[gatekeeper]` are other names of `[instructor]` and `[supervisor]`. A
    `system_prompt` in `[llm]` is the instructor's; the supervisor has its own or none.
    """

    benchmark: BenchmarkTable
    llm: SeatTable = msgspec.field(default_factory=SeatTable)
    instructor: SeatTable | None = None
    user: SeatTable | None = None
    supervisor: SeatTable | None = None
    gatekeeper: SeatTable | None = None
    rpm_per_model: dict[str, Positive] = {}
    endpoints: Endpoints = {}
    limits: LimitsTable = msgspec.field(default_factory=LimitsTable)
    budget: BudgetTable = msgspec.field(default_factory=BudgetTable)
    prices: Text | None = None
    sandbox: str | SandboxTable = msgspec.field(default_factory=SandboxTable)

    @property
    def checkpoints(self) -> str:
        """Where conversations are saved: as `[benchmark]` says, else as another table does."""
        seats = (self.llm, self.instructor, self.user, self.supervisor, self.gatekeeper)
        named = (seat.checkpoint_path for seat in seats if seat is not None)
        return self.benchmark.checkpoint_path or next(filter(None, named), DEFAULT_CHECKPOINTS)


class AgentFile(SeatTable, kw_only=True):
    """One agent: a model, and the framework that it works in."""

    id: Text | None = None
    framework: Text = BARE_MODEL[0]
    settings: dict[str, Json] = {}


class Baseline(msgspec.Struct, kw_only=True):
    """`numeric_baseline.json`; other keys are for people."""

    score: float
    success: bool = True
    is_higher_better: bool = True
    theoretical_best: float | None = None


def is_agent_bench(data: Mapping[str, Json]) -> bool:
    """Whether the tables of a TOML file are those of an agent benchmark."""
    return isinstance(data.get("benchmark"), Mapping)


def is_agent_file(data: Mapping[str, Json]) -> bool:
    """Whether a TOML file describes one agent of an agent benchmark."""
    return "model" in data and set(data) <= set(AgentFile.__struct_fields__)
