"""The answers of a run are scored again."""

from dataclasses import replace
from pathlib import Path

from bakeoff._lib.process_setup import rare_collections
from bakeoff._lib.redact import Redactor
from bakeoff._lib.threads import run_sync
from bakeoff.app.endpoints import EndpointWatch
from bakeoff.app.interrupts import new_event_loop
from bakeoff.app.known_secrets import learn_plan, redacting
from bakeoff.app.options import RunOptions, options_as_more_keywords
from bakeoff.app.prepare import read_for_scoring
from bakeoff.app.pricing import prices_from
from bakeoff.app.run import read_environment
from bakeoff.app.run_folder import DEFAULT_PARALLEL, VERSION, with_artifacts
from bakeoff.app.run_results import Run, folders_of, refuse_a_plan_with_holes, summarized
from bakeoff.app.trial_parts import Parts, SharedTrialParts
from bakeoff.app.workspaces import named, open_workspace_services
from bakeoff.core.events import Notice, RunEnded, RunStarted
from bakeoff.engine.run import rescore_plan
from bakeoff.executors.local import LocalExecutor
from bakeoff.models.limits.settings import Limiters
from bakeoff.planning.resume import rescored
from bakeoff.stores.folders import find_run, read_manifest
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.ledger_writer import SqliteStore

_ASK_THE_JUDGE = frozenset({"judge", "rubrics"})


@options_as_more_keywords(RunOptions)
def rescore(run: Run | str, options: RunOptions) -> Run:
    """Score the stored answers of a run again, without asking any candidate.

    With a source (a suite or a run file), its targets and scorers take the place of the stored ones.
    """
    return run_sync(score_again(_reference(run), options), loop_factory=new_event_loop)


@options_as_more_keywords(RunOptions)
async def rescore_async(run: Run | str, options: RunOptions) -> Run:
    """Score again as `rescore` does, in the event loop that is running."""
    return await score_again(_reference(run), options)


def _reference(run: Run | str) -> str:
    return str(run.folder) if isinstance(run, Run) else run


async def score_again(reference: str, options: RunOptions) -> Run:
    """Score the stored answers of a run again, with the scoring and the roles of the source, if any."""
    source = read_for_scoring(options)
    folder = find_run(reference, Path(options.output))
    ledger = SqliteLedger(folder)
    refuse_a_plan_with_holes(Run(folder, ledger=ledger))
    before = ledger.planned()
    plan = rescored(before, source.tasks if source else ())
    redactor, environ = Redactor(), read_environment(options)
    # the stored answers were redacted; what the judge says may repeat a secret
    learn_plan(plan, environ, redactor)
    options = replace(options, listener=redacting(options.listener, redactor))
    manifest = read_manifest(folder)
    part_sources = Parts(
        redactor=redactor,
        environ=environ,
        folders=folders_of(manifest),
        prices=prices_from(source.prices if source else None, manifest.prices),
        limiters=Limiters({**manifest.endpoints, **(source.endpoints if source else {})}),
    )
    roles = {**plan.conditions.roles, **(source.conditions.roles if source else {})}
    sandbox = named(manifest.sandbox, options.sandbox)
    opening = open_workspace_services(
        plan,
        sandbox,
        environ=environ,
        run=manifest.name,
        tell=options.listener,
        folders=part_sources.folders,
    )
    async with opening as workspace_services:
        parts = SharedTrialParts(
            plan,
            part_sources,
            roles=roles,
            ask_candidates=False,
            workspace_services=workspace_services,
        )
        if any(scorer.name in _ASK_THE_JUDGE for task in plan.tasks for scorer in task.scorers):
            await parts.check_roles()
        store = SqliteStore(folder, redactor=redactor, version=VERSION)
        try:
            store.freeze(before)
            options.listener(RunStarted(folder.name, str(folder), ledger.answered(), 0))
            watch = EndpointWatch(parts.limiters, options.listener, redactor)
            async with watch.watching(options.stop, parts.nothing_left):
                with rare_collections():
                    adopted = await rescore_plan(
                        plan,
                        ledger=ledger,
                        store=store,
                        parts_source=parts,
                        executor=LocalExecutor(DEFAULT_PARALLEL),
                        stop=options.stop,
                        emit=with_artifacts(options.listener, folder, redactor),
                    )
        finally:
            await store.close()
            await parts.close()
    for line in parts.closing_notes():
        options.listener(Notice(line))
    options.listener(RunEnded(folder.name, not adopted, given_up=watch.given_up))
    return summarized(folder)
