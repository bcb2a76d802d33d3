"""A run as one HTML file: the answer first, then the figures, the tasks, the trials, the settings."""

from collections.abc import Iterator
from dataclasses import replace

from bakeoff.reports.findings import Findings
from bakeoff.reports.html_answer import top
from bakeoff.reports.html_figures import figures
from bakeoff.reports.html_grid import grid
from bakeoff.reports.html_page import header, page
from bakeoff.reports.html_settings import settings
from bakeoff.reports.html_text import esc
from bakeoff.reports.html_trials import trials
from bakeoff.reports.in_words import counted, moment
from bakeoff.reports.selection import select


def render(findings: Findings) -> Iterator[str]:
    """Yield the whole page, part by part: no more than one task of it is ever in memory."""
    name = findings.manifest.name or findings.called
    return page(f"{name}: {findings.called}", _body(findings, name))


def _body(findings: Findings, name: str) -> Iterator[str]:
    yield header("Run", findings.called, name, _facts(findings))
    yield from top(findings)
    yield from figures(findings.summary)
    shown = select(findings)
    if not findings.with_text:
        shown = replace(shown, told=())
    if len(findings.candidates) > 1 or len(shown.rows) > len(shown.told):
        yield from grid(findings, shown)
    if findings.with_text:
        yield from trials(findings, shown)
    yield from settings(findings)
    yield (
        f"<footer>Made by Bakeoff {esc(findings.manifest.bakeoff)} from the ledger of the run, "
        f"{esc(moment(findings.made_at))}; <code>{esc(findings.command('show'))}</code> prints any "
        "trial.</footer>"
    )


def _facts(findings: Findings) -> Iterator[str]:
    summary, manifest = findings.summary, findings.manifest
    yield f"{counted(summary.tasks, 'task')} × {counted(summary.rollouts, 'rollout')}"
    agents = dict.fromkeys(c.agent.label or c.agent.name for c in manifest.candidates)
    if len(agents) == 1:
        yield f"agent {next(iter(agents))}"
    if any(task.workspace is not None for task in findings.tasks):
        yield f"sandbox {manifest.sandbox.name}" if manifest.sandbox.name else "no sandbox"
    for role, model in manifest.conditions.roles.items():
        yield f"{role} {model.full_name}"
    if manifest.adaptive is not None:
        yield "adaptive"
    yield moment(manifest.created_at)
