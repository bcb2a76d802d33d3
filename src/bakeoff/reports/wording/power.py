"""A power plan in words: the required size, what the available tasks can show, and its assumptions."""

from collections.abc import Iterator

import msgspec

from bakeoff._lib.sanitize import one_line
from bakeoff.core.values import Json
from bakeoff.reports.wording.phrases import counted, in_words, number
from bakeoff.stats.pace import Effort
from bakeoff.stats.power_plan import Pilot, PowerPlan
from bakeoff.stats.sizing import DetectableDifference

_ASSUMED = {
    "score": "a mean score of {:.2g}",
    "noise": "{:.2g} of the variance of scores is chance between rollouts",
    "correlation": "a correlation of {:.2g} between the task scores of the two",
}


def as_json(plan: PowerPlan) -> dict[str, Json]:
    """Return *plan* as plain data; what is unknown is null."""
    data: dict[str, Json] = msgspec.to_builtins(plan)
    return {**data, "cheapest": msgspec.to_builtins(plan.cheapest)}


def asked(plan: PowerPlan) -> str:
    """Return the question that the plan answers."""
    strictness = plan.strictness
    candidates = "two candidates"
    if strictness.pairs > 1:
        candidates += f" of {strictness.candidates} ({counted(strictness.pairs, 'pair')})"
    return f"to see a difference of {plan.difference:g} between {candidates}"


def answers(plan: PowerPlan) -> Iterator[str]:
    """Yield the recommendations: the cheapest run, and what the available tasks allow."""
    if (least := plan.cheapest) is not None:
        dearer = "; more rollouts help only when tasks are few" if len(plan.sizes) > 1 else ""
        yield (
            f"fewest trials: {counted(least.rollouts, 'rollout')} of each of "
            f"{counted(least.tasks, 'task')}, {least.trials:,} trials in all"
            f"{_about(least.effort)}{dearer}"
        )
    if plan.tasks is not None:
        yield _at_hand(plan, plan.tasks)
    if plan.fewest_tasks is not None and (plan.tasks is None or plan.rollouts_at_hand):
        yield f"with fewer than {counted(plan.fewest_tasks, 'task')}, no number of rollouts is enough"


def _about(effort: Effort) -> str:
    took = in_words(effort)
    return f", about {took}" if took else ""


def _at_hand(plan: PowerPlan, tasks: int) -> str:
    have = f"with the {counted(tasks, 'task')} at hand"
    if plan.rollouts_at_hand is not None:
        return f"{have}, {counted(plan.rollouts_at_hand, 'rollout')} of each should be enough"
    if plan.fewest_tasks is None:
        return f"{have}, that many rollouts are not enough"
    if plan.fewest_tasks <= tasks:
        return f"{have}, it takes more than a thousand rollouts of each"
    return f"{have}, no number of rollouts is enough: it takes {plan.fewest_tasks:,} at least"


def grounds(plan: PowerPlan) -> Iterator[str]:
    """Yield power, significance level, data source and assumptions."""
    pairs = plan.strictness.pairs
    anywhere = f" in any of {pairs} pairs" if pairs > 1 else ""
    yield (
        f"a chance of {_per_cent(plan.strictness.power)} to detect it if it exists, and of "
        f"{_per_cent(plan.strictness.alpha)} for a false positive{anywhere}"
    )
    if plan.pilot is not None:
        yield _measured(plan.pilot)
    if plan.reason:
        yield plan.reason
    if plan.spread.clipped:
        yield "tasks differ no more than rollouts do, so far: more rollouts look as good as more tasks"
    if plan.assumed:
        assumptions = "; ".join(
            _ASSUMED[name].format(value) for name, value in plan.assumed.items()
        )
        yield f"assumed: {assumptions}"
    if took := in_words(plan.trial):
        yield f"cost and time: a trial takes {took}{' as in that run, as many at once' if plan.pilot else ''}"
    yield _trust(plan)


def _measured(pilot: Pilot) -> str:
    names = " and ".join(one_line(name) for name in pilot.pair)
    measured = f"one candidate, {names}" if len(pilot.pair) == 1 else names
    few = "" if pilot.rollouts is None else f" with {number(pilot.rollouts)} rollouts"
    few = few.removesuffix("s") if pilot.rollouts == 1 else few
    if pilot.rollouts is not None and not float(pilot.rollouts).is_integer():
        few += " each in the mean"
    text = f"measured in {one_line(pilot.run)}: {measured}, on {counted(pilot.tasks, 'task')}{few}"
    if pilot.pairs > 1:
        text += f"; of {pilot.pairs} pairs, the one that takes the most tasks"
    return text


def _trust(plan: PowerPlan) -> str:
    if plan.pilot is None:
        return "better than assuming: make a small run with --rollouts 2, then add --run latest"
    if len(plan.pilot.pair) == 1:
        return "rough: one candidate says nothing about a difference; a run with two measures it"
    if not any(size.likely for size in plan.sizes):
        return f"{counted(plan.pilot.tasks, 'task')} are too few to trust these numbers"
    return (
        f"likely: the range of 95 out of 100 pilots; {counted(plan.pilot.tasks, 'task')} "
        "give no better estimate"
    )


def _per_cent(share: float) -> str:
    return f"{100 * share:.4g} %"


def detectable_in_words(seen: DetectableDifference) -> str:
    """Return in one line the detectable difference of a plan and its assumptions."""
    if seen.detectable is None:
        return f"none: too few tasks with a score ({seen.tasks}) to separate two candidates"
    of = f" of {seen.candidates}" if seen.candidates > 2 else ""
    assumed = seen.assumed
    return (
        f"{seen.detectable:.2g} between two{of}, with a chance of 80 % (assumed: mean score "
        f"{assumed.score:.2g}, noise {assumed.noise:.2g}, correlation {assumed.correlation:.2g})"
    )
