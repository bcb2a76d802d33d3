"""How large a run must be to separate two candidates."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from bakeoff._lib.phrasing import did_you_mean
from bakeoff.app.options import DEFAULT_OUTPUT
from bakeoff.app.run_results import Run, load_run
from bakeoff.core.errors import UsageError
from bakeoff.stats.pace import Effort
from bakeoff.stats.power_plan import PowerPlan, PowerRequest, plan_by_assumption, plan_by_pilot
from bakeoff.stats.sizing import Assumptions, ErrorRates
from bakeoff.stats.summary import Summary

_RANGES = {  # what may be given; beyond, no run would be planned so, or the formulas say nothing
    "difference": (1e-6, 1.0),
    "alpha": (1e-6, 0.5),
    "power": (0.5, 1 - 1e-6),
    "score": (0.001, 0.999),
    "noise": (0.0, 1.0),
    "correlation": (0.0, 1.0),
    "trial_cost": (0.0, 1e6),
    "trial_time": (0.0, 1e9),
}
_COUNTS = {
    "rollouts": (1, 1_000_000),
    "tasks": (1, 1_000_000_000),
    "candidates": (2, 1_000),
}


class PowerOptions(TypedDict, total=False):
    """The options of a power calculation; None is as if the option were left out."""

    rollouts: int | None
    tasks: int | None
    candidates: int | None
    alpha: float | None
    power: float | None
    score: float | None
    noise: float | None
    correlation: float | None
    trial_cost: float | None  # US dollars
    trial_time: float | None  # seconds


def power(
    difference: float,
    *,
    run: Run | str | Path | None = None,
    pair: Sequence[str] | None = None,
    output: str | Path = DEFAULT_OUTPUT,
    **options: Unpack[PowerOptions],
) -> PowerPlan:
    """Return how many tasks it takes to see *difference*, for each of a few numbers of rollouts.

    A *run* is taken as the pilot, and the variances of its *pair* count, or of the pair that takes
    the most tasks. Without one, `score`, `noise` and `correlation` are assumed. What the sizes take in
    money and time follows from the run, or from `trial_cost` and `trial_time`.
    """
    given = {name: value for name, value in options.items() if value is not None}
    _check({"difference": difference, **given})
    if run is None:
        if pair is not None:
            raise UsageError("a pair is that of a run: name the run as well")
        return plan_by_assumption(_wish(difference, options, candidates=2), _assumed(options))
    if pair is not None and (isinstance(pair, str) or len(pair) != 2):
        raise UsageError(f"pair is {pair!r}; give the names of two candidates")
    summary = (run if isinstance(run, Run) else load_run(run, output=output)).summary()
    many = len(summary.candidates)
    _check_pilot(given, summary, pair)
    wish = _wish(difference, options, candidates=2 if pair is not None else max(many, 2))
    return plan_by_pilot(summary, wish, pair=pair, assumed=_assumed(options))


def _wish(difference: float, options: PowerOptions, *, candidates: int) -> PowerRequest:
    usual = ErrorRates()
    return PowerRequest(
        difference=difference,
        strictness=ErrorRates(
            alpha=options.get("alpha") or usual.alpha,
            power=options.get("power") or usual.power,
            candidates=options.get("candidates") or candidates,
        ),
        rollouts=options.get("rollouts"),
        tasks=options.get("tasks"),
        trial=Effort(cost_usd=options.get("trial_cost"), seconds=options.get("trial_time")),
    )


def _assumed(options: PowerOptions) -> Assumptions:
    usual = Assumptions()
    noise, correlation = options.get("noise"), options.get("correlation")
    return Assumptions(
        score=options.get("score") or usual.score,
        noise=usual.noise if noise is None else noise,
        correlation=usual.correlation if correlation is None else correlation,
    )


def _check(given: Mapping[str, object]) -> None:
    """Raise where an option is unknown, or its value is out of range."""
    for name, value in given.items():
        if name not in _COUNTS and name not in _RANGES:
            hint = did_you_mean(name, PowerOptions.__annotations__)
            raise UsageError(f"no option is called {name!r}; {hint}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(f"{name} is {value!r}; give a number")
        if name in _COUNTS:
            _check_count(name, value)
        else:
            _check_range(name, value)


def _check_count(name: str, value: float) -> None:
    least, most = _COUNTS[name]
    if not isinstance(value, int) or not least <= value <= most:
        raise UsageError(f"{name} is {value}; give a whole number from {least} to {most:,}")


def _check_range(name: str, value: float) -> None:
    low, high = _RANGES[name]
    if low <= value <= high:
        return
    if name == "difference" and 1 < value <= 100:
        raise UsageError(
            f"difference is {value:g}, but scores go from 0 to 1; {value:g} points of a hundred "
            f"are {value / 100:g}"
        )
    such = ", such as 0.05" if name == "difference" else ""
    raise UsageError(f"{name} is {value}; give a number from {_plain(low)} to {_plain(high)}{such}")


def _plain(bound: float) -> str:
    return f"{bound:f}".rstrip("0").rstrip(".")


def _check_pilot(given: Mapping[str, object], summary: Summary, pair: Sequence[str] | None) -> None:
    """Raise where an option would assume what the pilot run measured."""
    alone = len(summary.candidates) == 1
    if pair is not None and alone:
        raise UsageError(f"{summary.run} has one candidate: there is no pair to choose")
    measured = {"score", "noise", "correlation"}
    if alone:
        measured -= {"correlation"}
        measured -= {"noise"} if summary.candidates[0].variance.within is None else set()
    if needless := sorted(measured & given.keys()):
        raise UsageError(f"{' and '.join(needless)}: a run is there to tell that; leave it out")
