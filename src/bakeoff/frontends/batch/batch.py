"""One task, many models: what was asked for becomes one run of ours, in the folder of a batch."""

import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import msgspec

from bakeoff import app
from bakeoff._lib.clock import now, timestamp
from bakeoff._lib.sanitize import one_line
from bakeoff._lib.threads import run_sync
from bakeoff.app.sources import PreparedRun
from bakeoff.app.workspaces import named
from bakeoff.core.candidate import AgentSpec, Conditions, Limits, ModelSpec
from bakeoff.core.errors import ProviderError, UsageError
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.values import Json
from bakeoff.formats.markdown_task import judged, read_markdown
from bakeoff.formats.models_file import BatchSettings, ModelsConfig, read_models_file
from bakeoff.formats.text.env import environment
from bakeoff.frontends.batch.folders import (
    Batch,
    BatchState,
    Earlier,
    another_agent,
    earlier,
    find_batch,
    new_batch,
    refuse_what_differs,
    with_session,
)
from bakeoff.frontends.batch.models import (
    ALL,
    ModelCatalog,
    ModelChoice,
    ModelOffer,
    choose,
    helper,
    market,
)
from bakeoff.models.client.probe import look, open_session
from bakeoff.models.discovery import Discovery, ollama_models
from bakeoff.models.ollama_address import DEFAULT_URL, address


class _Version(msgspec.Struct):
    version: str


