"""The order of trials, where it matters to a server."""

from dataclasses import replace

from bakeoff.core.adaptive import Adaptive
from bakeoff.core.plan import Plan

_SWAPS_MODELS = frozenset({"ollama", "lmstudio"})


def ordered(plan: Plan, adaptive: Adaptive | None = None) -> Plan:
    """Return *plan* in the order that spares a local server from loading models again and again.

    A run that may end early takes its tasks as they are drawn.
    """
    swapped = {
        candidate.model.full_name
        for candidate in plan.candidates
        if candidate.model.provider in _SWAPS_MODELS
    }
    return replace(
        plan, one_after_another=len(swapped) > 1, drawn=None if adaptive is None else adaptive.seed
    )
