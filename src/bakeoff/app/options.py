"""Every option of a run in one value: made once, where the run is asked for, and passed on whole."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.value_object import value_object
from bakeoff.core.candidate import AgentSpec, ModelSpec, PromptSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Listener, ignore
from bakeoff.core.ports import Agent, Model, Scorer
from bakeoff.core.run_spec import AdaptiveGoal, RunSpec
from bakeoff.core.stop import Stop
from bakeoff.core.task import ScorerSpec
from bakeoff.core.values import Json
from bakeoff.formats.data.columns import DataOptions
from bakeoff.formats.detect import HUB, RunSource
from bakeoff.formats.text.env import Environment, environment
from bakeoff.models.recording.replay import RecordingFolders
from bakeoff.planning.selection import Selection
from bakeoff.planning.shards import read_shard
from bakeoff.stores.folders import check_run_name

DEFAULT_OUTPUT = Path("runs")

OwnFunction = Callable[..., object]

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")


@value_object
class RunOptions:
    """What is run and how; an option that is left out is as the files of the source have it."""

    source: RunSource | None = field(default=None, kw_only=False)
    """A file or a folder, a suite, tasks, or a spec; may be left out with `resume`."""

    # models and agents
    models: Sequence[str | ModelSpec | Model | OwnFunction] = ()
    base_url: str | None = None
    agents: Sequence[str | AgentSpec | Agent | OwnFunction] = ()
    prompts: Sequence[str | Path | PromptSpec] = ()
    env_file: str | Path | None = None

    # tasks
    categories: Sequence[str] = ()
    tests: Sequence[str] = ()
    tags: Sequence[str] = ()
    where: str | None = None
    failed_in: str | None = None
    changed_in: tuple[str, str] | None = None
    sample: int | None = None
    seed: int = 0
    limit: int | None = None
    rollouts: int | None = None
    adaptive: bool | AdaptiveGoal | None = None
    precision: float | None = None
    looks: int | None = None
    scorers: Sequence[str | ScorerSpec | Scorer | OwnFunction] = ()
    overrides: Mapping[str, str] = field(default_factory=dict)

    # one of several runs that share the plan: `0/3` to `2/3`, to be merged
    shard: str | None = None

    # columns of a data set, by what they are: id, prompt, expected, category, group, tags
    columns: Mapping[str, str] = field(default_factory=dict)
    expected: str | None = None

    # what a suite may do beyond asking questions
    trust: bool = False
    allow_env: Sequence[str] = ()

    # where it runs: a new folder in `output`, exactly this `folder`, or an earlier run;
    # with `only`, the plan is a part of that run, and the rest of it stays planned
    output: str | Path = DEFAULT_OUTPUT
    folder: str | Path | None = None
    name: str | None = None
    resume: str | None = None
    only: bool = False

    # execution
    parallel: int | None = None
    executor: str | None = None  # "local", "processes" or "ray"
    workers: int | None = None
    ray_address: str | None = None
    worker_lease: float = 30.0  # seconds
    sandbox: str | None = None
    give_up_after: float | None = None  # seconds
    keep_going: bool = False

    # budget
    max_cost: float | None = None  # US dollars
    max_tokens: int | None = None
    prices: str | Path | None = None

    # recorded answers
    record: str | Path | None = None
    replay: str | Path | None = None
    cache: str | Path | None = None

    # who started it, and who follows it
    listener: Listener = ignore
    stop: Stop = field(default_factory=Stop)
    command: Sequence[str] = ()

    def check(self) -> None:
        """Raise where options do not go together, or a value makes no sense."""
        if self.only and not self.resume:
            raise UsageError(
                "`only` runs a part of a run that is there: name the run with `resume`"
            )
        if self.source is None and not self.resume:
            raise UsageError(
                "nothing to run: name a suite, a run file, or a run to resume (--resume)"
            )
        if self.name is not None:
            check_run_name(self.name)
        if self.shard is not None:
            read_shard(self.shard)
        for name in ("max_cost", "max_tokens", "workers", "worker_lease"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name} is {value}; give more than 0")
        if self.give_up_after is not None and not self.give_up_after >= 0:
            raise UsageError(f"give_up_after is {self.give_up_after}; give seconds, 0 or more")
        if self.precision is not None and not 0 < self.precision < 1:
            raise UsageError(
                f"precision is {self.precision}; give a difference of scores such as 0.05"
            )

    def in_folder(self, folder: Path, *, resumed: bool) -> "RunOptions":
        """Return the options to run in *folder*: a new run, or the rest of the one that is there."""
        if resumed:
            return replace(self, resume=str(folder), folder=None)
        return replace(self, folder=folder, resume=None)

    @property
    def source_folders(self) -> tuple[Path, ...]:
        """Where user code may be: beside the files that are read."""
        if str(self.source).startswith(HUB):
            return (Path.cwd(),)
        if isinstance(self.source, str | Path):
            return (Path(self.source).resolve().parent,)
        if isinstance(self.source, RunSpec):
            paths = (Path(source.path) for source in self.source.sources)
            return tuple(dict.fromkeys(path.resolve().parent for path in paths))
        return ()

    @property
    def selection(self) -> Selection:
        """Which tasks of the source are run."""
        return Selection(
            categories=self.categories,
            tests=self.tests,
            tags=self.tags,
            where=self.where,
            sample=self.sample,
            seed=self.seed,
            limit=self.limit,
        )

    @property
    def selection_as_data(self) -> dict[str, Json]:
        """The selection as the manifest keeps it."""
        chosen: dict[str, Json] = {
            "categories": list(self.categories),
            "tests": list(self.tests),
            "tags": list(self.tags),
            "where": self.where,
            "failed_in": self.failed_in,
            "changed_in": list(self.changed_in or ()),
            "sample": self.sample,
            "seed": self.seed if self.sample else None,
            "limit": self.limit,
        }
        return {key: value for key, value in chosen.items() if value not in (None, [])}

    @property
    def data(self) -> DataOptions:
        """What is said of the columns of a data set."""
        expected = {} if self.expected is None else {"expected": self.expected}
        texts = [not isinstance(p, PromptSpec) or p.text is not None for p in self.prompts]
        options = DataOptions.for_prompts(texts, {**self.columns, **expected})
        return replace(options, scored=bool(self.scorers))

    @property
    def recording(self) -> RecordingFolders:
        """Where to record, what to replay, and where the cache is."""
        return RecordingFolders(
            record=_path(self.record), replay=_path(self.replay), cache=_path(self.cache)
        )

    def environment(self) -> Environment:
        """Return the variables that models may read: the shell's, then those of the .env file."""
        return environment(os.environ, named=_path(self.env_file), here=Path())


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def options_as_keywords(
    shape: Callable[P, RunOptions],
) -> Callable[[Callable[[RunOptions], R]], Callable[P, R]]:
    """Let a function of `RunOptions` be called with the options as keywords, as `bakeoff.run` is."""

    def decorate(function: Callable[[RunOptions], R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            _refuse_unknown(options)
            return function(shape(*args, **options))

        call.__signature__ = signature(shape)  # type: ignore[attr-defined]  # what `help` shows
        return call

    return decorate


def options_as_more_keywords(
    shape: Callable[P, RunOptions],
) -> Callable[[Callable[[A, RunOptions], R]], Callable[Concatenate[A, P], R]]:
    """Let a function of a run and `RunOptions` be called with the options as keywords."""

    def decorate(function: Callable[[A, RunOptions], R]) -> Callable[Concatenate[A, P], R]:
        @wraps(function)
        def call(run: A, /, *args: P.args, **options: P.kwargs) -> R:
            _refuse_unknown(options)
            return function(run, shape(*args, **options))

        return call

    return decorate


def _refuse_unknown(options: Mapping[str, object]) -> None:
    known = [option.name for option in fields(RunOptions)]
    for name in options:
        if name not in known:
            raise UsageError(f"no option is called {name!r}; {did_you_mean(name, known)}")