async def machine_info(
    ollama: str | None = None, models: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """Return what there is to know, what is unknown as None; *models* is what servers say of them."""
    return {
        "cpu": _cpu(),
        "cores": _cores(),
        "memory_bytes": _memory_bytes(),
        "os": _system(),
        "python": platform.python_version(),
        "bakeoff": version("bakeoff"),
        "ollama": await ollama_version(ollama) if ollama else None,
        "models": dict(models or {}),
    }


async def ollama_version(host: str) -> str | None:
    """Return the version of the Ollama at *host*; None where nothing answers there."""
    try:
        async with open_session() as session:
            told = await look(session, f"{address(host)}/api/version", _Version)
    except (ProviderError, UsageError):
        return None  # whether there is one at all was asked before, and told
    return one_line(told.version, width=40)


def _cores() -> int | None:
    """Return how many cores this process may use, which may be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _cpu() -> str | None:
    """Return the name of the processor."""
    for line in _lines(Path("/proc/cpuinfo")):
        key, _, value = line.partition(":")
        if key.strip() in {"model name", "Hardware", "cpu model"}:
            return one_line(value)
    return platform.processor() or platform.machine() or None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None  # not every system tells


def _system() -> str:
    """Return the system with its version, as people call it."""
    for line in _lines(Path("/etc/os-release")):
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            name = one_line(value.strip("\"'"))
            return f"{name}, {platform.system()} {platform.release()}"
    return f"{platform.system()} {platform.release()}"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []  # not Linux


DEFAULT_AGENT = "shell"
_ATTEMPTS = 2
_ASK_THE_JUDGE = {"judge", "rubrics"}
_NO_MODELS = """\
no models detected. Ensure Ollama is installed and running: `ollama list` ({ollama})
  Check {config} for commercial models: at least one with `enabled: true`{disabled}
  Verify API keys are set as environment variables{keys}; or name a model: bakeoff run {task} --model openai/NAME"""


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """What was said on the command line; None is what the batch, the config or the default says."""

    task: Path
    output: Path
    models: str | None = None
    config: Path | None = None
    parallel: bool = False
    max_parallel: int | None = None
    timeout_s: float | None = None
    resume: str | None = None
    agent: str | None = None
    rollouts: int | None = None
    judge: str | None = None
    instructor: str | None = None
    interventions: int | None = None
    sandbox: str | None = None
    env_file: Path | None = None


@dataclass(frozen=True, kw_only=True)
class BatchRun:
    """A batch that is ready to be run; `notices` are to be read before.

    `state` is what it is to remember once it runs: only then nobody else is at it.
    """

    batch: Batch
    state: BatchState
    brief: RunSpec
    prepared: PreparedRun
    resumes: bool
    settings: BatchSettings
    notices: tuple[str, ...]
    env_file: Path | None

    def options(self) -> app.Options:
        """Return how and where it is run."""
        place = self.batch.run
        where: app.Options = {"resume": str(place)} if self.resumes else {"folder": place}
        return {**where, "env_file": self.env_file}

    def give_back(self) -> None:
        """Remove the folder of a batch of which nothing was run."""
        if not self.batch.begun:
            shutil.rmtree(self.batch.folder, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class _Environment:
    """What there is: the file, the variables, the Ollama, the models."""

    config: ModelsConfig | None
    environ: Mapping[str, str]
    ollama: Discovery
    market: ModelCatalog

    @property
    def host(self) -> str:
        return self.environ.get("OLLAMA_HOST") or DEFAULT_URL

    @property
    def settings(self) -> BatchSettings:
        return self.config.batch if self.config else BatchSettings()


def planned(wanted: BatchOptions) -> tuple[PreparedRun, tuple[str, ...]]:
    """Return the run that is asked for and what to read before; nothing is asked, no folder made."""
    brief = _task(wanted.task)
    around = _look_around(wanted)
    if wanted.resume is not None and (batch := find_batch(wanted.resume, wanted.output)).begun:
        again = _again(wanted, brief, around, batch)
        return again.prepared, again.notices
    brief, choice = _asked_for(wanted, brief, around)
    return app.plan(brief), (*choice.notices, *_idle_judge(brief))


def ready(wanted: BatchOptions) -> BatchRun:
    """Find the models and the batch, and plan the run; nothing is asked yet."""
    brief = _task(wanted.task)
    around = _look_around(wanted)
    if wanted.resume is None:
        return _new(wanted, brief, around)
    batch = find_batch(wanted.resume, wanted.output)
    if not batch.begun:  # killed before its first moment: there is nothing to go on with
        shutil.rmtree(batch.run, ignore_errors=True)
        return _new(wanted, brief, around, batch=batch)
    return _again(wanted, brief, around, batch)


def _task(path: Path) -> RunSpec:
    brief = read_markdown(path) if path.suffix.lower() == ".md" else app.read(path, {})
    if len(brief.tasks) != 1:
        raise UsageError(f"{path}: a batch runs one task, and here are {len(brief.tasks)}")
    return brief


def _look_around(wanted: BatchOptions) -> _Environment:
    environ = environment(os.environ, named=wanted.env_file, here=Path()).values
    config = read_models_file(wanted.config) if wanted.config else None
    ollama = run_sync(ollama_models(environ.get("OLLAMA_HOST") or DEFAULT_URL))
    return _Environment(
        config=config,
        environ=environ,
        ollama=ollama,
        market=market(ollama.found, config, environ),
    )


def _asked_for(
    wanted: BatchOptions, brief: RunSpec, around: _Environment
) -> tuple[RunSpec, ModelChoice]:
    """Return *brief* with all that a new batch adds to its task, and the models that were chosen."""
    if not around.market.offers:
        raise UsageError(_troubleshooting(around, wanted.task))
    roles = _roles(wanted, around.market)
    models = ALL if wanted.models is None else wanted.models
    choice = choose(_without(around.market, roles, wanted), models)
    brief = replace(
        brief,
        agents=(AgentSpec(name=wanted.agent or DEFAULT_AGENT),),
        rollouts=wanted.rollouts or 1,
        conditions=_conditions(wanted, roles, around),
    )
    return _filled(brief, wanted, choice.offers, around), choice


def _new(
    wanted: BatchOptions, brief: RunSpec, around: _Environment, batch: Batch | None = None
) -> BatchRun:
    brief, choice = _asked_for(wanted, brief, around)
    prepared = app.plan(brief)
    batch = batch or new_batch(wanted.output, now())
    state = BatchState(task=str(wanted.task), parallel=brief.parallel or 1)
    state = _begun(state, choice.offers, around)
    batch.remember(state)
    return BatchRun(
        batch=batch,
        state=state,
        brief=brief,
        prepared=prepared,
        resumes=False,
        settings=around.settings,
        notices=(*choice.notices, *_idle_judge(brief)),
        env_file=wanted.env_file,
    )


def _again(wanted: BatchOptions, brief: RunSpec, around: _Environment, batch: Batch) -> BatchRun:
    """Go on with *batch*: its models, its limits and its roles, unless something was said anew."""
    before, state = earlier(batch), batch.state()
    if wanted.agent not in {None, before.agent.name}:
        raise another_agent(before, str(wanted.agent), batch)
    more = wanted.models
    choice = ModelChoice(offers=()) if more is None else choose(around.market, more)
    offers = before.offers(around.market, choice.offers)
    brief = replace(
        brief,
        agents=(before.agent,),
        rollouts=max(wanted.rollouts or 0, before.rollouts),
        conditions=_conditions_again(wanted, before, around.market),
        sandbox=before.sandbox,
    )
    brief = _filled(brief, wanted, offers, around)
    prepared = app.plan(brief)
    refuse_what_differs(before, prepared.plan, state, offers, batch)
    notices = (*choice.notices, *_other_box(before, brief), *_other_machine(state, around))
    return BatchRun(
        batch=batch,
        state=_begun(replace(state, parallel=brief.parallel or 1), offers, around),
        brief=brief,
        prepared=prepared,
        resumes=True,
        settings=around.settings,
        notices=notices,
        env_file=wanted.env_file,
    )


def _conditions(
    wanted: BatchOptions, roles: dict[str, ModelSpec], around: _Environment
) -> Conditions:
    if wanted.interventions and not wanted.instructor:
        raise UsageError("--interventions needs --instructor: name the model that is to step in")
    limits = Limits(
        time_s=wanted.timeout_s or around.settings.default_timeout,
        interventions=wanted.interventions or 0,
    )
    attempts = around.settings.attempts if around.config else _ATTEMPTS
    return Conditions(limits=limits, roles=roles, attempts=attempts)


def _conditions_again(wanted: BatchOptions, before: Earlier, there: ModelCatalog) -> Conditions:
    limits = before.conditions.limits
    if wanted.timeout_s is not None:
        limits = replace(limits, time_s=wanted.timeout_s)
    if wanted.interventions is not None:
        limits = replace(limits, interventions=wanted.interventions)
    roles = {**before.conditions.roles, **_roles(wanted, there)}
    return replace(before.conditions, limits=limits, roles=roles)


def _filled(
    brief: RunSpec, wanted: BatchOptions, offers: Sequence[ModelOffer], around: _Environment
) -> RunSpec:
    """Return *brief* with its models, and how many of them run and are asked at once."""
    most = wanted.max_parallel or around.settings.max_parallel
    parallel = min(len(offers), most) if wanted.parallel or wanted.max_parallel else 1
    sandbox = named(brief.sandbox, wanted.sandbox)
    models = tuple(offer.spec for offer in offers)
    endpoints = around.config.endpoints if around.config else {}
    brief = replace(brief, models=models, parallel=parallel, sandbox=sandbox, endpoints=endpoints)
    return judged(brief)


def _roles(wanted: BatchOptions, there: ModelCatalog) -> dict[str, ModelSpec]:
    """Return who helps: a model of the file or of the Ollama by its name, else any that can be named."""
    named = {"judge": wanted.judge, "instructor": wanted.instructor}
    return {role: helper(role, name, there) for role, name in named.items() if name}


def _without(
    there: ModelCatalog, roles: Mapping[str, ModelSpec], wanted: BatchOptions
) -> ModelCatalog:
    """Return what there is for `all`: who judges or helps does not compete as well, unless named."""
    if wanted.models and wanted.models.casefold() != ALL:
        return there
    busy = {spec.full_name for spec in roles.values()}
    offers = tuple(offer for offer in there.offers if offer.spec.full_name not in busy)
    if not offers:
        raise UsageError("no model is left to compare: the only one is the judge or the instructor")
    return replace(there, offers=offers)


def _idle_judge(brief: RunSpec) -> Iterator[str]:
    """Yield why the judge that was asked for has nothing to do, where that is so."""
    (task,) = brief.tasks
    if "judge" not in brief.conditions.roles or {s.name for s in task.scorers} & _ASK_THE_JUDGE:
        return
    if task.scorers:
        yield "the judge is not asked: the task has a check of its own, which decides"
    else:
        yield "the judge has nothing to go by: the task has no `## Success Criteria`"


def _begun(state: BatchState, offers: Sequence[ModelOffer], around: _Environment) -> BatchState:
    """Return *state* with what the batch is run on, and that a session of it starts now."""
    digests = {o.spec.full_name: o.digest for o in offers if o.digest}
    machine = run_sync(machine_info(around.host, _served(around.ollama, offers)))
    state = replace(state, machine=machine, digests={**state.digests, **digests})
    return with_session(state, timestamp())


def _served(ollama: Discovery, offers: Sequence[ModelOffer]) -> dict[str, Json]:
    names = {offer.spec.full_name for offer in offers}
    return {
        model.name: {
            "digest": model.digest,
            "size_bytes": model.size_bytes,
            "quantization": model.quantization,
            "context_length": model.context_length,
        }
        for model in ollama.found
        if model.name in names
    }


def _other_box(before: Earlier, brief: RunSpec) -> list[str]:
    """Return a warning where the batch began in another sandbox than it goes on in."""
    then, now_in = before.sandbox.name, brief.sandbox.name
    if now_in in {None, then}:
        return []
    return [f"the batch began in sandbox {then!r} and goes on in {now_in!r}: times do not compare"]


def _other_machine(state: BatchState, around: _Environment) -> list[str]:
    """Return a warning where the batch began on something else than it goes on with."""
    today = run_sync(machine_info(around.host))
    told = [
        name
        for name in ("cpu", "cores", "memory_bytes", "os", "ollama")
        if state.machine.get(name) != today.get(name)
    ]
    if not told:
        return []
    return [f"the batch began on another machine ({', '.join(told)} differ): times do not compare"]


def _troubleshooting(around: _Environment, task: Path) -> str:
    config, found = around.config, around.market
    return _NO_MODELS.format(
        task=task,
        ollama="; ".join(str(trouble) for trouble in around.ollama.troubles) or "it has none",
        config=config.shown if config else "models_config.yaml (--config)",
        disabled=f" (switched off: {', '.join(found.disabled)})" if found.disabled else "",
        keys=f" ({'; '.join(f'{n}: {why}' for n, why in found.missing.items())})"
        if found.missing
        else "",
    )
