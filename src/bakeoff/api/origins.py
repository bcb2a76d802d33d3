"""Mistakes in a model or an agent, told with the place where it was written."""

from collections.abc import Iterator
from contextlib import contextmanager

from bakeoff.core.candidate import AgentSpec, ModelSpec
from bakeoff.core.errors import UsageError


@contextmanager
def about(spec: ModelSpec | AgentSpec) -> Iterator[None]:
    """Say in which file the mistake is, where *spec* came from one."""
    try:
        yield
    except UsageError as error:
        if spec.origin is None or str(error).startswith(spec.origin.where):
            raise
        raise UsageError(f"{spec.origin.where}: {error}") from error
