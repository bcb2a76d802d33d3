"""What would be run, printed: `--dry-run` of `bakeoff run` and `bakeoff batch`."""

import sys
from collections.abc import Mapping, Sequence

from bakeoff._lib.sanitize import for_terminal
from bakeoff.app.prepare import PreparedRun
from bakeoff.app.pricing import forecast_of
from bakeoff.app.run import ends_when
from bakeoff.cli import print_json
from bakeoff.core.run_spec import Adaptive
from bakeoff.planning.forecast import Forecast
from bakeoff.reports.wording.power import detectable_in_words
from bakeoff.stats.sizing import DetectableDifference, detectable_difference


def print_plan(
    prepared: PreparedRun,
    *,
    as_json: bool,
    more: Mapping[str, object] | None = None,
    notices: Sequence[str] = (),
) -> int:
    """Print what is planned, with the figures of *more* and the *notices* of a front end."""
    plan, notices = prepared.plan, [*prepared.notices, *notices]
    categories: set[str] = set()
    unchecked = 0
    for task in plan.tasks:
        categories |= {task.category} if task.category else set()
        unchecked += not task.scorers
    shown = {
        "name": prepared.spec.name,
        "trials": len(plan),
        "tasks": plan.task_count,
        "rollouts": prepared.spec.rollouts,
        "candidates": [c.id for c in plan.candidates],
        "categories": sorted(categories),
        "unchecked_tasks": unchecked,
        **(more or {}),
        "estimate": forecast_of(plan, prepared.spec),
        "plan": plan.digest,
        "notices": notices,
    }
    if prepared.spec.adaptive is not None:
        shown["adaptive"] = prepared.spec.adaptive
    elif (seen := detectable_difference(plan)) is not None:
        shown["least_difference"] = seen
    if as_json:
        print_json(shown)
        return 0
    del shown["notices"]
    for notice in notices:
        print(f"note: {for_terminal(notice)}", file=sys.stderr)
    for key, value in shown.items():
        text = (", ".join(value) or "none") if isinstance(value, list) else value
        if isinstance(value, Forecast):
            text = _estimate(value)
        elif isinstance(value, Adaptive):
            text = ends_when(value, len(plan))
        elif isinstance(value, DetectableDifference):
            text = detectable_in_words(value)
        print(f"{key.replace('_', ' '):16} {for_terminal(str(text))}")
    return 0


def _estimate(forecast: Forecast) -> str:
    """Return what a plan may cost, in words."""
    longest = "unknown" if forecast.output_tokens is None else f"at most {forecast.output_tokens:,}"
    cost = "cost unknown" if forecast.cost_usd is None else f"${forecast.cost_usd:.4f}"
    cost = cost if forecast.billed else "nothing is billed"
    if forecast.more:
        cost += (
            f" for the first request of each trial, and there are more ({', '.join(forecast.more)})"
        )
    why = f" (unknown: {'; '.join(forecast.unknown)})" if forecast.unknown else ""
    return f"{cost}: about {forecast.input_tokens:,} tokens in, {longest} out, without retries{why}"
