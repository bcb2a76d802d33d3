"""`task.toml`, the settings of a coding task: its keys, all of which may be left out."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bakeoff.config.entries import ScorerEntry
from bakeoff.core.values import Json

Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Text = Annotated[str, Meta(min_length=1)]

Runner = Literal["pytest", "unittest", "python", "script"]


class RepoTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Where the files come from: one of `path`, `url` and `bundle`, the latter two at a `commit`."""

    path: Text | None = None
    url: Text | None = None
    bundle: Text | None = None
    commit: Text | None = None
    subdir: Text | None = None
    sparse: list[Text] = []


class BoxTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The box the work is done in; 0 takes a limit away."""

    image: Text | None = None
    dockerfile: Text | None = None
    setup: list[Text] = []
    setup_s: Positive = 600.0
    root: Annotated[str, Meta(pattern="^/")] = "/app"
    workdir: str = ""
    environment: dict[str, str] = {}
    network: bool | list[Text] = False
    memory_mb: Annotated[int, Meta(ge=0)] = 4096
    processes: Annotated[int, Meta(ge=0)] = 512
    disk_mb: Annotated[int, Meta(ge=0)] = 4096
    cpus: Annotated[float, Meta(ge=0)] = 0.0
    trust_system_changes: bool = False


class TestsTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How the hidden tests are run; left out, the files in `tests/` tell."""

    runner: Runner | None = None
    command: Text | None = None
    paths: list[Text] = []
    named: list[Text] = []
    time_s: Positive = 600.0
    partial: bool = False
    readable: bool = False
    environment: dict[str, str] = {}
    weight: Annotated[float, Meta(ge=0)] = 1.0


class RubricTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One criterion: decided by its `tests`, scripts in `tests/`, or else by the judge."""

    id: Text
    criterion: Text
    weight: Positive = 1.0
    evaluation_criteria: Json = None
    tests: list[Text] = []


class TaskFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A coding task, beyond its instruction and its files."""

    id: Text | None = None
    name: str | None = None
    category: str | None = None
    tags: list[str] = []
    metadata: dict[str, Json] = {}
    time_s: Positive = 1800.0
    pass_threshold: Share = 1.0
    check: Text | None = None
    protected: list[Text] = []
    repo: RepoTable | None = None
    box: BoxTable = msgspec.field(default_factory=BoxTable)
    tests: TestsTable = msgspec.field(default_factory=TestsTable)
    rubrics: list[RubricTable] = []
    rubrics_weight: Annotated[float, Meta(ge=0)] = 1.0
    scorers: list[ScorerEntry] = []
