"""What a run promised."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bakeoff.core.budget import NO_CAP, Cap
from bakeoff.core.candidate import Candidate, Conditions
from bakeoff.core.endpoint import EndpointLimits, Patience
from bakeoff.core.run_spec import Adaptive, Source
from bakeoff.core.values import Json
from bakeoff.core.workspace import SandboxSpec


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything about a run that was known before it started; secrets by name, never by value.

    `name` is that of the suite or run file, `run_name` what a person called this run.
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
