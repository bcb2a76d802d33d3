"""The Python API and the composition root: the only place that names concrete parts."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack

from bakeoff._lib.suggest import did_you_mean
from bakeoff._lib.threads import run_sync
from bakeoff.app.comparing import compare
from bakeoff.app.execution import execute
from bakeoff.app.images import fitting
from bakeoff.app.interrupts import new_event_loop
from bakeoff.app.power_planning import power
from bakeoff.app.pricing import read_prices
from bakeoff.app.reporting import report
from bakeoff.app.rescoring import score_again
from bakeoff.app.run_results import DEFAULT_OUTPUT, Run, load_run, prepared_again
from bakeoff.app.sources import (
    Given,
    OwnFunction,
    PreparedRun,
    RunChoices,
    prepare,
    read,
    read_for_scoring,
)
from bakeoff.app.start import Start
from bakeoff.app.workspaces import check_name, named
from bakeoff.core.budget import Cap
from bakeoff.core.candidate import AgentSpec, ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Listener, ignore
from bakeoff.core.plan import Plan
from bakeoff.core.ports import Agent, Model, Scorer
from bakeoff.core.run_spec import Adaptive, RunSpec
from bakeoff.core.stop import Stop
from bakeoff.core.task import ScorerSpec
from bakeoff.core.values import Json
from bakeoff.formats.text.env import environment
from bakeoff.models.recording.modes import RecordingFolders
from bakeoff.planning.expand import ordered
from bakeoff.planning.select import Selection, select_part
from bakeoff.stats.summary import Summary

__all__ = [
    "DEFAULT_OUTPUT",
    "Given",
    "Options",
    "Run",
    "compare",
    "load_run",
    "plan",
    "power",
    "read",
    "report",
    "rescore",
    "rescore_async",
    "run",
    "run_async",
    "summarize",
]


_SHAPE_THE_PLAN = (
    "models", "agents", "scorers", "base_url", "rollouts", "categories", "tests", "limit",
    "overrides",
)  # fmt: skip

_SELECT_A_PART = frozenset({"models", "agents", "rollouts", "categories", "tests", "limit"})


class Options(TypedDict, total=False):
    """What may be said about a run beyond its files."""

    models: Sequence[str | ModelSpec | Model | OwnFunction]
    agents: Sequence[str | AgentSpec | Agent | OwnFunction]
    scorers: Sequence[str | ScorerSpec | Scorer | OwnFunction]
    base_url: str | None
    rollouts: int | None
    adaptive: bool
    precision: float | None
    parallel: int | None
    categories: Sequence[str]
    tests: Sequence[str]
    limit: int | None
    overrides: Mapping[str, str]
    name: str | None
    resume: str | None
    only: bool
    output: str | Path
    folder: str | Path | None
    listener: Listener
    stop: Stop
    command: Sequence[str]
    record: str | Path | None
    replay: str | Path | None
    cache: str | Path | None
    env_file: str | Path | None
    max_cost: float | None
    max_tokens: int | None
    prices: str | Path | None
    sandbox: str | None
    give_up_after: float | None
    keep_going: bool
    trust: bool
    allow_env: Sequence[str]


def run(given: Given | None = None, **options: Unpack[Options]) -> Run:
    """Run a suite, a run file or tasks, and return the finished run.

    With `resume`, runs exactly what is missing of an earlier run; then *given* may be left out.
    """
    return run_sync(run_async(given, **options), loop_factory=new_event_loop)


async def run_async(given: Given | None = None, **options: Unpack[Options]) -> Run:
    """Run as `run` does, in the event loop that is running."""
    start = Start(
        output=Path(options.get("output", DEFAULT_OUTPUT)),
        folder=_path(options.get("folder")),
        resume=options.get("resume"),
        only=options.get("only", False),
        name=options.get("name"),
        listener=options.get("listener", ignore),
        stop=options.get("stop") or Stop(),
        command=options.get("command", ()),
        selection=_selection_as_data(options),
        tapes=RecordingFolders(
            record=_path(options.get("record")),
            replay=_path(options.get("replay")),
            cache=_path(options.get("cache")),
        ),
        env_file=_path(options.get("env_file")),
    )
    return await execute(_prepared(given, options), start)


def rescore(run: Run | str, given: Given | None = None, **options: Unpack[Options]) -> Run:
    """Score the stored answers of a run again, without asking any candidate.

    With *given* (a suite or a run file), its targets and scorers take the place of the stored ones.
    """
    return run_sync(rescore_async(run, given, **options), loop_factory=new_event_loop)


async def rescore_async(
    run: Run | str, given: Given | None = None, **options: Unpack[Options]
) -> Run:
    """Score again as `rescore` does, in the event loop that is running."""
    start = Start(
        output=Path(options.get("output", DEFAULT_OUTPUT)),
        listener=options.get("listener", ignore),
        stop=options.get("stop") or Stop(),
        env_file=_path(options.get("env_file")),
    )
    anew = None
    if given is not None:
        anew = read_for_scoring(
            given,
            RunChoices(
                overrides=options.get("overrides", {}),
                environ=_environ(options),
                trust=options.get("trust", False),
                allow_env=options.get("allow_env", ()),
            ),
        )
    reference = str(run.folder) if isinstance(run, Run) else run
    return await score_again(reference, start, anew=anew, sandbox=options.get("sandbox"))


def plan(given: Given, **options: Unpack[Options]) -> PreparedRun:
    """Return what `run` would run, without running it."""
    return _prepared(given, options)


def summarize(run: Run | str | Path, *, output: str | Path = DEFAULT_OUTPUT) -> Summary:
    """Return the statistics of a run."""
    return (run if isinstance(run, Run) else load_run(run, output=output)).summary()


def _prepared(given: Given | None, options: Options) -> PreparedRun:
    prepared = _planned(given, options)
    brief = _patient(_budgeted(prepared.brief, options), options)
    before, notices = brief.sandbox, prepared.notices
    brief = replace(brief, sandbox=named(before, options.get("sandbox")))
    if before.settings and not brief.sandbox.settings:
        unused = f"settings for {before.name!r} in the run file are not used: {', '.join(before.settings)}"
        notices = (*notices, f"sandbox {brief.sandbox.name!r}: the {unused}")
    if brief.sandbox.name:
        check_name(brief.sandbox.name)
    return fitting(_adaptive(replace(prepared, brief=brief, notices=notices), options), os.environ)


def _adaptive(prepared: PreparedRun, options: Options) -> PreparedRun:
    """Return *prepared* as a run that ends when its candidates are told apart, if it is to."""
    precision, rule = options.get("precision"), prepared.brief.adaptive
    if precision is not None and not 0 < precision < 1:
        raise UsageError(f"precision is {precision}; give a difference of scores such as 0.05")
    if options.get("adaptive") and rule is None:
        rule = Adaptive()
    if precision is not None:
        rule = replace(rule or Adaptive(), precision=precision)
    if rule is None:
        return prepared
    if sum(1 for _ in prepared.plan.candidates) < 2:
        raise UsageError(
            "an adaptive run ends when it is clear which candidate is better, and there is only one: "
            "name another model or agent"
        )
    return replace(
        prepared,
        brief=replace(prepared.brief, adaptive=rule),
        plan=ordered(prepared.plan, rule),
    )


def _patient(brief: RunSpec, options: Options) -> RunSpec:
    """Return *brief* with the patience that was wished for; `give_up_after` is in seconds."""
    patience, after_s = brief.patience, options.get("give_up_after")
    if after_s is not None:
        if not after_s >= 0:
            raise UsageError(f"give_up_after is {after_s}; give seconds, 0 or more")
        patience = replace(patience, give_up_after_s=after_s)
    if options.get("keep_going"):
        patience = replace(patience, keep_going=True)
    return replace(brief, patience=patience)


def _budgeted(brief: RunSpec, options: Options) -> RunSpec:
    """Return *brief* with the cap and the prices that were wished for."""
    cost, tokens, prices = (
        options.get("max_cost"),
        options.get("max_tokens"),
        options.get("prices"),
    )
    for name, value in (("max_cost", cost), ("max_tokens", tokens)):
        if value is not None and not value > 0:
            raise UsageError(f"{name} is {value}; give more than 0")
    cap = Cap(
        cost_usd=brief.cap.cost_usd if cost is None else cost,
        tokens=brief.cap.tokens if tokens is None else tokens,
    )
    if prices is None:
        return replace(brief, cap=cap)
    read_prices(Path(prices))  # a mistake in it is told with the path as it was given
    return replace(brief, cap=cap, prices=str(Path(prices).resolve()))


def _planned(given: Given | None, options: Options) -> PreparedRun:
    for name in options:
        if name not in Options.__annotations__:
            hint = did_you_mean(name, Options.__annotations__)
            raise UsageError(f"no option is called {name!r}; {hint}")
    if options.get("only") and not options.get("resume"):
        raise UsageError("`only` runs a part of a run that is there: name the run with `resume`")
    if given is None:
        resume = options.get("resume")
        if not resume:
            raise UsageError(
                "nothing to run: name a suite, a run file, or a run to resume (--resume)"
            )
        again = prepared_again(resume, Path(options.get("output", DEFAULT_OUTPUT)))
        again = replace(again, plan=_part(again.plan, options))
        return replace(again, brief=replace(again.brief, parallel=options.get("parallel")))
    return prepare(
        given,
        RunChoices(
            models=options.get("models", ()),
            agents=options.get("agents", ()),
            scorers=options.get("scorers", ()),
            base_url=options.get("base_url"),
            rollouts=options.get("rollouts"),
            parallel=options.get("parallel"),
            overrides=options.get("overrides", {}),
            selection=_selection(options),
            environ=_environ(options),
            trust=options.get("trust", False),
            allow_env=options.get("allow_env", ()),
        ),
    )


def _environ(options: Options) -> Mapping[str, str]:
    """Return what names of models may refer to: the shell's variables, then those of a file."""
    return environment(os.environ, named=_path(options.get("env_file")), here=Path()).values


def _part(plan: Plan, options: Options) -> Plan:
    """Return the part of a run's own *plan* that the options select; all of it without `only`."""
    shaping = [name for name in _SHAPE_THE_PLAN if options.get(name)]
    if options.get("only"):
        shaping = [name for name in shaping if name not in _SELECT_A_PART]
    if shaping:
        raise UsageError(
            f"without a source the plan is that of the run: {', '.join(shaping)} cannot change "
            "it; name the source as well"
        )
    if not options.get("only"):
        return plan
    return select_part(
        plan,
        _selection(options),
        models=[str(model) for model in options.get("models", ())],
        agents=[str(agent) for agent in options.get("agents", ())],
        rollouts=options.get("rollouts"),
    )


def _selection(options: Options) -> Selection:
    return Selection(
        categories=options.get("categories", ()),
        tests=options.get("tests", ()),
        limit=options.get("limit"),
    )


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def _selection_as_data(options: Options) -> dict[str, Json]:
    chosen: dict[str, Json] = {
        "categories": list(options.get("categories", ())),
        "tests": list(options.get("tests", ())),
        "limit": options.get("limit"),
    }
    return {key: value for key, value in chosen.items() if value}
