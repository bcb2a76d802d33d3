"""Why a score is unsure, in words: whether more rollouts would help, or only more tasks."""

from bakeoff.stats.variance import VarianceSplit

_HARDLY = 0.05  # of a standard error: less is no reason to pay for rollouts
_TWICE_THE_TASKS = 0.5**0.5  # of the standard error is left, whatever it comes from


def more_rollouts(split: VarianceSplit) -> str | None:
    """Return what more rollouts would do to the standard error; None where that is not known."""
    if split.icc is None or split.rollouts is None:
        return None
    now = split.se(tasks=split.tasks, rollouts=split.rollouts)
    if now is None or split.se_twice_rollouts is None:
        return None
    if split.se_any_rollouts is not None and 1 - split.se_any_rollouts / now < _HARDLY:
        return "more rollouts would hardly help: it is the tasks that differ"
    return (
        f"twice the rollouts would shrink the error by {_by(split.se_twice_rollouts / now)}, "
        f"twice the tasks by {_by(_TWICE_THE_TASKS)}"
    )


def _by(left: float) -> str:
    return f"{100 * (1 - left):.0f} %"
