"""What a page can do, not only show: tags and notes, stop a run, resume it."""

from collections.abc import Mapping

from bakeoff._lib.sanitize import for_terminal
from bakeoff.app.run_control import resume_run, stop_run
from bakeoff.core.errors import UsageError
from bakeoff.stores.run_notes import MOST_NOTE, RunNotes, tags_in, write_notes
from bakeoff.web.run_page import live_part, notes_part
from bakeoff.web.runs import ViewedRun


def keep_notes(run: ViewedRun, form: Mapping[str, str]) -> str:
    """Keep the tags and the note of a form, and return them as the page shows them."""
    try:
        note = for_terminal(form.get("note", "")).strip()[:MOST_NOTE]
        write_notes(run.folder, RunNotes(tags=tags_in(form.get("tags", "")), note=note))
    except UsageError as error:
        return notes_part(run, str(error))
    return notes_part(run)


def stop(run: ViewedRun, _: Mapping[str, str]) -> str:
    """Stop the run as Ctrl-C does, and return how far it is."""
    try:
        stop_run(run.folder)
    except UsageError as error:
        return live_part(run, str(error))
    run.stopping += 1
    return live_part(run)


def resume(run: ViewedRun, _: Mapping[str, str]) -> str:
    """Resume the run in a process of its own, and return how far it is."""
    try:
        run.resumed = resume_run(run.folder)
    except UsageError as error:
        return live_part(run, str(error))
    run.stopping = 0
    return live_part(run)
