"""One task, many models: what was asked for becomes one run of ours, in the folder of a batch."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bakeoff import api
from bakeoff._lib.clock import now, timestamp
from bakeoff._lib.loops import run_sync
from bakeoff.api.machine import machine_info
from bakeoff.api.site import named
from bakeoff.api.sources import Prepared
from bakeoff.compat.batch_models import ALL, Choice, Market, Offer, choose, helper, market
from bakeoff.compat.batch_place import (
    Batch,
    BatchState,
    find_batch,
    new_batch,
    with_session,
)
from bakeoff.compat.batch_resume import Earlier, another_agent, earlier, refuse_what_differs
from bakeoff.config.env_file import environment
from bakeoff.config.models_file import BatchSettings, ModelsConfig, read_models_file
from bakeoff.core.brief import Brief
from bakeoff.core.candidate import AgentSpec, Conditions, Limits, ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json
from bakeoff.models.discovery import Discovery, ollama_models
from bakeoff.models.ollama_address import DEFAULT_URL
from bakeoff.suites.markdown_task import judged, read_markdown

DEFAULT_AGENT = "shell"
_ATTEMPTS = 2
_ASK_THE_JUDGE = {"judge", "rubrics"}
_NO_MODELS = """\
no models detected. Ensure Ollama is installed and running: `ollama list` ({ollama})
  Check {config} for commercial models: at least one with `enabled: true`{disabled}
  Verify API keys are set as environment variables{keys}; or name a model: bakeoff run {task} --model openai/NAME"""


@dataclass(frozen=True, kw_only=True)
class Wanted:
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
class Ready:
    """A batch that is ready to be run; `notices` are to be read before.

    `state` is what it is to remember once it runs: only then nobody else is at it.
    """

    batch: Batch
    state: BatchState
    brief: Brief
    prepared: Prepared
    resumes: bool
    settings: BatchSettings
    notices: tuple[str, ...]
    env_file: Path | None

    def options(self) -> api.Options:
        """Return how and where it is run."""
        place = self.batch.run
        where: api.Options = {"resume": str(place)} if self.resumes else {"folder": place}
        return {**where, "env_file": self.env_file}

    def give_back(self) -> None:
        """Remove the folder of a batch of which nothing was run."""
        if not self.batch.begun:
            shutil.rmtree(self.batch.folder, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class _Around:
    """What there is: the file, the variables, the Ollama, the models."""

    config: ModelsConfig | None
    environ: Mapping[str, str]
    ollama: Discovery
    market: Market

    @property
    def host(self) -> str:
        return self.environ.get("OLLAMA_HOST") or DEFAULT_URL

    @property
    def settings(self) -> BatchSettings:
        return self.config.batch if self.config else BatchSettings()


def planned(wanted: Wanted) -> tuple[Prepared, tuple[str, ...]]:
    """Return the run that is asked for and what to read before; nothing is asked, no folder made."""
    brief = _task(wanted.task)
    around = _look_around(wanted)
    if wanted.resume is not None and (batch := find_batch(wanted.resume, wanted.output)).begun:
        again = _again(wanted, brief, around, batch)
        return again.prepared, again.notices
    brief, choice = _asked_for(wanted, brief, around)
    return api.plan(brief), (*choice.notices, *_idle_judge(brief))


def ready(wanted: Wanted) -> Ready:
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


def _task(path: Path) -> Brief:
    brief = read_markdown(path) if path.suffix.lower() == ".md" else api.read(path, {})
    if len(brief.tasks) != 1:
        raise UsageError(f"{path}: a batch runs one task, and here are {len(brief.tasks)}")
    return brief


def _look_around(wanted: Wanted) -> _Around:
    environ = environment(os.environ, named=wanted.env_file, here=Path()).values
    config = read_models_file(wanted.config) if wanted.config else None
    ollama = run_sync(ollama_models(environ.get("OLLAMA_HOST") or DEFAULT_URL))
    return _Around(
        config=config,
        environ=environ,
        ollama=ollama,
        market=market(ollama.found, config, environ),
    )


def _asked_for(wanted: Wanted, brief: Brief, around: _Around) -> tuple[Brief, Choice]:
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


def _new(wanted: Wanted, brief: Brief, around: _Around, batch: Batch | None = None) -> Ready:
    brief, choice = _asked_for(wanted, brief, around)
    prepared = api.plan(brief)
    batch = batch or new_batch(wanted.output, now())
    state = BatchState(task=str(wanted.task), parallel=brief.parallel or 1)
    state = _begun(state, choice.offers, around)
    batch.remember(state)
    return Ready(
        batch=batch,
        state=state,
        brief=brief,
        prepared=prepared,
        resumes=False,
        settings=around.settings,
        notices=(*choice.notices, *_idle_judge(brief)),
        env_file=wanted.env_file,
    )


def _again(wanted: Wanted, brief: Brief, around: _Around, batch: Batch) -> Ready:
    """Go on with *batch*: its models, its limits and its roles, unless something was said anew."""
    before, state = earlier(batch), batch.state()
    if wanted.agent not in {None, before.agent.name}:
        raise another_agent(before, str(wanted.agent), batch)
    more = wanted.models
    choice = Choice(offers=()) if more is None else choose(around.market, more)
    offers = before.offers(around.market, choice.offers)
    brief = replace(
        brief,
        agents=(before.agent,),
        rollouts=max(wanted.rollouts or 0, before.rollouts),
        conditions=_conditions_again(wanted, before, around.market),
        sandbox=before.sandbox,
    )
    brief = _filled(brief, wanted, offers, around)
    prepared = api.plan(brief)
    refuse_what_differs(before, prepared.plan, state, offers, batch)
    notices = (*choice.notices, *_other_box(before, brief), *_other_machine(state, around))
    return Ready(
        batch=batch,
        state=_begun(replace(state, parallel=brief.parallel or 1), offers, around),
        brief=brief,
        prepared=prepared,
        resumes=True,
        settings=around.settings,
        notices=notices,
        env_file=wanted.env_file,
    )


def _conditions(wanted: Wanted, roles: dict[str, ModelSpec], around: _Around) -> Conditions:
    if wanted.interventions and not wanted.instructor:
        raise UsageError("--interventions needs --instructor: name the model that is to step in")
    limits = Limits(
        time_s=wanted.timeout_s or around.settings.default_timeout,
        interventions=wanted.interventions or 0,
    )
    attempts = around.settings.attempts if around.config else _ATTEMPTS
    return Conditions(limits=limits, roles=roles, attempts=attempts)


def _conditions_again(wanted: Wanted, before: Earlier, there: Market) -> Conditions:
    limits = before.conditions.limits
    if wanted.timeout_s is not None:
        limits = replace(limits, time_s=wanted.timeout_s)
    if wanted.interventions is not None:
        limits = replace(limits, interventions=wanted.interventions)
    roles = {**before.conditions.roles, **_roles(wanted, there)}
    return replace(before.conditions, limits=limits, roles=roles)


def _filled(brief: Brief, wanted: Wanted, offers: Sequence[Offer], around: _Around) -> Brief:
    """Return *brief* with its models, and how many of them run and are asked at once."""
    most = wanted.max_parallel or around.settings.max_parallel
    parallel = min(len(offers), most) if wanted.parallel or wanted.max_parallel else 1
    sandbox = named(brief.sandbox, wanted.sandbox)
    models = tuple(offer.spec for offer in offers)
    endpoints = around.config.endpoints if around.config else {}
    brief = replace(brief, models=models, parallel=parallel, sandbox=sandbox, endpoints=endpoints)
    return judged(brief)


def _roles(wanted: Wanted, there: Market) -> dict[str, ModelSpec]:
    """Return who helps: a model of the file or of the Ollama by its name, else any that can be named."""
    named = {"judge": wanted.judge, "instructor": wanted.instructor}
    return {role: helper(role, name, there) for role, name in named.items() if name}


def _without(there: Market, roles: Mapping[str, ModelSpec], wanted: Wanted) -> Market:
    """Return what there is for `all`: who judges or helps does not compete as well, unless named."""
    if wanted.models and wanted.models.casefold() != ALL:
        return there
    busy = {spec.full_name for spec in roles.values()}
    offers = tuple(offer for offer in there.offers if offer.spec.full_name not in busy)
    if not offers:
        raise UsageError("no model is left to compare: the only one is the judge or the instructor")
    return replace(there, offers=offers)


def _idle_judge(brief: Brief) -> Iterator[str]:
    """Yield why the judge that was asked for has nothing to do, where that is so."""
    (task,) = brief.tasks
    if "judge" not in brief.conditions.roles or {s.name for s in task.scorers} & _ASK_THE_JUDGE:
        return
    if task.scorers:
        yield "the judge is not asked: the task has a check of its own, which decides"
    else:
        yield "the judge has nothing to go by: the task has no `## Success Criteria`"


def _begun(state: BatchState, offers: Sequence[Offer], around: _Around) -> BatchState:
    """Return *state* with what the batch is run on, and that a session of it starts now."""
    digests = {o.spec.full_name: o.digest for o in offers if o.digest}
    machine = run_sync(machine_info(around.host, _served(around.ollama, offers)))
    state = replace(state, machine=machine, digests={**state.digests, **digests})
    return with_session(state, timestamp())


def _served(ollama: Discovery, offers: Sequence[Offer]) -> dict[str, Json]:
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


def _other_box(before: Earlier, brief: Brief) -> list[str]:
    """Return a warning where the batch began in another sandbox than it goes on in."""
    then, now_in = before.sandbox.name, brief.sandbox.name
    if now_in in {None, then}:
        return []
    return [f"the batch began in sandbox {then!r} and goes on in {now_in!r}: times do not compare"]


def _other_machine(state: BatchState, around: _Around) -> list[str]:
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


def _troubleshooting(around: _Around, task: Path) -> str:
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
