"""One task, many models: the command line and the models file become one run in a batch folder."""

import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bakeoff._lib.clock import now, timestamp
from bakeoff._lib.sanitize import one_line
from bakeoff._lib.threads import run_sync
from bakeoff._lib.version import __version__
from bakeoff.app.options import RunOptions
from bakeoff.app.prepare import PreparedRun
from bakeoff.app.run import prepare_run
from bakeoff.app.trial_parts import asked_roles, unstarted_scorer
from bakeoff.app.workspaces import named
from bakeoff.core.candidate import AgentSpec, Conditions, Limits, ModelSpec
from bakeoff.core.errors import ProviderError, UsageError
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.values import Json
from bakeoff.formats.detect import Format, format_of, read_path
from bakeoff.formats.markdown_task import judged, read_markdown
from bakeoff.formats.models_file import BatchSettings, ModelsConfig, read_models_file
from bakeoff.formats.text.env import environment as read_environment
from bakeoff.frontends.batch.files import (
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
    model_catalog,
)
from bakeoff.models.client.probe import probe, probe_session
from bakeoff.models.client.settings import DEFAULT_URL, address
from bakeoff.models.discovery import Discovery, ollama_models


class _Version(msgspec.Struct):
    version: str


async def machine_info(
    ollama: str | None = None, models: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """Describe this machine, unknown values as None; *models* is what servers report of them."""
    return {
        "cpu": _cpu(),
        "cores": _cores(),
        "memory_bytes": _memory_bytes(),
        "os": _system(),
        "python": platform.python_version(),
        "bakeoff": __version__,
        "ollama": await ollama_version(ollama) if ollama else None,
        "models": dict(models or {}),
    }


async def ollama_version(host: str) -> str | None:
    """Return the version of the Ollama at *host*; None where nothing answers there."""
    try:
        async with probe_session() as session:
            reply = await probe(session, f"{address(host)}/api/version", _Version)
    except (ProviderError, UsageError):
        return None  # discovery has reported already whether there is one
    return one_line(reply.version, width=40)


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
_NO_MODELS = """\
no models detected. Ensure Ollama is installed and running: `ollama list` ({ollama})
  Check {config} for commercial models: at least one with `enabled: true`{disabled}
  Verify API keys are set as environment variables{keys}; or name a model: bakeoff run {task} --model openai/NAME"""


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """The command line; None leaves a value to the batch, the config or the default."""

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
    executor: str | None = None
    workers: int | None = None
    ray_address: str | None = None
    env_file: Path | None = None
    give_up_after_s: float | None = None
    keep_going: bool = False


@dataclass(frozen=True, kw_only=True)
class BatchRun:
    """A batch that is ready to be run; `notices` are shown before it starts.

    `state` is written when the run starts: only then does it hold the lock of the folder.
    """

    batch: Batch
    state: BatchState
    spec: RunSpec
    prepared: PreparedRun
    resumed: bool
    settings: BatchSettings
    notices: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Environment:
    """The models file, the variables, the Ollama server, and the models they offer."""

    config: ModelsConfig | None
    environ: Mapping[str, str]
    ollama: Discovery
    catalog: ModelCatalog

    @property
    def host(self) -> str:
        return self.environ.get("OLLAMA_HOST") or DEFAULT_URL

    @property
    def settings(self) -> BatchSettings:
        return self.config.batch if self.config else BatchSettings()


def plan_batch(options: BatchOptions) -> tuple[PreparedRun, tuple[str, ...]]:
    """Return the planned run and its notices; no model is asked and no folder made."""
    spec = _task(options.task)
    environment = _read_environment(options)
    if options.resume is not None and (batch := find_batch(options.resume, options.output)).started:
        resumed = _resume(options, spec, environment, batch)
        return resumed.prepared, resumed.notices
    spec, choice = _new_spec(options, spec, environment)
    return prepare_run(RunOptions(spec)), (*choice.notices, *_idle_judge(spec))


def prepare_batch(options: BatchOptions) -> BatchRun:
    """Find the models and the batch, and plan the run; no model is asked yet."""
    spec = _task(options.task)
    environment = _read_environment(options)
    if options.resume is None:
        return _start(options, spec, environment)
    batch = find_batch(options.resume, options.output)
    if not batch.started:  # killed before there was a ledger: there is nothing to resume
        shutil.rmtree(batch.run, ignore_errors=True)
        return _start(options, spec, environment, batch=batch)
    return _resume(options, spec, environment, batch)


def _task(path: Path) -> RunSpec:
    spec = read_markdown(path) if format_of(path) is Format.MARKDOWN_TASK else read_path(path)
    if len(spec.tasks) != 1:
        raise UsageError(f"{path}: a batch runs one task, and here are {len(spec.tasks)}")
    return spec


def _read_environment(options: BatchOptions) -> _Environment:
    environ = read_environment(os.environ, named=options.env_file, here=Path()).values
    config = read_models_file(options.config) if options.config else None
    ollama = run_sync(ollama_models(environ.get("OLLAMA_HOST") or DEFAULT_URL))
    return _Environment(
        config=config,
        environ=environ,
        ollama=ollama,
        catalog=model_catalog(ollama.found, config, environ),
    )


def _new_spec(
    options: BatchOptions, spec: RunSpec, environment: _Environment
) -> tuple[RunSpec, ModelChoice]:
    """Return *spec* with what a new batch adds to its task, and the chosen models."""
    if not environment.catalog.offers:
        raise UsageError(_troubleshooting(environment, options.task))
    roles = _roles(options, environment.catalog)
    models = ALL if options.models is None else options.models
    choice = choose(_competing(environment.catalog, roles, options), models)
    spec = replace(
        spec,
        agents=(AgentSpec(name=options.agent or DEFAULT_AGENT),),
        rollouts=options.rollouts or 1,
        conditions=_conditions(options, roles, environment),
    )
    return _with_models(spec, options, choice.offers, environment), choice


def _start(
    options: BatchOptions, spec: RunSpec, environment: _Environment, batch: Batch | None = None
) -> BatchRun:
    spec, choice = _new_spec(options, spec, environment)
    prepared = prepare_run(RunOptions(spec))
    batch = batch or new_batch(options.output, now())
    state = BatchState(task=str(options.task), parallel=spec.parallel or 1)
    state = _with_session(state, choice.offers, environment)
    batch.remember(state)
    return BatchRun(
        batch=batch,
        state=state,
        spec=spec,
        prepared=prepared,
        resumed=False,
        settings=environment.settings,
        notices=(*choice.notices, *_idle_judge(spec)),
    )


def _resume(
    options: BatchOptions, spec: RunSpec, environment: _Environment, batch: Batch
) -> BatchRun:
    """Resume *batch* with its own models, limits and roles, unless the command line changes them."""
    before, state = earlier(batch), batch.state()
    if options.agent not in {None, before.agent.name}:
        raise another_agent(before, str(options.agent), batch)
    more = options.models
    choice = ModelChoice(offers=()) if more is None else choose(environment.catalog, more)
    offers = before.offers(environment.catalog, choice.offers)
    spec = replace(
        spec,
        agents=(before.agent,),
        rollouts=max(options.rollouts or 0, before.rollouts),
        conditions=_conditions_again(options, before, environment.catalog),
        sandbox=before.sandbox,
    )
    spec = _with_models(spec, options, offers, environment)
    prepared = prepare_run(RunOptions(spec))
    refuse_what_differs(before, prepared.plan, state, offers, batch)
    notices = (*choice.notices, *_other_box(before, spec), *_other_machine(state, environment))
    return BatchRun(
        batch=batch,
        state=_with_session(replace(state, parallel=spec.parallel or 1), offers, environment),
        spec=spec,
        prepared=prepared,
        resumed=True,
        settings=environment.settings,
        notices=notices,
    )


def _conditions(
    options: BatchOptions, roles: dict[str, ModelSpec], environment: _Environment
) -> Conditions:
    if options.interventions and not options.instructor:
        raise UsageError("--interventions needs --instructor: name the model that steps in")
    limits = Limits(
        time_s=options.timeout_s or environment.settings.default_timeout,
        interventions=options.interventions or 0,
    )
    attempts = environment.settings.attempts if environment.config else _ATTEMPTS
    return Conditions(limits=limits, roles=roles, attempts=attempts)


def _conditions_again(options: BatchOptions, before: Earlier, catalog: ModelCatalog) -> Conditions:
    limits = before.conditions.limits
    if options.timeout_s is not None:
        limits = replace(limits, time_s=options.timeout_s)
    if options.interventions is not None:
        limits = replace(limits, interventions=options.interventions)
    roles = {**before.conditions.roles, **_roles(options, catalog)}
    return replace(before.conditions, limits=limits, roles=roles)


def _with_models(
    spec: RunSpec, options: BatchOptions, offers: Sequence[ModelOffer], environment: _Environment
) -> RunSpec:
    """Return *spec* with its models, and how many of them run at once."""
    most = options.max_parallel or environment.settings.max_parallel
    parallel = min(len(offers), most) if options.parallel or options.max_parallel else 1
    sandbox = named(spec.sandbox, options.sandbox)
    models = tuple(offer.spec for offer in offers)
    endpoints = environment.config.endpoints if environment.config else {}
    spec = replace(spec, models=models, parallel=parallel, sandbox=sandbox, endpoints=endpoints)
    return judged(spec)


def _roles(options: BatchOptions, catalog: ModelCatalog) -> dict[str, ModelSpec]:
    """Return the models of the roles: from the models file or the Ollama, else by their full name."""
    named = {"judge": options.judge, "instructor": options.instructor}
    return {role: helper(role, name, catalog) for role, name in named.items() if name}


def _competing(
    catalog: ModelCatalog, roles: Mapping[str, ModelSpec], options: BatchOptions
) -> ModelCatalog:
    """Return the models for `all`: the judge and the instructor compete only where they are named."""
    if options.models and options.models.casefold() != ALL:
        return catalog
    in_roles = {spec.full_name for spec in roles.values()}
    offers = tuple(offer for offer in catalog.offers if offer.spec.full_name not in in_roles)
    if not offers:
        raise UsageError("no model is left to compare: the only one is the judge or the instructor")
    return replace(catalog, offers=offers)


def _idle_judge(spec: RunSpec) -> Iterator[str]:
    """Yield a notice where the judge has nothing to do."""
    (task,) = spec.tasks
    asked = {
        role for scorer in task.scorers for role in asked_roles(unstarted_scorer(scorer), task)
    }
    if "judge" not in spec.conditions.roles or "judge" in asked:
        return
    if task.scorers:
        yield "the judge is not asked: the task has a check of its own, which decides"
    else:
        yield "the judge has nothing to go by: the task has no `## Success Criteria`"


def _with_session(
    state: BatchState, offers: Sequence[ModelOffer], environment: _Environment
) -> BatchState:
    """Return *state* with this machine, the digests of the models, and a session that starts now."""
    digests = {o.spec.full_name: o.digest for o in offers if o.digest}
    machine = run_sync(machine_info(environment.host, _served(environment.ollama, offers)))
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


def _other_box(before: Earlier, spec: RunSpec) -> list[str]:
    """Return a notice where the batch began in another sandbox."""
    then, now_in = before.sandbox.name, spec.sandbox.name
    if now_in in {None, then}:
        return []
    return [
        f"the batch began in sandbox {then!r} and continues in {now_in!r}: times are not comparable"
    ]


def _other_machine(state: BatchState, environment: _Environment) -> list[str]:
    """Return a notice where the batch began on another machine."""
    today = run_sync(machine_info(environment.host))
    different = [
        name
        for name in ("cpu", "cores", "memory_bytes", "os", "ollama")
        if state.machine.get(name) != today.get(name)
    ]
    if not different:
        return []
    return [
        f"the batch began on another machine ({', '.join(different)} differ): times do not compare"
    ]


def _troubleshooting(environment: _Environment, task: Path) -> str:
    config, catalog = environment.config, environment.catalog
    return _NO_MODELS.format(
        task=task,
        ollama="; ".join(str(trouble) for trouble in environment.ollama.troubles) or "it has none",
        config=config.shown if config else "models_config.yaml (--config)",
        disabled=f" (switched off: {', '.join(catalog.disabled)})" if catalog.disabled else "",
        keys=f" ({'; '.join(f'{n}: {why}' for n, why in catalog.missing.items())})"
        if catalog.missing
        else "",
    )
