"""Templates of the viewer, and the addresses of its pages."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from bakeoff.reports.html.templates import environment
from bakeoff.stores.queries import TrialEntry

TEMPLATES = Path(__file__).parent / "templates"
Query = Mapping[str, str]


def render(template: str, **values: Any) -> str:
    """Return what *template* makes of the values."""
    env = environment(TEMPLATES)
    return env.get_template(template).render(address=address, entry_address=entry_address, **values)


def message(title: str, text: str) -> str:
    """Return a page that says one thing."""
    return render("message.html", title=title, text=text)


def address(*parts: str, **query: object) -> str:
    """Return the address of a page; empty values of the query are left out, and of lists each is in it."""
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    given = {k: v for k, v in query.items() if v is not None and v is not False and v != ""}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def entry_address(run: str, entry: TrialEntry, view: Query | None = None) -> str:
    """Return the address of the page of a trial, found in the view of trials that is described so."""
    return address("run", run, "trial", of=entry.task_id, by=entry.candidate_id,
                   rollout=entry.rollout, **(view or {}))  # fmt: skip


def whole(text: str | None) -> int:
    """Return the number that an address has; 0 for anything else."""
    return int(text) if text and text.isdecimal() and len(text) < 20 else 0
