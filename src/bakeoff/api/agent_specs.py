"""What a plan must know of an agent: its version, and whether it asks a model at all."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from bakeoff import registry
from bakeoff.api.origins import about
from bakeoff.core.candidate import AgentSpec

_PLAIN = frozenset({"direct", "shell"})  # part of this package: its version is that of the run


@runtime_checkable
class Versioned(Protocol):
    """An agent that knows which version it is."""

    def version(self) -> str | None:
        """Return the version, or None where it cannot be told."""


def known(
    spec: AgentSpec, own: Mapping[str, object] | None = None, folders: Iterable[Path] = ()
) -> AgentSpec:
    """Return *spec* with what its agent says of itself; nobody's own Python is imported for it."""
    if spec.name in _PLAIN or spec.name in (own or {}) or registry.is_reference(spec.name):
        return spec
    with about(spec):
        part = registry.find("agents", spec.name, folders=folders)
        agent = registry.build(part, spec.settings, what=f"agent {spec.name!r}")
    version = spec.version
    if version is None and isinstance(agent, Versioned):
        version = agent.version()
    return replace(spec, version=version, needs_model=getattr(agent, "needs_model", True))
