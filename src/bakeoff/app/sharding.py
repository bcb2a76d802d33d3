"""One shard of a run: its part of the plan, of the budget and of the rate limits."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bakeoff.app.options import RunOptions
from bakeoff.app.prepare import PreparedRun
from bakeoff.app.run_results import earlier_manifest
from bakeoff.core.budget import Cap
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Plan
from bakeoff.core.run_spec import RunSpec, Shard
from bakeoff.models.limits.settings import limits_of
from bakeoff.planning.shards import cut, read_shard
from bakeoff.stores.folders import find_run


def take_shard(prepared: PreparedRun, options: RunOptions) -> PreparedRun:
    """Return the shard of *prepared* that is asked for or resumed; all of it where there is none.

    What is read from the ledger of a shard is one already, but for its part of the budget.
    """
    asked = _shard_asked(options)
    if asked is None:
        return prepared
    if prepared.shard is None:
        part = cut(prepared.plan, *asked)
        shard = replace(part.shard, cap=prepared.spec.cap)
        prepared = replace(prepared, plan=part.plan, shard=shard, places=part.places)
    else:
        shard = prepared.shard
    return replace(prepared, spec=_with_share(prepared.spec, prepared.plan, shard))


def _shard_asked(options: RunOptions) -> tuple[int, int] | None:
    """Return the shard that the options name, which is that of the run that is resumed."""
    asked = None if options.shard is None else read_shard(options.shard)
    if not options.resume:
        return asked
    manifest = earlier_manifest(find_run(options.resume, Path(options.output)))
    if manifest is None:
        return asked
    if manifest.shard is None:
        if asked is not None:
            raise UsageError(
                f"--shard {options.shard}: {manifest.run} is no shard of a run; leave out --shard"
            )
        return None
    known = manifest.shard.index, manifest.shard.count
    if asked not in {None, known}:
        raise UsageError(
            f"--shard {options.shard}: {manifest.run} is shard {manifest.shard.name}; leave out --shard"
        )
    if options.only and options.source is not None:
        raise UsageError(
            f"{manifest.run} is shard {manifest.shard.name}: --only chooses among the tasks that it has; "
            "leave out the source"
        )
    return known


def _with_share(spec: RunSpec, plan: Plan, shard: Shard) -> RunSpec:
    """Return *spec* with the budget of one *shard*, and a line that says what the shard has of all."""
    if spec.adaptive is not None:
        raise UsageError(
            "an adaptive run ends when its scores say so, and a shard sees only its own: leave out "
            "--shard, or adaptive"
        )
    parts = [f"{plan.task_count:,} of {shard.tasks:,} tasks"]
    parts += _budget(shard.cap, shard.count)
    parts += _limits(spec, plan, shard.count)
    notice = f"shard {shard.name}: {', '.join(parts)}"
    return replace(spec, cap=shard.cap.divided(shard.count), notices=(*spec.notices, notice))


def _budget(cap: Cap, shares: int) -> Iterator[str]:
    """Yield what each of *shares* runs may spend of *cap*; raise where that is nothing."""
    own = cap.divided(shares)
    if own.cost_usd is not None:
        yield f"${own.cost_usd:.4f} of ${cap.cost_usd:.4f}"
    if own.tokens == 0:
        raise UsageError(
            f"--max-tokens {cap.tokens} is for all {shares} shards together, and leaves nothing for "
            "each: raise it"
        )
    if own.tokens is not None:
        yield f"{own.tokens:,} of {cap.tokens:,} tokens"


def _limits(spec: RunSpec, plan: Plan, shares: int) -> Iterator[str]:
    """Yield what one of *shares* runs may send, for each endpoint and each model with limits."""
    models = (*(c.model for c in plan.candidates), *plan.conditions.roles.values())
    limits = {**spec.endpoints, **{model.full_name: limits_of(model) for model in models}}
    for name, whole in limits.items():
        own = whole.divided(shares)
        for share, rate, what in (
            (own.max_concurrency, whole.max_concurrency, "requests at once"),
            (own.rpm, whole.rpm, "requests per minute"),
            (own.tpm, whole.tpm, "tokens per minute"),
        ):
            if share is not None:
                yield f"{share:,.6g} of {rate:,.6g} {what} at {name}"
