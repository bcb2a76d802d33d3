"""Why two candidates of a run differ: the tasks, categories and failures that carry the gap."""

from multidict import MultiMapping

from bakeoff.core.errors import UsageError
from bakeoff.reports.explanation import headline, on_qualities, on_tasks, part_in_words
from bakeoff.web.rendering import message, render
from bakeoff.web.runs import ViewedRun

_MOST_TASKS, _MOST_FAILURES = 50, 30


def explain_page(run: ViewedRun, query: MultiMapping[str]) -> str:
    """Return the explanation of the first two candidates `by`, or of the only two."""
    names = query.getall("by", [])[:2]
    try:
        found = run.run.explain(*names)
    except UsageError as error:
        return message("Explain", str(error))
    carrying = [task for task in found.tasks if task.part]
    return render(
        "explain.html",
        run=run,
        found=found,
        headline=headline(found),
        remarks=(*on_tasks(found), *on_qualities(found)),
        tasks=carrying[:_MOST_TASKS],
        more_tasks=max(len(carrying) - _MOST_TASKS, 0),
        failures=found.failures[:_MOST_FAILURES],
        more_failures=max(len(found.failures) - _MOST_FAILURES, 0),
        part_in_words=part_in_words,
    )
