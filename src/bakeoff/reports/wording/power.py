"""How large a run must be, in words: what it takes, what the tasks at hand show, how far to trust it."""

from collections.abc import Iterator

import msgspec

from bakeoff._lib.sanitize import one_line
from bakeoff.core.values import Json
from bakeoff.reports.wording.phrases import counted, number
from bakeoff.stats.power_plan import Pilot, PowerPlan
from bakeoff.stats.sizing import Foreseen

_ASSUMED = {
    "score": "a mean score of {:.2g}",
    "noise": "{:.2g} of the variance of scores is chance between rollouts",
    "correlation": "a correlation of {:.2g} between what the two find hard",
}


def as_json(plan: PowerPlan) -> dict[str, Json]:
    """Return *plan* as plain data; what is unknown is null."""
    data: dict[str, Json] = msgspec.to_builtins(plan)
    return {**data, "cheapest": msgspec.to_builtins(plan.cheapest)}


def asked(plan: PowerPlan) -> str:
    """Return the question that is answered."""
    strictness = plan.strictness
    who = "two candidates"
    if strictness.pairs > 1:
        who += f" of {strictness.candidates} ({counted(strictness.pairs, 'pair')})"
    return f"to see a difference of {plan.difference:g} between {who}"


def answers(plan: PowerPlan) -> Iterator[str]:
    """Yield what a person should do: the cheapest run, and what can be done with the tasks at hand."""
    if (least := plan.cheapest) is not None:
        dearer = "; more rollouts pay only where tasks are few" if len(plan.sizes) > 1 else ""
        yield (
            f"fewest trials: {counted(least.rollouts, 'rollout')} of each of "
            f"{counted(least.tasks, 'task')}, {least.trials:,} trials in all{dearer}"
        )
    if plan.tasks is not None:
        yield _at_hand(plan, plan.tasks)
    if plan.fewest_tasks is not None and (plan.tasks is None or plan.rollouts_at_hand):
        yield f"with fewer than {counted(plan.fewest_tasks, 'task')}, no number of rollouts is enough"


def _at_hand(plan: PowerPlan, tasks: int) -> str:
    have = f"with the {counted(tasks, 'task')} at hand"
    if plan.rollouts_at_hand is not None:
        return f"{have}, {counted(plan.rollouts_at_hand, 'rollout')} of each should be enough"
    if plan.fewest_tasks is None:
        return f"{have}, so many rollouts are not enough"
    if plan.fewest_tasks <= tasks:
        return f"{have}, it takes more than a thousand rollouts of each"
    return f"{have}, no number of rollouts is enough: it takes {plan.fewest_tasks:,} at least"


def grounds(plan: PowerPlan) -> Iterator[str]:
    """Yield how sure it is, what it was taken from, and what was assumed."""
    pairs = plan.strictness.pairs
    anywhere = f", by any of {pairs} pairs," if pairs > 1 else ""
    yield (
        f"a chance of {_per_cent(plan.strictness.power)} to see it if it is there, and of "
        f"{_per_cent(plan.strictness.alpha)} to be fooled{anywhere} if nobody is better"
    )
    if plan.pilot is not None:
        yield _measured(plan.pilot)
    if plan.reason:
        yield plan.reason
    if plan.spread.clipped:
        yield "tasks differ no more than rollouts do, so far: more rollouts look as good as more tasks"
    if plan.assumed:
        told = "; ".join(_ASSUMED[name].format(value) for name, value in plan.assumed.items())
        yield f"assumed: {told}"
    yield _trust(plan)


def _measured(pilot: Pilot) -> str:
    names = " and ".join(one_line(name) for name in pilot.pair)
    one = f"one candidate, {names}" if len(pilot.pair) == 1 else names
    few = "" if pilot.rollouts is None else f" with {number(pilot.rollouts)} rollouts"
    few = few.removesuffix("s") if pilot.rollouts == 1 else few
    told = f"measured in {one_line(pilot.run)}: {one}, on {counted(pilot.tasks, 'task')}{few}"
    if pilot.pairs > 1:
        told += f"; of {pilot.pairs} pairs, the one that takes the most tasks"
    return told


def _trust(plan: PowerPlan) -> str:
    if plan.pilot is None:
        return "better than to assume it: make a small run with --rollouts 2, then add --run latest"
    if len(plan.pilot.pair) == 1:
        return "rough: one candidate says nothing about a difference; a run with two measures it"
    if not any(size.likely for size in plan.sizes):
        return f"{counted(plan.pilot.tasks, 'task')} are too few to trust these numbers"
    return (
        f"likely: where the number lies in 95 of 100 pilots; {counted(plan.pilot.tasks, 'task')} "
        "tell it no better"
    )


def _per_cent(share: float) -> str:
    return f"{100 * share:.4g} %"


def foreseen_in_words(seen: Foreseen) -> str:
    """Return in a line what a plan can tell of two candidates, and what that takes for granted."""
    if seen.detectable is None:
        return f"none: too few tasks with a score ({seen.tasks}) to tell two candidates apart"
    of = f" of {seen.candidates}" if seen.candidates > 2 else ""
    assumed = seen.assumed
    return (
        f"{seen.detectable:.2g} between two{of}, with a chance of 80 % (assumed: mean score "
        f"{assumed.score:.2g}, noise {assumed.noise:.2g}, correlation {assumed.correlation:.2g})"
    )
