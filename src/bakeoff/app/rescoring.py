"""Score the stored answers of a run again."""

from dataclasses import replace
from pathlib import Path

from bakeoff._lib.process_setup import rare_collections
from bakeoff._lib.redact import Redactor
from bakeoff._lib.threads import run_sync
from bakeoff._lib.version import __version__
from bakeoff.app.endpoints import EndpointWatch
from bakeoff.app.known_secrets import learn_plan, redacting
from bakeoff.app.options import RunOptions, options_as_more_keywords
from bakeoff.app.prepare import PreparedRun, own_parts, read_for_scoring, scorers_of
from bakeoff.app.pricing import prices_file
from bakeoff.app.run import build_parts, new_event_loop, read_environment, tell_end
from bakeoff.app.run_folder import DEFAULT_PARALLEL, with_artifacts
from bakeoff.app.run_results import Run, folders_of, refuse_a_plan_with_holes, summarized
from bakeoff.app.trial_parts import SharedTrialParts
from bakeoff.app.workspaces import named
from bakeoff.core.candidate import PromptSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Notice, RunEnded, RunStarted
from bakeoff.core.plan import Plan
from bakeoff.core.run_spec import RunSpec
from bakeoff.engine.run import rescore_plan
from bakeoff.executors.local import LocalExecutor
from bakeoff.planning.resume import rescored
from bakeoff.stores.attachments import AttachmentStore
from bakeoff.stores.folders import find_run, read_manifest
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.ledger_writer import SqliteStore


@options_as_more_keywords(RunOptions)
def rescore(run: Run | str, options: RunOptions) -> Run:
    """Score the stored answers of a run again, without asking any candidate.

    With a source (a suite or a run file), its targets and scorers take the place of the stored ones;
    `scorers` take the place of all.
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
    folder = find_run(reference, Path(options.output))
    refuse_a_plan_with_holes(Run(folder))
    stored = SqliteLedger(folder).planned()
    source = read_for_scoring(_with_prompts(options, stored))
    plan = _rescored_plan(stored, source, options)
    prepared = _prepared(folder, plan, source, options)
    redactor, environ = Redactor(), read_environment(options)
    # the stored answers were redacted; what the judge says may repeat a secret
    learn_plan(prepared.plan, environ, redactor)
    options = replace(options, listener=redacting(options.listener, redactor))
    async with build_parts(prepared, options, environ, redactor, only_score=True) as parts:
        ended = await _rescore(prepared, options, folder, parts, redactor)
        tell_end(options, parts, ended)
    return summarized(folder, SqliteLedger(folder).planned())


def _with_prompts(options: RunOptions, plan: Plan) -> RunOptions:
    """Return *options* with the prompts of *plan*: they decide how the rows of a data set are read."""
    given = [candidate.prompt for candidate in plan.candidates]
    return replace(
        options, prompts=[prompt or PromptSpec() for prompt in given] if any(given) else ()
    )


def _rescored_plan(plan: Plan, source: RunSpec | None, options: RunOptions) -> Plan:
    """Return *plan* with the scoring of *source* and the scorers of *options*, and say what keeps its own."""
    new = rescored(plan, source.tasks if source else (), scorers_of(options))
    if source is None:
        return new.plan
    if not (options.scorers or any(task.scorers for task in source.tasks)):
        raise UsageError(
            f"{options.source}: nothing in it says how an answer is checked; name the column of the "
            "expected answers with --expected, or a scorer with --scorer"
        )
    many = sum(1 for _ in plan.tasks)
    if not new.found:
        raise UsageError(
            f"{options.source}: none of the {many:,} tasks of the run is in it; what a task asks, and its "
            "id where it has one, must be the same"
        )
    if new.found < many:
        kept = f"{many - new.found:,} of the {many:,} tasks of the run are not in {options.source}"
        options.listener(Notice(f"{kept}; they are scored as before"))
    return new.plan


def _prepared(folder: Path, plan: Plan, source: RunSpec | None, options: RunOptions) -> PreparedRun:
    """Return *plan* and the settings to score it with."""
    manifest = read_manifest(folder)
    roles = {**plan.conditions.roles, **(source.conditions.roles if source else {})}
    spec = RunSpec(
        name=manifest.name,
        tasks=(),
        conditions=replace(plan.conditions, roles=roles),
        prices=prices_file(source.prices if source else None, manifest.prices),
        sandbox=named(manifest.sandbox, options.sandbox),
        endpoints={**manifest.endpoints, **(source.endpoints if source else {})},
    )
    return PreparedRun(
        spec=spec,
        plan=plan,
        own=own_parts(options),
        folders=folders_of(manifest),
        shard=manifest.shard,
    )


async def _rescore(
    prepared: PreparedRun,
    options: RunOptions,
    folder: Path,
    parts: SharedTrialParts,
    redactor: Redactor,
) -> RunEnded:
    """Score what the ledger in *folder* has, and return how it ended."""
    ledger = SqliteLedger(folder)
    store = SqliteStore(folder, redactor=redactor, version=__version__)
    parts.attachments = AttachmentStore(folder)
    try:
        store.freeze(ledger.planned())
        options.listener(RunStarted(folder.name, str(folder), ledger.answered(), 0))
        watch = EndpointWatch(parts.limiters, options.listener, redactor)
        async with watch.watching(options.stop, parts.nothing_left):
            with rare_collections():
                adopted = await rescore_plan(
                    prepared.plan,
                    ledger=ledger,
                    store=store,
                    parts_source=parts,
                    executor=LocalExecutor(DEFAULT_PARALLEL),
                    stop=options.stop,
                    listener=with_artifacts(options.listener, folder, redactor),
                )
    finally:
        await store.close()
    return RunEnded(folder.name, not adopted, given_up=watch.given_up)
