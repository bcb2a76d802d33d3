"""When a trial has passed, and that rule in words."""

from collections.abc import Iterable, Sequence

from bakeoff.core.record import Score
from bakeoff.core.task import Task

_ROUNDING = 1e-9  # weights such as .7 + .3 must still reach a threshold of 1


def has_passed(task: Task, scores: Sequence[Score], total: float | None) -> bool | None:
    """Return whether *scores*, which make *total*, are a pass at *task*; None where none are.

    With a threshold under 1 the total decides. Else every scorer that counts must be satisfied: it
    says so itself, or its value is 1.
    """
    if total is None:
        return None
    if task.pass_threshold < 1:
        return total >= task.pass_threshold - _ROUNDING
    counting = [score for score in scores if score.weight > 0]
    return all(
        score.value >= 1 - _ROUNDING if score.passed is None else score.passed for score in counting
    )


def pass_rule(tasks: Iterable[Task]) -> str:
    """Return in a few words what it takes to pass *tasks*."""
    rules = sorted({_rule_of(task) for task in tasks if task.scorers})
    if len(rules) > 1:
        return f"a pass depends on the task: {' or '.join(rules)}"
    return f"a pass is {rules[0]}" if rules else ""


def _rule_of(task: Task) -> str:
    if task.pass_threshold < 1:
        return f"a score of {task.pass_threshold:g} or more"
    if any(
        scorer.name == "rubrics" and scorer.settings.get("test_scripts") for scorer in task.scorers
    ):
        return "all tests passing, whatever a judge says"
    return "a score of 1"
