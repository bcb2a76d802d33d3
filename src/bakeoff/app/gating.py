"""Baselines and gates: a run that others are measured against, and whether one may pass."""

from dataclasses import dataclass
from pathlib import Path

from bakeoff._lib.phrasing import did_you_mean
from bakeoff.app.comparing import compare
from bakeoff.app.options import DEFAULT_OUTPUT
from bakeoff.app.run_results import Run, load_run
from bakeoff.core.errors import UsageError
from bakeoff.stats.by_task import by_task
from bakeoff.stats.gate import (
    GateBounds,
    GateCheck,
    GateState,
    against_baseline,
    within_bounds,
)
from bakeoff.stores.baselines import read_baselines, write_baselines
from bakeoff.stores.folders import check_run_name


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What a gate came to: every check, and what else is not the same as in the baseline."""

    run: str
    baseline: str | None
    margin: float
    checks: tuple[GateCheck, ...]
    notes: tuple[str, ...] = ()

    @property
    def state(self) -> GateState:
        """The worst of all checks."""
        states = {check.state for check in self.checks}
        for state in (GateState.FAILED, GateState.NOT_SHOWN):
            if state in states:
                return state
        return GateState.PASSED


def baselines(output: str | Path = DEFAULT_OUTPUT) -> dict[str, str]:
    """Return the run of every baseline in *output*, by name."""
    return read_baselines(Path(output))


def set_baseline(
    name: str, run: Run | str | Path = "latest", *, output: str | Path = DEFAULT_OUTPUT
) -> Run:
    """Call *run* the baseline *name*, and return it; a baseline of that name is replaced."""
    check_run_name(name)
    found = run if isinstance(run, Run) else load_run(run, output=output)
    home = Path(output).resolve()
    inside = found.folder.resolve().parent == home
    reference = found.folder.name if inside else str(found.folder.resolve())
    write_baselines({**baselines(output), name: reference}, Path(output))
    return found


def remove_baseline(name: str, *, output: str | Path = DEFAULT_OUTPUT) -> None:
    """Forget the baseline *name*; its run stays."""
    known = baselines(output)
    if name not in known:
        raise UsageError(f"no baseline {name!r} in {output}; {did_you_mean(name, known)}")
    left = {key: run for key, run in known.items() if key != name}
    write_baselines(left, Path(output))


def baseline_run(name: str, *, output: str | Path = DEFAULT_OUTPUT) -> Run:
    """Return the run of the baseline *name*, or the run of that name where there is no such baseline."""
    known = baselines(output)
    try:
        return load_run(known.get(name, name), output=output)
    except UsageError as error:
        if name in known:
            raise UsageError(
                f"the run of baseline {name!r} no longer exists: {error}; set it again with: "
                f"bakeoff baseline set {name} RUN"
            ) from error
        there = f"; baselines: {', '.join(sorted(known))}" if known else "; there are no baselines"
        raise UsageError(f"{name!r} is neither a baseline nor a run: {error}{there}") from error


def gate(
    run: Run | str | Path = "latest",
    *,
    baseline: str | None = None,
    margin: float = 0.02,
    bounds: GateBounds | None = None,
    output: str | Path = DEFAULT_OUTPUT,
    force: bool = False,
) -> Gate:
    """Check whether *run* may pass: not worse than its *baseline*, and within its *bounds*.

    Where conditions differ, it is not shown either way, unless *force* insists on an answer.
    """
    bounds = bounds or GateBounds()
    if baseline is None and not bounds.any:
        raise UsageError(
            "nothing to check: name a baseline (bakeoff baseline set NAME RUN, then "
            "--baseline NAME) or a bound such as --min-score 0.8"
        )
    found = run if isinstance(run, Run) else load_run(run, output=output)
    checks: list[GateCheck] = []
    notes: tuple[str, ...] = ()
    if baseline is not None:
        before = baseline_run(baseline, output=output)
        if before.folder.resolve() == found.folder.resolve():
            raise UsageError(
                f"{found.id} is the run of the baseline {baseline!r} itself: run the suite again, and "
                "check that run"
            )
        compared = compare(before, found, force=force)
        checks += [against_baseline(each, margin=margin) for each in compared.contrasts]
        notes = compared.notes
    if bounds.any:
        summary, tasks = found.summary(), by_task(found.plan, found.rows())
        for candidate in summary.candidates:
            checks += within_bounds(candidate, tasks, bounds)
    return Gate(run=found.id, baseline=baseline, margin=margin, checks=tuple(checks), notes=notes)
