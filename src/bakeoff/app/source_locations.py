"""Usage errors about a model, an agent or a scorer, with the file and line where it is written."""

from collections.abc import Iterator
from contextlib import contextmanager

from bakeoff.core.candidate import AgentSpec, ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.formats.text.locate import shown
from bakeoff.formats.text.problems import at_location, in_task


@contextmanager
def about(spec: ModelSpec | AgentSpec) -> Iterator[None]:
    """Say in which file the mistake is, where *spec* came from one."""
    try:
        yield
    except UsageError as error:
        if spec.origin is None or error.location == spec.origin.where:
            raise
        raise at_location(spec.origin.where, error) from error


@contextmanager
def about_scorer(spec: ScorerSpec, task: Task) -> Iterator[None]:
    """Say in which task the mistake is, and where its scorer came from."""
    try:
        with about_task(task):
            yield
    except UsageError as error:
        if spec.origin is None:
            raise
        raise at_location(shown(spec.origin), error) from error


@contextmanager
def about_task(task: Task) -> Iterator[None]:
    """Say which task a mistake belongs to."""
    try:
        yield
    except UsageError as error:
        if error.task == task.id:
            raise
        raise in_task(task.id, error) from error
