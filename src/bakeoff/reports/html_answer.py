"""The top of the page of a run: the answer in words, how far the run has come, figures in large print."""

from collections.abc import Iterator

from bakeoff.reports import in_words
from bakeoff.reports.answer import answer
from bakeoff.reports.findings import Findings
from bakeoff.reports.html_page import Tile, notes, remarks, tiles
from bakeoff.reports.html_text import esc
from bakeoff.reports.summary_words import conservation


def top(findings: Findings) -> Iterator[str]:
    """Yield what a reader sees first."""
    found = answer(findings.summary)
    kind = "decided" if found.decided else "open"
    so_far = "So far: " if findings.standing else ""
    yield (
        f'<section class="card answer {kind}" aria-label="The answer">'
        f"<p>{esc(so_far + found.told)}</p><small>{esc(found.why)}</small></section>"
    )
    yield notes([findings.standing] if findings.standing else [])
    yield tiles(_figures(findings))
    yield f'<p class="quiet below">{esc(conservation(findings.summary.buckets))}</p>'
    warnings = findings.summary.warnings
    yield remarks([note for note in findings.summary.notes if note not in warnings])
    yield notes(warnings)


def _figures(findings: Findings) -> Iterator[Tile]:
    summary, buckets = findings.summary, findings.summary.buckets
    if len(summary.candidates) > 1:
        yield Tile(f"{len(summary.candidates):,}", "candidates")
    yield Tile(f"{summary.tasks:,}", "task" if summary.tasks == 1 else "tasks")
    yield Tile(f"{buckets.scored:,}", f"of {in_words.counted(buckets.planned, 'trial')} scored")
    if buckets.faults:
        yield Tile(f"{buckets.faults:,}", "faulted", "bad")
    if buckets.limited:
        yield Tile(f"{buckets.limited:,}", "stopped at a limit")
    if buckets.unchecked:
        yield Tile(f"{buckets.unchecked:,}", "unchecked")
    if buckets.not_needed:
        yield Tile(f"{buckets.not_needed:,}", "not needed", "good")
    if summary.billed.cost_usd is not None:
        yield Tile(in_words.dollars(summary.billed.cost_usd), "billed in all")
