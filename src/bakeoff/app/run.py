"""A run from its options to its results, step by step: the file to read first.

`bakeoff run`, `bakeoff.run`, the batch, rollouts and agent benchmark front ends and `TestRunner` all
make a `RunOptions` and go this way; `bakeoff run --dry-run` stops after `prepare_run`.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from typing import TYPE_CHECKING

from bakeoff._lib.clock import monotonic
from bakeoff._lib.process_setup import open_closed_descriptors, rare_collections
from bakeoff._lib.redact import Redactor, url_secrets
from bakeoff._lib.threads import run_sync
from bakeoff.app.endpoints import EndpointWatch
from bakeoff.app.known_secrets import learn_plan, redacted_errors, redacting
from bakeoff.app.notebook import shown_in_notebook
from bakeoff.app.options import RunOptions, options_as_keywords
from bakeoff.app.pairings import models_of
from bakeoff.app.prepare import (
    PreparedRun,
    apply_limits,
    check_trust,
    choose_tasks_and_candidates,
    expand_plan,
    read_stored_plan,
    resolve_models,
)
from bakeoff.app.pricing import check_budget, prices_of
from bakeoff.app.run_folder import (
    RunFolder,
    check_earlier_plan,
    open_run_folder,
    refuse_unprepared,
    with_artifacts,
    without_finished_tasks,
)
from bakeoff.app.run_results import Run, summarized
from bakeoff.app.runner import LOCAL, check_executor, open_cluster, open_runner
from bakeoff.app.sharding import take_shard
from bakeoff.app.trial_parts import PartBuilder, SharedTrialParts
from bakeoff.app.workspaces import open_workspace_services
from bakeoff.core.events import Notice, RunEnded, RunStarted
from bakeoff.core.plan import Plan
from bakeoff.core.run_spec import Adaptive
from bakeoff.engine.budget import Budget
from bakeoff.engine.run import StopConditions, run_plan
from bakeoff.executors.local import LocalExecutor
from bakeoff.formats.detect import read_source
from bakeoff.models.limits.settings import Limiters
from bakeoff.models.recording.replay import open_recording_modes
from bakeoff.reports.wording.phrases import counted
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.live_status import LivePublisher

if TYPE_CHECKING:
    from bakeoff.engine.adaptive import AdaptiveSelection
    from bakeoff.executors.ray import RayCluster


@options_as_keywords(RunOptions)
def run(options: RunOptions) -> Run:
    """Run a suite, a run file or tasks, and return the finished run.

    With `resume`, runs exactly what is missing of an earlier run; then the source may be left out.
    """
    return run_sync(execute_run(shown_in_notebook(options)), loop_factory=new_event_loop)


@options_as_keywords(RunOptions)
async def run_async(options: RunOptions) -> Run:
    """Run as `run` does, in the event loop that is running."""
    return await execute_run(shown_in_notebook(options))


@options_as_keywords(RunOptions)
def plan(options: RunOptions) -> PreparedRun:
    """Return what `run` would run, without running it."""
    return prepare_run(options)


def prepare_run(options: RunOptions) -> PreparedRun:
    """Return what a run with *options* would run; nothing is started, and no folder is made."""
    options.check()
    if options.source is None:
        return take_shard(read_stored_plan(options), options)
    source = read_source(options.source, options.overrides, options.data)
    chosen = choose_tasks_and_candidates(source, options)
    trusted = check_trust(chosen, options)
    resolved = resolve_models(trusted, options, aliases=models_of(source))
    limited = apply_limits(resolved, options)
    return take_shard(expand_plan(limited, options), options)


async def execute_run(options: RunOptions) -> Run:
    """Run everything in a new folder, or what is missing of the run that is resumed."""
    prepared = prepare_run(options)
    warning = check_budget(prepared.plan, prepared.spec)
    whole_plan = check_earlier_plan(prepared, options)
    environ = read_environment(options)
    redactor = learn_secrets(prepared, whole_plan, environ)
    check_executor(prepared, redactor)
    options = replace(options, listener=redacting(options.listener, redactor))
    with redacted_errors(redactor):
        needed = without_finished_tasks(prepared, options)
        async with (
            build_parts(needed, options, environ, redactor) as parts,
            open_cluster(prepared.spec) as cluster,
        ):
            tell_before_start(options, parts, warning)
            async with open_run_folder(prepared, options, whole_plan, parts, redactor) as folder:
                refuse_unprepared(prepared, needed, folder)
                ended = await run_engine(prepared, options, folder, parts, redactor, cluster)
            tell_end(options, parts, ended)
            plan = SqliteLedger(folder.path).planned() if whole_plan.streams else whole_plan
            return summarized(folder.path, plan)


def read_environment(options: RunOptions) -> Mapping[str, str]:
    """Return the variables that models may read, and say which file they came from."""
    environment = options.environment()
    if environment.notice:
        options.listener(Notice(environment.notice))
    return environment.values


def learn_secrets(prepared: PreparedRun, plan: Plan, environ: Mapping[str, str]) -> Redactor:
    """Return a redactor that knows the secrets of every model, agent and endpoint of the run."""
    redactor = Redactor()
    learn_plan(plan, environ, redactor)
    for endpoint in prepared.spec.endpoints:
        redactor.add(url_secrets(endpoint))
    return redactor


@asynccontextmanager
async def build_parts(
    prepared: PreparedRun,
    options: RunOptions,
    environ: Mapping[str, str],
    redactor: Redactor,
    *,
    only_score: bool = False,
) -> AsyncIterator[SharedTrialParts]:
    """Build every model, agent, scorer and sandbox of the plan, and close them all at the end.

    With *only_score*, stored answers are graded: the candidates are neither built nor asked.
    """
    spec = prepared.spec
    with closing(open_recording_modes(options.recording, redactor, options.stop)) as recording:
        sources = PartBuilder(
            redactor=redactor,
            environ=environ,
            own=prepared.own,
            folders=prepared.folders,
            recording=recording,
            prices=prices_of(spec),
            limiters=Limiters(spec.endpoints, patience=spec.patience, shares=prepared.shares),
        )
        async with open_workspace_services(
            prepared.plan,
            spec.sandbox,
            environ=environ,
            run=spec.name,
            listener=options.listener,
            folders=prepared.folders,
        ) as workspace_services:
            parts = SharedTrialParts(
                prepared.plan,
                sources,
                roles=spec.conditions.roles if only_score else None,
                ask_candidates=not only_score,
                workspace_services=workspace_services,
            )
            try:
                await parts.check_roles(only_scorers=only_score)
                if only_score or spec.executor == LOCAL:
                    await parts.start_scorers()
                yield parts
            finally:
                await parts.close()


def tell_before_start(options: RunOptions, parts: SharedTrialParts, warning: str | None) -> None:
    """Tell the listener where the budget may be too small, and which limits nothing uses."""
    notices = [warning] if warning and not options.resume else []
    notices += [f"endpoints: no model of this run uses {name}" for name in parts.limiters.idle()]
    for notice in notices:
        options.listener(Notice(notice))


async def run_engine(
    prepared: PreparedRun,
    options: RunOptions,
    folder: RunFolder,
    parts: SharedTrialParts,
    redactor: Redactor,
    cluster: "RayCluster | None",
) -> RunEnded:
    """Run every trial that is due, and return how the run ended."""
    plan, spec, run_id = folder.plan, prepared.spec, folder.path.name
    if spec.warm_up:
        await parts.warm_up(plan, options.listener)
    if spec.adaptive is not None:
        options.listener(Notice(f"adaptive: {ends_when(spec.adaptive, len(plan))}"))
    options.listener(
        RunStarted(
            run_id,
            str(folder.path),
            len(plan),
            folder.done,
            spec.cap,
            folder.billed,
            spec.adaptive is not None,
            plan.trials_by_candidate(),
        )
    )
    budget = Budget(spec.cap, before=folder.billed)
    publisher = LivePublisher(folder.path, redactor)
    watch = EndpointWatch(parts.limiters, options.listener, redactor, publisher=publisher)
    if folder.done < len(plan):
        async with (
            watch.watching(options.stop, parts.nothing_left),
            open_runner(prepared, options, folder, parts, cluster) as runner,
        ):
            with rare_collections():
                async with _reading_ahead(folder, options):
                    await run_plan(
                        plan,
                        store=folder.store,
                        runner=runner,
                        executor=LocalExecutor(
                            spec.parallel or parts.default_parallel(plan), pause_s=spec.pause_s
                        ),
                        listener=with_artifacts(options.listener, folder.path, redactor),
                        until=StopConditions(
                            stop=options.stop,
                            budget=budget,
                            selection=_adaptive_selection(prepared, folder),
                        ),
                    )
    cut_short = options.stop.requested or bool(watch.given_up)
    return RunEnded(run_id, cut_short, budget.reached, watch.given_up)


@asynccontextmanager
async def _reading_ahead(folder: RunFolder, options: RunOptions) -> AsyncIterator[None]:
    """Read what is left of a large data set beside the block, for at most half of the time.

    Where a row is wrong, the run stops, and that is the error in the end.
    """
    stream = folder.stream
    if stream is None:
        yield
        return

    async def read() -> None:
        began = monotonic()
        while not options.stop.requested and stream.advance():
            await asyncio.sleep(monotonic() - began)
            began = monotonic()
        if stream.error is not None:
            options.stop.request()

    reading = asyncio.create_task(read())
    try:
        yield
    finally:
        reading.cancel()
        await asyncio.wait([reading])
    if stream.error is not None:
        raise stream.error
    if stream.repeated:
        many = counted(stream.repeated, "row")
        options.listener(Notice(f"{many} repeated an earlier one and are run once"))


def tell_end(options: RunOptions, parts: SharedTrialParts, ended: RunEnded) -> None:
    """Tell the listener what to know of how models were asked, and that the run has ended."""
    for line in parts.closing_notes():
        options.listener(Notice(line))
    options.listener(ended)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop where there is one, else Python's own."""
    open_closed_descriptors()  # uvloop aborts the process where a descriptor of its own is below 3
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def ends_when(rule: Adaptive, trials: int) -> str:
    """Return in words when an adaptive run of at most so many *trials* ends."""
    what = "the best candidate is known" if rule.goal == "best" else "the candidates are separated"
    known = f", or their difference known to within {rule.precision:g}" if rule.precision else ""
    looks = "" if rule.looks is None else f", looked at {rule.looks} times"
    return f"it ends when {what}{known}{looks}; {trials:,} trials at most"


def _adaptive_selection(prepared: PreparedRun, folder: RunFolder) -> "AdaptiveSelection | None":
    """Return what decides when an adaptive run may end, knowing the trials of before."""
    if prepared.spec.adaptive is None:
        return None
    from bakeoff.engine.adaptive import AdaptiveSelection

    selection = AdaptiveSelection(prepared.plan, prepared.spec.adaptive)
    selection.restore(SqliteLedger(folder.path).rows())
    return selection
