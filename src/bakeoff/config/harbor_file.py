"""`task.toml` in Harbor's format: the keys that matter here, with Harbor's names and defaults."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bakeoff.core.values import Json

Positive = Annotated[float, Meta(gt=0)]
Network = Literal["public", "no-network", "allowlist"]


class PackageTable(msgspec.Struct, kw_only=True):
    """What the task is called."""

    name: str | None = None
    description: str = ""
    keywords: list[str] = []


class PhaseTable(msgspec.Struct, kw_only=True):
    """The agent's time, and what of the network it may see."""

    timeout_sec: Positive | None = None
    network_mode: Network | None = None
    allowed_hosts: list[str] = []


class VerifierTable(msgspec.Struct, kw_only=True):
    """How `tests/test.sh` is run; `trust_system_changes` is Bakeoff's own key."""

    timeout_sec: Positive = 600.0
    env: dict[str, str] = {}
    environment_mode: str | None = None
    environment: dict[str, Json] = {}
    trust_system_changes: bool = False


class EnvironmentTable(msgspec.Struct, kw_only=True):
    """The container; `memory` and `storage` are the older spellings."""

    build_timeout_sec: Positive = 600.0
    docker_image: str | None = None
    workdir: str | None = None
    cpus: Positive = 1.0
    memory_mb: Annotated[int, Meta(ge=1)] = 2048
    storage_mb: Annotated[int, Meta(ge=1)] = 10240
    memory: str | None = None
    storage: str | None = None
    gpus: int = 0
    allow_internet: bool = True
    network_mode: Network | None = None
    allowed_hosts: list[str] = []
    env: dict[str, str] = {}


class HarborFile(msgspec.Struct, kw_only=True):
    """A whole file; other keys are for others."""

    task: PackageTable = msgspec.field(default_factory=PackageTable)
    metadata: dict[str, Json] = {}
    agent: PhaseTable = msgspec.field(default_factory=PhaseTable)
    verifier: VerifierTable = msgspec.field(default_factory=VerifierTable)
    environment: EnvironmentTable = msgspec.field(default_factory=EnvironmentTable)
    steps: list[Json] = []
