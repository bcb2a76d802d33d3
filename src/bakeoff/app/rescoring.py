"""The answers of a run are scored again."""

from dataclasses import replace

from bakeoff._lib.gc_tuning import rare_collections
from bakeoff._lib.redact import Redactor
from bakeoff.app.endpoint_watch import EndpointWatch
from bakeoff.app.known_secrets import learn_plan
from bakeoff.app.pricing import prices_from
from bakeoff.app.run_results import Run, folders_of, refuse_a_plan_with_holes, summarized
from bakeoff.app.start import DEFAULT_PARALLEL, VERSION, Start, discreet, environ_of, filed
from bakeoff.app.trial_parts import Parts, SharedTrialParts
from bakeoff.app.workspaces import named, open_premises
from bakeoff.core.events import Notice, RunEnded, RunStarted
from bakeoff.core.run_spec import RunSpec
from bakeoff.engine.rescore import rescore_plan
from bakeoff.executors.local import LocalExecutor
from bakeoff.models.limits.settings import Limiters
from bakeoff.planning.resume import rescored
from bakeoff.stores.folders import find_run, read_manifest
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.ledger_writer import SqliteStore

_ASK_THE_JUDGE = frozenset({"judge", "rubrics"})


async def score_again(
    reference: str, start: Start, *, anew: RunSpec | None = None, sandbox: str | None = None
) -> Run:
    """Score the stored answers of a run again, with the scoring and the roles of *anew*, if any."""
    folder = find_run(reference, start.output)
    ledger = SqliteLedger(folder)
    refuse_a_plan_with_holes(Run(folder, ledger=ledger))
    before = ledger.planned()
    plan = rescored(before, anew.tasks if anew else ())
    redactor, environ = Redactor(), environ_of(start)
    learn_plan(
        plan, environ, redactor
    )  # the stored answers were redacted; what is judged may repeat
    start = replace(start, listener=discreet(start.listener, redactor))
    manifest = read_manifest(folder)
    parts = Parts(
        redactor=redactor,
        environ=environ,
        folders=folders_of(manifest),
        prices=prices_from(anew.prices if anew else None, manifest.prices),
        gates=Limiters({**manifest.endpoints, **(anew.endpoints if anew else {})}),
    )
    roles = {**plan.conditions.roles, **(anew.conditions.roles if anew else {})}
    where = named(manifest.sandbox, sandbox)
    premises_open = open_premises(
        plan,
        where,
        environ=parts.environ,
        run=manifest.name,
        tell=start.listener,
        folders=parts.folders,
    )
    async with premises_open as premises:
        rigs = SharedTrialParts(plan, parts, roles=roles, ask_candidates=False, premises=premises)
        if any(scorer.name in _ASK_THE_JUDGE for task in plan.tasks for scorer in task.scorers):
            await rigs.check_roles()
        store = SqliteStore(folder, redactor=redactor, version=VERSION)
        try:
            store.freeze(before)
            start.listener(RunStarted(folder.name, str(folder), ledger.answered(), 0))
            watch = EndpointWatch(rigs.gates, start.listener, redactor)
            async with watch.watching(start.stop, rigs.nothing_left):
                with rare_collections():
                    adopted = await rescore_plan(
                        plan,
                        ledger=ledger,
                        store=store,
                        parts_source=rigs,
                        executor=LocalExecutor(DEFAULT_PARALLEL),
                        stop=start.stop,
                        emit=filed(start.listener, folder, redactor),
                    )
        finally:
            await store.close()
            await rigs.close()
    for line in rigs.last_words():
        start.listener(Notice(line))
    start.listener(RunEnded(folder.name, not adopted, given_up=watch.given_up))
    return summarized(folder)
